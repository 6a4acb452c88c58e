package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"shardlease/experiments/scale/raw"
	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/lease"
)

// bench is one case: a table and the leases it holds.
type bench struct {
	raw.Case
	table *lease.Table
	ids   []lease.ID
	held  map[lease.ID]lease.Token

	claiming bool // syncs are left out
	before   lease.Stats

	mu    sync.Mutex
	syncs []interval // of the present call
	files int        // content syncs of the present side
	dirs  int        // barriers of the present side
}

type interval struct {
	directory  bool
	begun, end time.Time
}

const shards = 64

func newBench(ctx context.Context, root string, c raw.Case) (*bench, error) {
	b := &bench{Case: c, held: make(map[lease.ID]lease.Token, c.Records)}
	opts := lease.Options{Shards: shards, TTL: time.Hour}
	switch c.Way {
	case raw.Auto:
		opts.Strategy = groupcommit.Auto
	case raw.OneFlush, raw.OneFlushAgain:
		opts.Renewals = lease.OneFlush
	}
	opts.FS = vfs.Intercept(vfs.OS, b.timed)
	var err error
	if b.table, err = lease.Open(root, &opts); err != nil {
		return nil, err
	}
	// Claims are not measured; with their syncs a hundred thousand of them would take minutes.
	b.claiming = true
	for i := range c.Records {
		id, err := lease.ParseID(fmt.Sprintf("%08x%056x", i%c.Active, i))
		if err != nil {
			return nil, err
		}
		if b.held[id], err = b.table.Claim(ctx, id, nil, lease.Holder{Owner: "scale"}); err != nil {
			return nil, err
		}
		b.ids = append(b.ids, id)
	}
	b.claiming = false
	return b, nil
}

func (b *bench) close() {
	if err := b.table.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "workload: close", b.Name(), err)
	}
}

// timed notes when each sync began and ended.
func (b *bench) timed(c *vfs.Call, do func() error) error {
	switch c.Op {
	case vfs.OpSync, vfs.OpDatasync, vfs.OpSyncFS, vfs.OpSyncDir:
	default:
		return do()
	}
	if b.claiming {
		return nil
	}
	i := interval{directory: c.Op == vfs.OpSyncDir, begun: time.Now()}
	err := do()
	i.end = time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.syncs = append(b.syncs, i)
	if i.directory {
		b.dirs++
	} else {
		b.files++
	}
	return err
}

// settle writes back what the set-up has left, or the first timed flushes would pay for it.
func settle(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(d.Fd())), d.Close())
}

// side times the case's passes.
func (b *bench) side(ctx context.Context) (raw.Side, error) {
	s := raw.Side{Way: b.Way, Records: b.Records, Active: b.Active}
	runtime.GC() // or this side would pay for the garbage of the others
	b.files, b.dirs = 0, 0
	cpu, err := cpuTime()
	if err != nil {
		return s, err
	}
	start := time.Now()
	for range b.Passes {
		if err := b.pass(ctx, &s); err != nil {
			return s, err
		}
	}
	s.PassNS = time.Since(start).Nanoseconds() / int64(b.Passes)
	end, err := cpuTime()
	s.CPUNS = (end - cpu) / int64(b.Passes)
	s.FileSyncs, s.DirSyncs = b.files, b.dirs
	return s, err
}

func (b *bench) pass(ctx context.Context, s *raw.Side) error {
	if b.Way != raw.Scalar {
		begun := time.Now()
		batch, err := b.table.HeartbeatMany(ctx, b.held)
		if err == nil && len(batch.Renewed) != b.Records {
			err = fmt.Errorf("renewed %d of %d leases", len(batch.Renewed), b.Records)
		}
		s.Renewed += len(batch.Renewed)
		b.note(s, begun)
		return err
	}
	for _, id := range b.ids {
		begun := time.Now()
		if err := b.table.Heartbeat(ctx, id, b.held[id]); err != nil {
			return err
		}
		s.Renewed++
		b.note(s, begun)
	}
	return nil
}

// note ends a call.
func (b *bench) note(s *raw.Side, begun time.Time) {
	if b.Traced {
		s.Calls = append(s.Calls, inTurn(begun, time.Now(), b.syncs))
	}
	b.syncs = b.syncs[:0]
}

// inTurn puts the syncs of a call one behind the other; see raw.Sync.
func inTurn(begun, end time.Time, syncs []interval) raw.Call {
	slices.SortFunc(syncs, func(x, y interval) int { return cmp.Compare(x.begun.Sub(begun), y.begun.Sub(begun)) })
	c := raw.Call{Syncs: make([]raw.Sync, 0, len(syncs))}
	idle := begun
	for _, i := range syncs {
		from := i.begun
		if from.Before(idle) {
			from = idle
		}
		until := i.end
		if until.Before(from) {
			until = from
		}
		c.Syncs = append(c.Syncs, raw.Sync{
			Directory: i.directory, Before: from.Sub(idle).Nanoseconds(), Took: until.Sub(from).Nanoseconds(), Whole: i.end.Sub(i.begun).Nanoseconds(),
		})
		idle = until
	}
	c.After = end.Sub(idle).Nanoseconds()
	return c
}

func (b *bench) totals() raw.Totals {
	before, after := b.before, b.table.Stats()
	return raw.Totals{
		Way: b.Way, Records: b.Records, Active: b.Active, Batches: after.Batches - before.Batches, Renewals: after.Renewals - before.Renewals,
		LockWait: raw.Counted(before.LockWait, after.LockWait), FileSync: raw.Counted(before.FileSync, after.FileSync),
		DirectorySync: raw.Counted(before.DirectorySync, after.DirectorySync),
		BatchRecords:  raw.Counted(before.BatchRecords, after.BatchRecords), BatchShards: raw.Counted(before.BatchShards, after.BatchShards),
	}
}

// cpuTime is the processor time of this process in nanoseconds.
func cpuTime() (int64, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		return 0, fmt.Errorf("processor time: %w", err)
	}
	return t.Nano(), nil
}
