package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	"shardlease/experiments/powercut/rig/history"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/lease"
)

// tables are those found on a disk. late is nil if nothing is expected of it.
type tables struct {
	work, late *lease.Table
	targets    *lease.TargetTable
	now        time.Time
}

func openFound(c Config, expected map[int]*history.Allowed) (*tables, error) {
	t := &tables{}
	now := func() time.Time { return t.now }
	t.now = history.Instant(maxOperations).Add(ttl)
	var err error
	if t.work, err = openTable(c, "leases", vfs.OS, now); err != nil {
		return nil, err
	}
	if t.targets, err = openTargets(c, vfs.OS, now); err != nil {
		return nil, errors.Join(err, t.close())
	}
	for item := range expected {
		if item >= lateBase && item < targetBase && t.late == nil {
			if t.late, err = openTable(c, "late", vfs.OS, now); err != nil {
				return nil, errors.Join(err, t.close())
			}
		}
	}
	return t, nil
}

func (t *tables) close() error {
	err := t.work.Close()
	if t.late != nil {
		err = errors.Join(err, t.late.Close())
	}
	if t.targets != nil {
		err = errors.Join(err, t.targets.Close())
	}
	return err
}

// Look reads the tables on a disk that came back from a power cut, and reports everything that the history does not allow. It writes
// nothing but what opening a table writes.
func Look(ctx context.Context, c Config, expected map[int]*history.Allowed) error {
	return check(ctx, c, expected, func(*tables) error { return nil })
}

// Check is Look that goes on to use the tables: they must still work.
func Check(ctx context.Context, c Config, expected map[int]*history.Allowed) error {
	return check(ctx, c, expected, func(t *tables) error {
		return errors.Join(goOn(ctx, t.work), checkGroups(ctx, t.targets))
	})
}

func check(ctx context.Context, c Config, expected map[int]*history.Allowed, use func(*tables) error) error {
	t, err := openFound(c, expected)
	if err != nil {
		return fmt.Errorf("open the tables: %w", err)
	}
	defer t.close()
	found, faults := t.read(ctx, expected)
	for _, item := range slices.Sorted(maps.Keys(expected)) {
		s := found[item]
		if !expected[item].Has(s) {
			faults = append(faults, fmt.Errorf("item %d: found %v; acknowledged was %v, started since %v",
				item, s, expected[item].Acked, expected[item].Started))
		}
		if s.Status == "done" {
			got, err := vfs.ReadFile(vfs.OS, publicName(c, item), 1<<20)
			if err != nil || !bytes.Equal(got, publicContent(item)) {
				faults = append(faults, fmt.Errorf("item %d is done, but its result is not there whole: %w", item, err))
			}
		}
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	return use(t)
}

// read finds the state of each expected item, and everything that can't be read.
func (t *tables) read(ctx context.Context, expected map[int]*history.Allowed) (found map[int]history.State, faults []error) {
	items := map[lease.ID]int{}
	for item := range expected {
		if item >= targetBase {
			items[lease.TargetID(target(item))] = item
		} else {
			items[itemID(item)] = item
		}
	}
	// The tables are read at an instant when each record alone would have lapsed: only then is the last renewal of its session looked
	// at. Afterwards the clock goes back to where the workload has left it, and leases are alive.
	last := history.Epoch
	defer func() { t.now = last }()
	found = map[int]history.State{}
	see := func(rec lease.Record, err error) bool {
		if err != nil {
			faults = append(faults, err)
			return true
		}
		s := history.State{Status: string(rec.Status), Fence: rec.Token.Fence}
		if rec.Status == lease.Leased {
			s.Beat = lastBeat(rec)
			if at := history.Instant(s.Beat); at.After(last) {
				last = at
			}
		}
		if item, ok := items[rec.ID]; ok {
			found[item] = s
		}
		return true
	}
	t.work.Records(ctx)(see)
	t.targets.Records(ctx)(see)
	if t.late != nil {
		t.late.Records(ctx)(see)
	}
	return found, faults
}

// maxOperations is above the number of any operation.
const maxOperations = 1 << 20

// lastBeat is the operation until whose instant plus the TTL the lease lives, whatever made it live so long: its record or the
// renewal of a whole session.
func lastBeat(rec lease.Record) int64 {
	return int64(sort.Search(maxOperations, func(n int) bool { return rec.Lapsed(history.Instant(int64(n)).Add(ttl), ttl) }))
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
