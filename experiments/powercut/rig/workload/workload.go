// Package workload runs the real lease tables through claims, batched renewals, commits, completions, abandons and target groups,
// from several goroutines, and says in the disk's log what it starts and what was acknowledged to it. Check is its
// counterpart after the power cut.
package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"sync"
	"time"

	"shardlease/experiments/powercut/rig/history"
	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/lease"
)

// Config is one workload. Each lane makes the same calls whenever it gets the same answers; how lanes interleave is the
// scheduler's business, and the recording keeps it.
type Config struct {
	Root    string // on the disk
	Seed    uint64
	Batches int // steps of each lane
	Items   int // work items; item i belongs to lane i mod Lanes
	Targets int // branch targets of each lane
	Lanes   int // goroutines, each with a table of its own on the same root, as processes would have
	Shards  int
	// Strategy is how the tables make contents durable.
	Strategy groupcommit.Strategy
	OneFlush bool   // renew all leases of a lane with one flush
	Twin     string // "" is the product; the other names are broken on purpose
	First    int64  // operations are numbered from here: above those of an earlier run on the same disk
	Survive  bool   // the disk fails: a failed operation is not the end, and what is found by reading is worked with
}

// Default is the workload of the experiment, without its scale.
var Default = Config{Seed: 1, Batches: 12, Items: 12, Targets: 6, Lanes: 2, Shards: 4}

const ttl = 1000 * time.Hour // longer than any workload: nothing lapses

// Items of the histories: work items count from 0, those of the second root and the targets from these bases.
const (
	lateBase   = 1000
	targetBase = 2000
	lateItems  = 4
)

func openTable(c Config, name string, fsys vfs.FS, now func() time.Time) (*lease.Table, error) {
	o := options(c, fsys, now)
	if c.OneFlush {
		o.Renewals = lease.OneFlush
	}
	return lease.Open(filepath.Join(c.Root, name), o)
}

func openTargets(c Config, fsys vfs.FS, now func() time.Time) (*lease.TargetTable, error) {
	return lease.OpenTargets(filepath.Join(c.Root, "targets"), options(c, fsys, now))
}

func options(c Config, fsys vfs.FS, now func() time.Time) *lease.Options {
	return &lease.Options{Shards: c.Shards, TTL: ttl, Strategy: c.Strategy, Now: now, FS: fsys}
}

func itemID(i int) lease.ID { return lease.SumID(fmt.Appendf(nil, "item-%d", i)) }

// target is never 0, which is no branch target.
func target(item int) uint64 { return uint64(item - targetBase + 1) }

func publicName(c Config, i int) string { return filepath.Join(c.Root, "public", itemID(i).String()) }

func publicContent(i int) []byte { return bytes.Repeat(fmt.Appendf(nil, "result of %d\n", i), 40) }

// Outcome is what a workload tells when it ends.
type Outcome struct {
	Acked  int            `json:"acked"`
	Failed int            `json:"failed"` // operations that returned an error of the disk
	Errors map[string]int `json:"errors"` // error number -> how often it was the cause
	Dead   bool           `json:"dead"`   // the file system refuses everything since a failure
}

func (o *Outcome) add(p Outcome) {
	o.Acked += p.Acked
	o.Failed += p.Failed
	o.Dead = o.Dead || p.Dead
	for name, n := range p.Errors {
		if o.Errors == nil {
			o.Errors = map[string]int{}
		}
		o.Errors[name] += n
	}
}

// Run runs the workload and returns when all its lanes have ended. mark must return only when the note is in the disk's log, and be
// safe for concurrent use. Setting up (the roots, the layouts) is not marked. What an earlier run, or a power cut, has left on the
// disk is taken over first.
func Run(ctx context.Context, c Config, mark func(history.Note) error) (Outcome, error) {
	fsys, err := Twin(c.Twin)
	if err != nil {
		return Outcome{}, err
	}
	if err := setUp(c); err != nil {
		if c.Survive && diskError(err) != "" {
			return Outcome{Failed: 1, Errors: map[string]int{diskError(err): 1}, Dead: true}, nil
		}
		return Outcome{}, err
	}
	var wg sync.WaitGroup
	outcomes, errs := make([]Outcome, c.Lanes), make([]error, c.Lanes)
	for i := range c.Lanes {
		wg.Go(func() {
			l := newLane(c, i, fsys, mark)
			errs[i] = l.run(ctx)
			outcomes[i] = l.outcome
		})
	}
	wg.Wait()
	var sum Outcome
	for _, o := range outcomes {
		sum.add(o)
	}
	return sum, errors.Join(errs...)
}

// setUp makes the directories and pins the layouts on the unbroken file system, so that a twin is judged by its operations alone.
func setUp(c Config) error {
	if err := groupcommit.MkdirAll(vfs.OS, filepath.Join(c.Root, "public"), 0o700); err != nil {
		return err
	}
	now := func() time.Time { return history.Epoch }
	t, err := openTable(c, "leases", vfs.OS, now)
	if err != nil {
		return err
	}
	g, err := openTargets(c, vfs.OS, now)
	if err != nil {
		return err
	}
	return errors.Join(t.Close(), g.Close())
}

// do marks, runs and acknowledges one operation. With Survive a failure of the disk is counted, and the items are read again.
func (l *lane) do(sets map[int]history.State, op func() error) error {
	if err := l.mark(history.Note{N: l.n, Sets: sets}); err != nil {
		return err
	}
	err := op()
	if err == nil {
		maps.Copy(l.states, sets)
		l.outcome.Acked++
		l.inARow = 0
		return l.mark(history.Note{N: l.n, Acked: true, Sets: sets})
	}
	if !l.c.Survive || diskError(err) == "" {
		return fmt.Errorf("operation %d: %w", l.n, err)
	}
	l.outcome.add(Outcome{Failed: 1, Errors: map[string]int{diskError(err): 1}})
	if l.inARow++; l.inARow >= 4 {
		return errDead
	}
	return l.lookAgain(sets)
}

// errDead ends a lane whose file system refuses everything.
var errDead = errors.New("the file system refuses everything")

// next begins a new operation and returns its number.
func (l *lane) next() int64 {
	l.n += int64(l.c.Lanes)
	return l.n
}
