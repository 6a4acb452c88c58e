package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"shardlease/experiments/powercut/rig/history"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/lease"
)

// tables are those found on a disk. late is nil if nothing is expected of it.
type tables struct {
	work, late *lease.Table
	targets    *lease.TargetTable
	last       time.Time // a clock that has seen what the records have seen
}

func openFound(c Config, expected map[int]*history.Allowed) (*tables, error) {
	t := &tables{last: history.Epoch}
	now := func() time.Time { return t.last }
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

func (t *tables) lookUp(item int) (history.State, error) {
	var s history.State
	var err error
	switch {
	case item >= targetBase:
		s, _, err = lookUp(t.targets.Lookup(target(item)))
	case item >= lateBase:
		s, _, err = lookUp(t.late.Lookup(itemID(item)))
	default:
		s, _, err = lookUp(t.work.Lookup(itemID(item)))
	}
	return s, err
}

// Check reads the tables on a disk that came back from a power cut, and reports everything that the history does not allow.
func Check(ctx context.Context, c Config, expected map[int]*history.Allowed) error {
	t, err := openFound(c, expected)
	if err != nil {
		return fmt.Errorf("open the tables: %w", err)
	}
	defer t.close()
	var faults []error
	see := func(rec lease.Record, err error) {
		if err != nil {
			faults = append(faults, err)
		} else if rec.Updated.After(t.last) {
			t.last = rec.Updated
		}
	}
	for rec, err := range t.work.Records(ctx) {
		see(rec, err)
	}
	for rec, err := range t.targets.Records(ctx) {
		see(rec, err)
	}
	for _, item := range slices.Sorted(maps.Keys(expected)) {
		found, err := t.lookUp(item)
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
	return errors.Join(goOn(ctx, t.work), checkGroups(ctx, t.targets))
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
