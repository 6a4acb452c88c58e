package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
	"shardlease/pkg/groupcommit/vfs/tracefs"
	"shardlease/pkg/lease"
)

// group is the report's target group; its members lie in all four shards.
var group = []uint64{101, 102, 103, 104, 105, 106, 107, 108}

// targetBed is bed for a table of branch targets.
type targetBed struct {
	second float64
	trace  *tracefs.Trace
	fault  *faultfs.FS
	table  *lease.TargetTable
	tok    lease.Token
}

func newTargetBed(ctx context.Context, root string, s subject) (*targetBed, error) {
	b := &targetBed{second: claimedAt, trace: tracefs.New(vfs.OS, root)}
	b.fault = faultfs.New(s.fs(b.trace))
	opts := lease.Options{Shards: shards, TTL: ttl, FS: b.fault, Now: func() time.Time { return seconds(b.second) }}
	var err error
	if b.table, err = lease.OpenTargets(root, &opts); err != nil {
		return nil, err
	}
	if b.tok, err = b.table.ClaimGroup(ctx, group, nil, lease.Holder{Owner: "master"}); err != nil {
		return nil, err
	}
	b.trace.Reset()
	b.second = renewedAt
	return b, nil
}

// times lists the distinct times and tokens of the group.
func (b *targetBed) times() string {
	seen := map[string]bool{}
	for _, target := range group {
		r, err := b.table.Lookup(target)
		if err != nil {
			return err.Error()
		}
		text := fmt.Sprint(r.Updated.Sub(seconds(0)).Seconds())
		if r.Token != b.tok {
			text += " with another token"
		}
		seen[text] = true
	}
	var out []string
	for text := range seen {
		out = append(out, text)
	}
	slices.Sort(out)
	return fmt.Sprint(out)
}

func targetScenarios() []scenario {
	list := []scenario{targetsOnce, targetsForeign}
	for _, f := range []struct {
		op  vfs.Op
		nth int
	}{{vfs.OpWrite, 2}, {vfs.OpRename, 5}, {vfs.OpSyncDir, 1}} {
		list = append(list, targetsRolledBack(f.op, f.nth))
	}
	return list
}

// Directed test 6.
var targetsOnce = scenario{"target-group-syncs-each-shard-once", []string{"G4", "G9"}, "none",
	func(ctx context.Context, root string, s subject, c *Case) error {
		b, err := newTargetBed(ctx, root, s)
		if err != nil {
			return err
		}
		c.expect("error", nil, b.table.HeartbeatGroup(ctx, group, b.tok))
		b.trace.Mark(acknowledged)
		synced := (&bed{trace: b.trace}).barriers()
		slices.Sort(synced)
		c.expect("shards synced, each once", []string{"0", "1", "2", "3"}, synced)
		c.expect("contents and names were durable before the acknowledgement", nil, b.trace.Check(acknowledged))
		c.expect("times of the members", "[19]", b.times())
		c.Trace = b.trace.String()
		return b.table.Close()
	}}

var targetsForeign = scenario{"target-group-refuses-a-foreign-token", []string{"G7", "G9"}, "the token was replaced",
	func(ctx context.Context, root string, s subject, c *Case) error {
		b, err := newTargetBed(ctx, root, s)
		if err != nil {
			return err
		}
		stale := b.tok
		stale.Nonce[0] ^= 0xff
		err = b.table.HeartbeatGroup(ctx, group, stale)
		c.expect("the error is ErrLost", true, errors.Is(err, lease.ErrLost))
		c.expect("shards synced", []string(nil), (&bed{trace: b.trace}).barriers())
		c.expect("times of the members", "[10]", b.times())
		c.Trace = b.trace.String()
		return b.table.Close()
	}}

// targetsRolledBack fails one operation of a group renewal: the whole group must keep its old time and token.
func targetsRolledBack(op vfs.Op, nth int) scenario {
	return scenario{"target-group-is-rolled-back-after-a-failed-" + string(op), []string{"G6", "G9"}, fmt.Sprintf("EIO from %s number %d", op, nth),
		func(ctx context.Context, root string, s subject, c *Case) error {
			b, err := newTargetBed(ctx, root, s)
			if err != nil {
				return err
			}
			injected := fmt.Errorf("injected: %w", syscall.EIO)
			b.fault.Inject(faultfs.Rule{Op: op, Nth: nth, Err: injected})
			err = b.table.HeartbeatGroup(ctx, group, b.tok)
			c.Injected, c.Surfaced = b.fault.Injected(), surfaced(err, injected)
			c.expect("errors injected", 1, c.Injected)
			c.expect("times of the members", "[10]", b.times())
			c.Trace = b.trace.String()
			return b.table.Close()
		}}
}
