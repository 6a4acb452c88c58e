package lease

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"time"

	"shardlease/pkg/groupcommit"
)

// MaxGroup is the largest number of targets in one group.
const MaxGroup = 64

// TargetTable leases groups of branch targets, all or nothing: the members of one claim share one token and one expiry. It is an
// optimisation for its users (two solvers should not work on one branch); results are protected by the work lease. All methods may be
// called concurrently, from any number of goroutines and processes.
//
// # A crash in the middle
//
// The intent of a group operation is in the records themselves: each names all targets it was claimed with. A group is held only
// while every member carries its token and none has lapsed; one that was written in part holds nothing and is free for the next claim,
// without waiting for its TTL. So a claim cut short is rolled back, and a release cut short rolled forward, by whoever comes next, with no
// file and no barrier more than the records need. A claim cut short after its last record is a lease of a dead holder and lapses.
//
// Looking at the other members without their locks is safe: every operation of a group's holder takes the locks of all its members, so one
// lock that is held freezes the whole group; and a group that is not whole, or has lapsed, never becomes whole again.
type TargetTable struct{ s *store }

// OpenTargets opens the target table under root and creates it durably if there is none, as Open does for work.
func OpenTargets(root string, opts *Options) (*TargetTable, error) {
	s, err := openStore(root, kindTargets, opts)
	if err != nil {
		return nil, err
	}
	return &TargetTable{s: s}, nil
}

// Close is Table.Close.
func (t *TargetTable) Close() error { return t.s.close() }

// Shards returns the shard count that the root has pinned.
func (t *TargetTable) Shards() int { return t.s.opts.Shards }

// TTL returns the time that a group claimed through this table lives without a renewal.
func (t *TargetTable) TTL() time.Duration { return t.s.opts.TTL }

// Stats returns the counters of this open table; batches are calls of HeartbeatGroup.
func (t *TargetTable) Stats() Stats { return t.s.stats.snapshot() }

// Strategy is Table.Strategy for target tables.
func (t *TargetTable) Strategy() groupcommit.Strategy { return t.s.writer.Strategy() }

// Lookup reads the record of one target, as Table.Lookup does.
func (t *TargetTable) Lookup(target uint64) (Record, error) {
	if err := t.s.enter(context.Background()); err != nil {
		return Record{}, err
	}
	r, _, err := t.s.read(TargetID(target), nil)
	return r, err
}

// Records walks over all records, as Table.Records does.
func (t *TargetTable) Records(ctx context.Context) iter.Seq2[Record, error] {
	return t.s.records(ctx, nil)
}

// ClaimGroup takes the leases of all targets, 1 to MaxGroup distinct numbers above 0 in any order, or of none. It is refused with
// ErrHeld while one of them belongs to a group that is held, and with ErrCorrupt if the record of one can't be trusted. The fence of the
// token is above all earlier ones of each target.
//
// On any error the caller holds nothing. If writing fails, the records get their old bytes back before the locks are let go; should
// that fail too, the error says so, and the group, being in pieces, is free for others anyhow.
func (t *TargetTable) ClaimGroup(ctx context.Context, targets []uint64, payload json.RawMessage, by Holder) (Token, error) {
	payload, err := t.s.claimArgs(payload, &by)
	if err != nil {
		return Token{}, err
	}
	var first Record
	err = t.s.lockedGroup(ctx, targets, func(g *group, now time.Time) error {
		highest := uint64(0)
		for i := range g.members {
			if err := g.free(&g.members[i], now); err != nil {
				return err
			}
			if old := g.members[i].old; old != nil {
				highest = max(highest, old.Token.Fence)
			}
		}
		tok, err := t.s.nextToken(highest)
		if err != nil {
			return err
		}
		for i := range g.members { // all are encoded before the first is written
			m := &g.members[i]
			r := t.s.claimed(m.old, m.id, tok, payload, by, now)
			r.Target, r.Targets = m.target, g.targets
			if m.data, err = t.s.encodeNew(&r); err != nil {
				return err
			}
			first = r
		}
		return g.write()
	})
	if err != nil {
		return Token{}, err
	}
	return first.Token, t.s.inTime(&first)
}

// HeartbeatGroup renews all members, with one barrier per touched shard, or none: if one is lost, or can't be written, all keep
// their old time, and so one common expiry. targets is the group as it was claimed, in any order.
func (t *TargetTable) HeartbeatGroup(ctx context.Context, targets []uint64, tok Token) error {
	syncs, shards := 0, 0
	var last Record
	err := t.s.lockedGroup(ctx, targets, func(g *group, now time.Time) error {
		for i := range g.members {
			m := &g.members[i]
			if err := g.owned(m, OpHeartbeat, tok, now); err != nil {
				return err
			}
			r := *m.old
			r.renew(now)
			var err error
			if m.data, err = t.s.encode(&r, nil, 0); err != nil {
				return err
			}
		}
		if err := g.write(); err != nil {
			return err
		}
		syncs, shards = g.flushed.ContentSyncs, len(g.flushed.Durable)
		last = *g.members[0].old
		last.renew(now)
		return t.s.inTime(&last)
	})
	if err != nil {
		t.s.stats.failures.Add(1)
		return err
	}
	t.s.stats.batch(len(targets), syncs, shards)
	return nil
}

// ReleaseGroup gives all members back, or none. Their records stay, with the fence. Repeating it with the same token is fine.
func (t *TargetTable) ReleaseGroup(ctx context.Context, targets []uint64, tok Token) error {
	return t.s.lockedGroup(ctx, targets, func(g *group, now time.Time) error {
		for i := range g.members {
			m := &g.members[i]
			if err := g.owned(m, OpAbandon, tok, now); err != nil {
				return err
			}
			r := *m.old
			r.Status = Abandoned
			var err error
			if m.data, err = t.s.encode(&r, nil, 0); err != nil {
				return err
			}
		}
		return g.write()
	})
}

// newGroup checks the targets and puts them in lock order, which is that of their IDs.
func (s *store) newGroup(targets []uint64) (*group, error) {
	if len(targets) < 1 || len(targets) > MaxGroup {
		return nil, fmt.Errorf("lease: a group of %d targets, want 1 to %d: %w", len(targets), MaxGroup, fs.ErrInvalid)
	}
	g := &group{s: s, members: make([]groupMember, len(targets)), targets: make([]uint64, len(targets))}
	for i, target := range targets {
		if target == 0 {
			return nil, fmt.Errorf("lease: target 0 is not a branch target: %w", fs.ErrInvalid)
		}
		g.members[i] = groupMember{target: target, id: TargetID(target)}
	}
	slices.SortFunc(g.members, func(a, b groupMember) int { return compareIDs(a.id, b.id) })
	for i, m := range g.members {
		if i > 0 && g.members[i-1].target == m.target {
			return nil, fmt.Errorf("lease: target %d is twice in the group: %w", m.target, fs.ErrInvalid)
		}
		g.targets[i] = m.target
	}
	return g, nil
}
