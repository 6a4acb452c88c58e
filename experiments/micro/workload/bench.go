package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"shardlease/experiments/micro/raw"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/tracefs"
	"shardlease/pkg/lease"
)

// bench is one scenario: a table whose records lie in some of its shards, opened twice, plain for times and traced for
// counts and costs.
type bench struct {
	active int
	repeat int // passes that one side of a round consists of
	plain  *lease.Table
	traced *lease.Table
	trace  *tracefs.Trace
	ids    []lease.ID
	held   map[lease.ID]lease.Token
	now    time.Time // the tables' clock; each pass moves it on, so each pass writes

	rounds []raw.Round
	passes []raw.Pass
	syncs  []raw.Sync
}

func newBench(ctx context.Context, c config, active int) (*bench, error) {
	root := filepath.Join(c.root, fmt.Sprintf("active-%d", active))
	b := &bench{active: active, repeat: c.passes, held: map[lease.ID]lease.Token{}, now: time.Unix(10, 0), trace: tracefs.New(vfs.OS, root)}
	opts := lease.Options{Shards: c.shards, TTL: time.Duration(c.ttlSeconds) * time.Second, Now: func() time.Time { return b.now }}
	var err error
	if b.plain, err = lease.Open(root, &opts); err != nil {
		return nil, err
	}
	opts.FS = b.trace
	if b.traced, err = lease.Open(root, &opts); err != nil {
		return nil, err
	}
	for i := range c.records {
		id, err := lease.ParseID(fmt.Sprintf("%08x%056x", i%active, i))
		if err != nil {
			return nil, err
		}
		payload := fmt.Appendf(nil, `{"sequence":%d}`, i)
		if b.held[id], err = b.plain.Claim(ctx, id, payload, lease.Holder{Owner: "micro", Worker: i}); err != nil {
			return nil, err
		}
		b.ids = append(b.ids, id)
	}
	return b, nil
}

func (b *bench) close() error { return errors.Join(b.plain.Close(), b.traced.Close()) }

// pass renews every record once and fails unless all were renewed.
func (b *bench) pass(ctx context.Context, t *lease.Table, side string) error {
	b.now = b.now.Add(time.Second)
	if side == raw.Scalar {
		for _, id := range b.ids {
			if err := t.Heartbeat(ctx, id, b.held[id]); err != nil {
				return err
			}
		}
		return nil
	}
	result, err := t.HeartbeatMany(ctx, b.held)
	if err != nil {
		return err
	}
	if len(result.Renewed) != len(b.ids) {
		return fmt.Errorf("a batch renewed %d of %d records", len(result.Renewed), len(b.ids))
	}
	return nil
}

// timed adds the time of one pass.
func (b *bench) timed(ctx context.Context, side string, sum *int64) error {
	start := time.Now()
	err := b.pass(ctx, b.plain, side)
	*sum += time.Since(start).Nanoseconds()
	return err
}

func (b *bench) measure(ctx context.Context, c config, rng *rand.Rand) error {
	for range c.warmUp {
		for _, side := range []string{raw.Scalar, raw.Batch} {
			if err := b.pass(ctx, b.plain, side); err != nil {
				return err
			}
		}
	}
	var order [2]bool // for each kind: whether a goes first; drawn in even rounds, flipped in odd ones
	for round := range c.rounds {
		for k, kind := range []string{raw.AB, raw.AA} {
			if order[k] = !order[k]; round%2 == 0 {
				order[k] = rng.IntN(2) == 0
			}
			if err := b.round(ctx, kind, round, order[k]); err != nil {
				return err
			}
		}
		for _, side := range []string{raw.Scalar, raw.Batch} {
			if err := b.tracedPass(ctx, round, side); err != nil {
				return err
			}
		}
	}
	return nil
}

// round alternates the sides pass by pass and flips the order each time, so that whatever lasts longer than two passes,
// such as another program's burst of writes, falls on both sides alike. Garbage is collected before and not in between.
func (b *bench) round(ctx context.Context, kind string, round int, aFirst bool) error {
	r := raw.Round{Active: b.active, Kind: kind, Round: round, First: "b"}
	a := raw.Scalar
	if kind == raw.AA {
		a = raw.Batch
	}
	runs := []struct {
		side string
		sum  *int64
	}{{raw.Batch, &r.B}, {a, &r.A}}
	if aFirst {
		r.First = "a"
		runs[0], runs[1] = runs[1], runs[0]
	}
	runtime.GC()
	for range b.repeat {
		for _, run := range runs {
			if err := b.timed(ctx, run.side, run.sum); err != nil {
				return err
			}
		}
		runs[0], runs[1] = runs[1], runs[0]
	}
	r.A, r.B = r.A/int64(b.repeat), r.B/int64(b.repeat)
	b.rounds = append(b.rounds, r)
	return nil
}

// tracedPass measures what the cost model is made of: the time in writing and syncing contents, and in directory syncs.
func (b *bench) tracedPass(ctx context.Context, round int, side string) error {
	runtime.GC()
	b.trace.Reset()
	start := time.Now()
	if err := b.pass(ctx, b.traced, side); err != nil {
		return err
	}
	p := raw.Pass{Active: b.active, Round: round, Side: side, Records: len(b.ids), Wall: time.Since(start).Nanoseconds()}
	for _, e := range b.trace.Events() {
		if e.Err != nil {
			continue
		}
		took := e.Took.Nanoseconds()
		switch e.Op {
		case vfs.OpWrite, vfs.OpWriteAt:
			p.File += took
		case vfs.OpSync, vfs.OpDatasync:
			p.File += took
			p.FileSyncs++
			b.syncs = append(b.syncs, raw.Sync{Active: b.active, Side: side, Kind: "file", Took: took})
		case vfs.OpSyncDir:
			p.Dir += took
			p.DirSyncs++
			b.syncs = append(b.syncs, raw.Sync{Active: b.active, Side: side, Kind: "dir", Took: took})
		case vfs.OpRename:
			p.Rename++
		}
	}
	b.passes = append(b.passes, p)
	return nil
}

// count runs one pass of each side between marks that strace can see: an access(2) of a name that can't exist.
func (b *bench) count(ctx context.Context) error {
	for _, side := range []string{raw.Scalar, raw.Batch} {
		mark(fmt.Sprintf("begin:%d:%s", b.active, side))
		if err := b.pass(ctx, b.plain, side); err != nil {
			return err
		}
		mark(fmt.Sprintf("end:%d:%s", b.active, side))
	}
	return nil
}

// mark has no result: the name does not exist, and that it was asked for is all that matters.
func mark(text string) { _ = unix.Access("/shardlease-mark/"+text, unix.F_OK) }
