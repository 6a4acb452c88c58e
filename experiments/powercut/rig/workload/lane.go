package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"shardlease/experiments/powercut/rig/history"
	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/lease"
)

// lane is one goroutine of a workload, with items that no other lane touches, so that what may be found of an item follows from
// the marks of its lane alone.
type lane struct {
	c    Config
	id   int
	fsys vfs.FS
	mark func(history.Note) error
	rng  *rand.Rand
	n    int64 // number of the operation under way; those of different lanes differ

	table, late *lease.Table // late is nil until its root is made
	targets     *lease.TargetTable
	states      map[int]history.State
	tokens      map[int]lease.Token
	groups      []heldGroup

	outcome Outcome
	inARow  int // failures
}

func newLane(c Config, id int, fsys vfs.FS, mark func(history.Note) error) *lane {
	return &lane{c: c, id: id, fsys: fsys, mark: mark, rng: rand.New(rand.NewPCG(c.Seed, uint64(id))), n: c.First + int64(id),
		states: map[int]history.State{}, tokens: map[int]lease.Token{}}
}

func (l *lane) now() time.Time { return history.Instant(l.n) }

// run opens the tables, takes over what is there, and makes the steps.
func (l *lane) run(ctx context.Context) error {
	defer l.close()
	err := l.reopen()
	if err == nil {
		err = l.adopt(ctx)
	}
	for i := 0; err == nil && i < l.c.Batches; i++ {
		if l.id == 0 && i == l.c.Batches/2 && l.late == nil {
			err = l.openLate()
		}
		if err == nil && i > 0 && l.rng.IntN(5) == 0 {
			err = l.reopen() // as a restarted process would
		}
		if err == nil {
			err = l.step(ctx)
		}
	}
	if l.c.Survive && (errors.Is(err, errDead) || err != nil && diskError(err) != "") {
		l.outcome.Dead = true
		return nil
	}
	return err
}

func (l *lane) close() {
	for _, t := range []*lease.Table{l.table, l.late} {
		if t != nil {
			t.Close()
		}
	}
	if l.targets != nil {
		l.targets.Close()
	}
}

func (l *lane) reopen() (err error) {
	l.close()
	if l.table, err = openTable(l.c, "leases", l.fsys, l.now); err != nil {
		return err
	}
	if l.targets, err = openTargets(l.c, l.fsys, l.now); err != nil {
		return err
	}
	if l.id > 0 {
		return nil
	}
	if _, err := os.Stat(filepath.Join(l.c.Root, "late")); err != nil {
		return nil // not yet made
	}
	return l.openLate()
}

// openLate makes a second root, with directories that are younger than the records next to them.
func (l *lane) openLate() (err error) {
	l.late, err = openTable(l.c, "late", l.fsys, l.now)
	return err
}

// items are the work items of this lane that have a table now.
func (l *lane) items() []int {
	var own []int
	for i := l.id; i < l.c.Items; i += l.c.Lanes {
		own = append(own, i)
	}
	if l.late != nil {
		for i := range lateItems {
			own = append(own, lateBase+i)
		}
	}
	return own
}

func (l *lane) tableOf(item int) *lease.Table {
	if item >= lateBase {
		return l.late
	}
	return l.table
}

// adopt reads what is on the disk and takes the leases over, each as an operation of its own.
func (l *lane) adopt(ctx context.Context) error {
	for _, item := range l.items() {
		if err := l.look(item); err != nil {
			return err
		}
		if l.states[item].Status == "leased" {
			if err := l.take(ctx, item, l.tableOf(item).TakeOver); err != nil {
				return err
			}
		}
	}
	return l.adoptGroups()
}

// look makes the lane's idea of an item what the table says of it.
func (l *lane) look(item int) error {
	found, tok, err := lookUp(l.tableOf(item).Lookup(itemID(item)))
	if err == nil {
		l.states[item], l.tokens[item] = found, tok
	}
	return err
}

// lookAgain is look for the items of a failed operation.
func (l *lane) lookAgain(sets map[int]history.State) error {
	groups := false
	for item := range sets {
		if item >= targetBase {
			groups = true
			continue
		}
		if err := l.look(item); err != nil {
			return err
		}
	}
	if groups {
		return l.adoptGroups()
	}
	return nil
}

func lookUp(rec lease.Record, err error) (history.State, lease.Token, error) {
	if errors.Is(err, fs.ErrNotExist) {
		return history.State{}, lease.Token{}, nil
	}
	if err != nil {
		return history.State{}, lease.Token{}, err
	}
	s := history.State{Status: string(rec.Status), Fence: rec.Token.Fence}
	if rec.Status == lease.Leased { // in any other state it is of no interest
		s.Beat = int64(rec.Updated.Sub(history.Epoch) / time.Second)
	}
	return s, rec.Token, nil
}

// step is one batch: some claims, one renewal of everything held, something with a group of targets, and now and then a commit, a
// completion or an abandon.
func (l *lane) step(ctx context.Context) error {
	own := l.items()
	for range 1 + l.rng.IntN(2) {
		item := own[l.rng.IntN(len(own))]
		if s := l.states[item].Status; s == "" || s == "abandoned" {
			if err := l.take(ctx, item, l.tableOf(item).Claim); err != nil {
				return err
			}
		}
	}
	if err := l.renew(ctx); err != nil {
		return err
	}
	if err := l.stepGroups(ctx); err != nil {
		return err
	}
	held := l.with("leased")
	if len(held) == 0 || l.rng.IntN(3) > 0 {
		return nil
	}
	item := held[l.rng.IntN(len(held))]
	if l.rng.IntN(2) == 0 {
		return l.abandon(ctx, item)
	}
	return l.commit(ctx, item)
}

// with returns the work items in one of the states.
func (l *lane) with(status ...string) []int {
	var items []int
	for i, s := range l.states {
		if i < targetBase && slices.Contains(status, s.Status) {
			items = append(items, i)
		}
	}
	slices.Sort(items)
	return items
}

type claimer func(context.Context, lease.ID, json.RawMessage, lease.Holder) (lease.Token, error)

func (l *lane) take(ctx context.Context, item int, claim claimer) error {
	want := history.State{Status: "leased", Fence: l.states[item].Fence + 1, Beat: l.next()}
	return l.do(map[int]history.State{item: want}, func() error {
		tok, err := claim(ctx, itemID(item), json.RawMessage(fmt.Sprintf(`{"item":%d}`, item)), lease.Holder{Owner: "workload"})
		if err != nil {
			return err
		}
		if tok.Fence != want.Fence {
			return fmt.Errorf("item %d: fence %d, expected %d", item, tok.Fence, want.Fence)
		}
		l.tokens[item] = tok
		return nil
	})
}

// renew renews everything held, one batch for each table.
func (l *lane) renew(ctx context.Context) error {
	for _, t := range []*lease.Table{l.table, l.late} {
		beat := l.next()
		sets, held := map[int]history.State{}, map[lease.ID]lease.Token{}
		for _, i := range l.with("leased", "committing") {
			if l.tableOf(i) == t {
				s := l.states[i]
				if s.Status == "leased" {
					s.Beat = beat
				}
				sets[i] = s
				held[itemID(i)] = l.tokens[i]
			}
		}
		if len(held) == 0 {
			continue
		}
		err := l.do(sets, func() error {
			b, err := t.HeartbeatMany(ctx, held)
			if err == nil && len(b.Renewed) != len(held) {
				err = fmt.Errorf("renewed %d of %d", len(b.Renewed), len(held))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *lane) abandon(ctx context.Context, item int) error {
	l.next()
	s := history.State{Status: "abandoned", Fence: l.states[item].Fence}
	return l.do(map[int]history.State{item: s}, func() error { return l.tableOf(item).Abandon(ctx, itemID(item), l.tokens[item]) })
}

func (l *lane) commit(ctx context.Context, item int) error {
	l.next()
	s := history.State{Status: "committing", Fence: l.states[item].Fence}
	err := l.do(map[int]history.State{item: s}, func() error {
		return l.tableOf(item).BeginCommit(ctx, itemID(item), l.tokens[item], json.RawMessage(fmt.Sprintf(`{"item":%d}`, item)))
	})
	if err != nil || l.states[item] != s || l.rng.IntN(4) == 0 { // some stay committing
		return err
	}
	l.next()
	s.Status = "done"
	return l.do(map[int]history.State{item: s}, func() error {
		_, err := l.tableOf(item).Complete(ctx, itemID(item), l.tokens[item], func(context.Context, json.RawMessage) error {
			return groupcommit.WriteFile(l.fsys, publicName(l.c, item), publicContent(item), 0o600)
		})
		return err
	})
}
