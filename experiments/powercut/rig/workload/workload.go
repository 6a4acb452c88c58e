// Package workload runs the real lease table through claims, batched renewals, commits, completions and abandons, and says in the
// disk's log what it starts and what was acknowledged to it. Check is its counterpart after the power cut.
package workload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"shardlease/experiments/powercut/rig/history"
	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/lease"
)

// Config is one workload; the same one makes the same calls.
type Config struct {
	Root    string // on the disk
	Seed    uint64
	Batches int
	Items   int
	Shards  int
	Twin    string // "" is the product; the names of Twins are broken on purpose
}

const ttl = 1000 * time.Hour // longer than any workload: nothing lapses

func open(c Config, fsys vfs.FS, now func() time.Time) (*lease.Table, error) {
	return lease.Open(filepath.Join(c.Root, "leases"), &lease.Options{Shards: c.Shards, TTL: ttl, Now: now, FS: fsys})
}

func itemID(i int) lease.ID { return lease.SumID(fmt.Appendf(nil, "item-%d", i)) }

func publicName(c Config, i int) string { return filepath.Join(c.Root, "public", itemID(i).String()) }

func publicContent(i int) []byte { return bytes.Repeat(fmt.Appendf(nil, "result of %d\n", i), 40) }

// runner is a workload under way.
type runner struct {
	c      Config
	fsys   vfs.FS
	mark   func(history.Note) error
	table  *lease.Table
	rng    *rand.Rand
	n      int64 // number of the operation under way
	states map[int]history.State
	tokens map[int]lease.Token
}

// Run runs the workload. mark must return only when the note is in the disk's log. Setting up (the root, the layout) is not marked.
func Run(ctx context.Context, c Config, mark func(history.Note) error) error {
	fsys, err := Twin(c.Twin)
	if err != nil {
		return err
	}
	r := &runner{c: c, fsys: fsys, mark: mark, rng: rand.New(rand.NewPCG(c.Seed, 0)),
		states: map[int]history.State{}, tokens: map[int]lease.Token{}}
	if err := setUp(c); err != nil {
		return err
	}
	if r.table, err = open(c, fsys, func() time.Time { return history.Instant(r.n) }); err != nil {
		return err
	}
	defer r.table.Close()
	for range c.Batches {
		if err := r.step(ctx); err != nil {
			return fmt.Errorf("operation %d: %w", r.n, err)
		}
	}
	return nil
}

// setUp makes the directories and pins the layout on the unbroken file system, so that a twin is judged by its operations alone.
func setUp(c Config) error {
	if err := groupcommit.MkdirAll(vfs.OS, filepath.Join(c.Root, "public"), 0o700); err != nil {
		return err
	}
	t, err := open(c, vfs.OS, func() time.Time { return history.Epoch })
	if err != nil {
		return err
	}
	return t.Close()
}

// do marks, runs and acknowledges one operation.
func (r *runner) do(sets map[int]history.State, op func() error) error {
	if err := r.mark(history.Note{N: r.n, Sets: sets}); err != nil {
		return err
	}
	if err := op(); err != nil {
		return err
	}
	maps.Copy(r.states, sets)
	return r.mark(history.Note{N: r.n, Acked: true, Sets: sets})
}

// step is one batch: some claims, one renewal of everything held, and now and then a commit, a completion or an abandon.
func (r *runner) step(ctx context.Context) error {
	for range 1 + r.rng.IntN(2) {
		if err := r.claim(ctx, r.rng.IntN(r.c.Items)); err != nil {
			return err
		}
	}
	if err := r.renew(ctx); err != nil {
		return err
	}
	held := r.with("leased")
	if len(held) == 0 || r.rng.IntN(3) > 0 {
		return nil
	}
	item := held[r.rng.IntN(len(held))]
	if r.rng.IntN(2) == 0 {
		return r.abandon(ctx, item)
	}
	return r.commit(ctx, item)
}

func (r *runner) with(status ...string) []int {
	var items []int
	for i, s := range r.states {
		if slices.Contains(status, s.Status) {
			items = append(items, i)
		}
	}
	slices.Sort(items)
	return items
}

func (r *runner) claim(ctx context.Context, item int) error {
	s := r.states[item]
	if s.Status != "" && s.Status != "abandoned" {
		return nil
	}
	r.n++
	want := history.State{Status: "leased", Fence: s.Fence + 1, Beat: r.n}
	return r.do(map[int]history.State{item: want}, func() error {
		tok, err := r.table.Claim(ctx, itemID(item), json.RawMessage(fmt.Sprintf(`{"item":%d}`, item)), lease.Holder{Owner: "workload"})
		if err == nil && tok.Fence != want.Fence {
			err = fmt.Errorf("fence %d, expected %d", tok.Fence, want.Fence)
		}
		r.tokens[item] = tok
		return err
	})
}

func (r *runner) renew(ctx context.Context) error {
	r.n++
	sets, held := map[int]history.State{}, map[lease.ID]lease.Token{}
	for _, i := range r.with("leased", "committing") {
		s := r.states[i]
		s.Beat = r.n
		sets[i] = s
		held[itemID(i)] = r.tokens[i]
	}
	return r.do(sets, func() error {
		b, err := r.table.HeartbeatMany(ctx, held)
		if err == nil && len(b.Renewed) != len(held) {
			err = fmt.Errorf("renewed %d of %d", len(b.Renewed), len(held))
		}
		return err
	})
}

func (r *runner) abandon(ctx context.Context, item int) error {
	r.n++
	s := r.states[item]
	s.Status = "abandoned"
	return r.do(map[int]history.State{item: s}, func() error { return r.table.Abandon(ctx, itemID(item), r.tokens[item]) })
}

func (r *runner) commit(ctx context.Context, item int) error {
	r.n++
	s := r.states[item]
	s.Status, s.Beat = "committing", r.n
	err := r.do(map[int]history.State{item: s}, func() error {
		return r.table.BeginCommit(ctx, itemID(item), r.tokens[item], json.RawMessage(fmt.Sprintf(`{"item":%d}`, item)))
	})
	if err != nil || r.rng.IntN(4) == 0 { // some stay committing
		return err
	}
	r.n++
	s.Status = "done"
	return r.do(map[int]history.State{item: s}, func() error {
		_, err := r.table.Complete(ctx, itemID(item), r.tokens[item], func(context.Context, json.RawMessage) error {
			return groupcommit.WriteFile(r.fsys, publicName(r.c, item), publicContent(item), 0o600)
		})
		return err
	})
}

// Check reads the table on a disk that came back from a power cut, and reports everything that the history does not allow.
func Check(ctx context.Context, c Config, expected map[int]*history.Allowed) error {
	last := history.Epoch
	t, err := open(c, vfs.OS, func() time.Time { return last })
	if err != nil {
		return fmt.Errorf("open the table: %w", err)
	}
	defer t.Close()
	var faults []error
	for rec, err := range t.Records(ctx) {
		if err != nil {
			faults = append(faults, err)
		} else if rec.Updated.After(last) {
			last = rec.Updated
		}
	}
	for _, item := range slices.Sorted(maps.Keys(expected)) {
		found, err := lookUp(t, item)
		if err != nil {
			faults = append(faults, fmt.Errorf("item %d: %w", item, err))
			continue
		}
		if !expected[item].Has(found) {
			faults = append(faults, fmt.Errorf("item %d: found %v; acknowledged was %v, started since %v",
				item, found, expected[item].Acked, expected[item].Started))
		}
		if found.Status == "done" {
			got, err := vfs.ReadFile(vfs.OS, publicName(c, item), 1<<20)
			if err != nil || !bytes.Equal(got, publicContent(item)) {
				faults = append(faults, fmt.Errorf("item %d is done, but its result is not there whole: %w", item, err))
			}
		}
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	return goOn(ctx, t)
}

func lookUp(t *lease.Table, item int) (history.State, error) {
	rec, err := t.Lookup(itemID(item))
	if errors.Is(err, fs.ErrNotExist) {
		return history.State{}, nil
	}
	if err != nil {
		return history.State{}, err
	}
	// Which operation renewed it last matters only while somebody holds it.
	return history.State{Status: string(rec.Status), Fence: rec.Token.Fence, Beat: int64(rec.Updated.Sub(history.Epoch) / time.Second)}, nil
}

// goOn shows that the table still works: a fresh item is claimed, renewed and abandoned.
func goOn(ctx context.Context, t *lease.Table) error {
	id := lease.SumID([]byte("after the cut"))
	tok, err := t.Claim(ctx, id, nil, lease.Holder{Owner: "after"})
	if err != nil {
		return fmt.Errorf("claim after the cut: %w", err)
	}
	if err := t.Heartbeat(ctx, id, tok); err != nil {
		return fmt.Errorf("renew after the cut: %w", err)
	}
	if err := t.Abandon(ctx, id, tok); err != nil {
		return fmt.Errorf("abandon after the cut: %w", err)
	}
	return nil
}
