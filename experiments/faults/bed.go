package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
	"shardlease/pkg/groupcommit/vfs/tracefs"
	"shardlease/pkg/lease"
)

// The report's ids, shards and times (directed tests 2 to 5): claimed at 10 s with a TTL of 10 s in four shards, renewed at 19 s.
const (
	shards    = 4
	ttl       = 10 * time.Second
	claimedAt = 10
	renewedAt = 19
)

var (
	firstOfShard0  = mustID("00000000", "a")
	secondOfShard0 = mustID("00000004", "b")
	onlyOfShard1   = mustID("00000001", "c")
)

func mustID(prefix, fill string) lease.ID {
	id, err := lease.ParseID(prefix + strings.Repeat(fill, 56))
	if err != nil {
		panic(err)
	}
	return id
}

// heartbeater is what the cases test; the broken doubles implement it as well.
type heartbeater interface {
	HeartbeatMany(ctx context.Context, held map[lease.ID]lease.Token) (lease.HeartbeatBatch, error)
}

// subject is the library, or a double of it with a planted bug.
type subject struct {
	name string
	fs   func(vfs.FS) vfs.FS            // what stands between the library and the disk
	wrap func(*lease.Table) heartbeater // what stands between the caller and the library
}

var library = subject{
	name: "library",
	fs:   func(fsys vfs.FS) vfs.FS { return fsys },
	wrap: func(t *lease.Table) heartbeater { return t },
}

// bed is a root on the real file system, with a clock, a trace of what reaches the disk, and faults above it.
type bed struct {
	ctx     context.Context
	root    string
	second  float64
	trace   *tracefs.Trace
	fault   *faultfs.FS
	opts    lease.Options
	table   *lease.Table
	subject heartbeater
	held    map[lease.ID]lease.Token
}

// newBed claims the ids.
func newBed(ctx context.Context, root string, s subject, ids ...lease.ID) (*bed, error) {
	b := &bed{ctx: ctx, root: root, second: claimedAt, trace: tracefs.New(vfs.OS, root), held: map[lease.ID]lease.Token{}}
	b.fault = faultfs.New(s.fs(b.trace))
	b.opts = lease.Options{Shards: shards, TTL: ttl, FS: b.fault, Now: func() time.Time { return seconds(b.second) }}
	var err error
	if b.table, err = lease.Open(root, &b.opts); err != nil {
		return nil, err
	}
	b.subject = s.wrap(b.table)
	for _, id := range ids {
		if b.held[id], err = b.table.Claim(ctx, id, nil, lease.Holder{Owner: "master"}); err != nil {
			return nil, err
		}
	}
	b.trace.Reset()
	return b, nil
}

func (b *bed) close() error { return b.table.Close() }

func seconds(s float64) time.Time { return time.Unix(0, int64(s*float64(time.Second))).UTC() }

// acknowledged is the mark that the program has been told of success.
const acknowledged = "acknowledged"

// renew renews all held records at 19 s and marks a success in the trace.
func (b *bed) renew() (lease.HeartbeatBatch, error) {
	b.second = renewedAt
	result, err := b.subject.HeartbeatMany(b.ctx, b.held)
	if err == nil {
		b.trace.Mark(acknowledged)
	}
	return result, err
}

// updated is the time of a record as a fresh table without faults reads it, in seconds.
func (b *bed) updated(id lease.ID) string {
	opts := b.opts
	opts.FS = vfs.OS
	t, err := lease.Open(b.root, &opts)
	if err != nil {
		return err.Error()
	}
	r, err := t.Lookup(id)
	if err = errors.Join(err, t.Close()); err != nil {
		return err.Error()
	}
	return fmt.Sprint(r.Updated.Sub(seconds(0)).Seconds())
}

// barriers lists the shards whose directory was synced, by the last part of its name as a number, in order.
func (b *bed) barriers() []string {
	var out []string
	for _, e := range b.trace.Events() {
		if e.Op == vfs.OpSyncDir && e.Err == nil {
			out = append(out, shardName(e.Name))
		}
	}
	return out
}

// renames counts what was published.
func (b *bed) renames() int {
	n := 0
	for _, count := range b.trace.Counts().Renames {
		n += count
	}
	return n
}

func shardName(dir string) string {
	name := strings.TrimLeft(filepath.Base(dir), "0")
	if name == "" {
		return "0"
	}
	return name
}

// content is all bytes of the record's file.
func (b *bed) content(id lease.ID) string {
	text := "absent"
	err := filepath.WalkDir(b.root, func(name string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.HasPrefix(d.Name(), id.String()) && filepath.Ext(name) != ".tmp" {
			data, rerr := os.ReadFile(name)
			text, err = string(data), rerr
		}
		return err
	})
	if err != nil {
		return err.Error()
	}
	return text
}

// idNames prints ids by the names they have in the cases, sorted.
func idNames(ids []lease.ID) string {
	known := map[lease.ID]string{firstOfShard0: "first", secondOfShard0: "second", onlyOfShard1: "third"}
	var out []string
	for _, id := range ids {
		out = append(out, known[id])
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func failedNames(e *lease.BatchError) string {
	return idNames(slices.Collect(maps.Keys(e.Failed)))
}

func isZero(b lease.HeartbeatBatch) bool {
	return b.Renewed == nil && b.Lost == nil && b.DirectorySyncs == 0
}

// surfaced counts the error if the caller can see what was injected.
func surfaced(err, injected error) int {
	if errors.Is(err, injected) {
		return 1
	}
	return 0
}
