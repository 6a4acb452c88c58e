package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"sync"
)

// Records walks over all records by shard, then ID, without locks: each record is whole, but the set is of no single instant.
// A record that can't be trusted or read is yielded with its ID and its error (ErrCorrupt, or the I/O error); a shard that
// can't be listed, and the end of ctx, with a zero Record and the error. One that vanishes meanwhile is skipped.
func (t *Table) Records(ctx context.Context) iter.Seq2[Record, error] {
	return t.s.records(ctx, nil)
}

// records is Records without the IDs that skip holds.
func (s *store) records(ctx context.Context, skip func(ID) bool) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if err := s.enter(ctx); err != nil {
			yield(Record{}, err)
			return
		}
		known := map[sessionID]beats{} // of one walk: each beat file is read once
		for _, dir := range s.dirs {
			entries, err := s.fs.ReadDir(dir)
			if err != nil { // missing is no excuse: all were made before the layout
				if !yield(Record{}, hideAbsence(fmt.Errorf("lease: list shard %s: %w", dir, err))) {
					return
				}
				continue
			}
			for _, e := range entries {
				id, ok := recordID(e.Name())
				if !ok || skip != nil && skip(id) {
					continue
				}
				if err := ctx.Err(); err != nil {
					yield(Record{}, err)
					return
				}
				r, _, err := s.read(id, nil)
				if errors.Is(err, fs.ErrNotExist) {
					continue
				}
				if err == nil {
					err = s.findBeat(&r, known)
				}
				if err != nil {
					r = Record{ID: id}
				}
				if !yield(r, err) {
					return
				}
			}
		}
	}
}

// recordID reads the ID from a file name. Temp files, and whatever else is not named like a record, are none.
func recordID(name string) (ID, bool) {
	text, ok := strings.CutSuffix(name, recordExt)
	if !ok {
		return ID{}, false
	}
	id, err := ParseID(text)
	return id, err == nil
}

// Expired lists the lapsed leases, which Claim would take over: sorted by (Updated, ID), at most limit if limit is positive. It changes
// nothing. Abandoned records are claimable too but have not expired; Records shows them.
//
// Corrupt records are passed over, since they can't be claimed (Counts counts them). A record or shard that can't be read is an error,
// joined with the others, next to the records that could be read.
func (t *Table) Expired(ctx context.Context, limit int) ([]Record, error) {
	now, err := t.s.now()
	if err != nil {
		return nil, err
	}
	return t.list(ctx, limit, func(r *Record) bool { return r.Lapsed(now, t.s.opts.MaxSkew) })
}

// Committing lists the records being committed, as Expired lists the expired ones. Each has its manifest and token: whoever finds it
// may complete it.
func (t *Table) Committing(ctx context.Context, limit int) ([]Record, error) {
	return t.list(ctx, limit, func(r *Record) bool { return r.Status == Committing })
}

func (t *Table) list(ctx context.Context, limit int, want func(*Record) bool) ([]Record, error) {
	var found []Record
	_, err := t.each(ctx, func(r Record) {
		if want(&r) {
			found = append(found, r)
		}
	}, func() {})
	slices.SortFunc(found, func(a, b Record) int {
		if c := a.Updated.Compare(b.Updated); c != 0 {
			return c
		}
		return compareIDs(a.ID, b.ID)
	})
	if limit > 0 && len(found) > limit {
		found = slices.Clip(found[:limit])
	}
	return found, err
}

// Counts is how many records are in which state. Expired ones are among Leased. Corrupt ones are in no other count.
type Counts struct{ Leased, Expired, Committing, Done, Abandoned, Corrupt int }

// Counts counts the records. If some could not be read, the error says which, and the counts are those of the others.
func (t *Table) Counts(ctx context.Context) (Counts, error) {
	var c Counts
	now, err := t.s.now()
	if err != nil {
		return c, err
	}
	known, err := t.each(ctx, func(r Record) {
		switch r.Status {
		case Leased:
			c.Leased++
			if r.Lapsed(now, t.s.opts.MaxSkew) {
				c.Expired++
			}
		case Committing:
			c.Committing++
		case Done:
			c.Done++
		case Abandoned:
			c.Abandoned++
		}
	}, func() { c.Corrupt++ })
	c.Done += known
	return c, err
}

// each reads all records but those known to be done, which it counts, and joins the errors of those that can't be read.
func (t *Table) each(ctx context.Context, f func(Record), corrupt func()) (known int, err error) {
	var errs []error
	skip := func(id ID) bool {
		if !t.done.has(id) {
			return false
		}
		known++
		return true
	}
	for r, err := range t.s.records(ctx, skip) {
		switch {
		case err == nil:
			f(r)
			if r.Status == Done {
				t.done.add(r.ID)
			}
		case errors.Is(err, ErrCorrupt):
			corrupt()
		default:
			errs = append(errs, err)
		}
	}
	return known, errors.Join(errs...)
}

// doneSet remembers which records are done. They never change again, so the scans of a campaign that has finished most of its work need
// not read them again and again.
type doneSet struct {
	mu  sync.Mutex
	ids map[ID]struct{}
}

func (d *doneSet) has(id ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.ids[id]
	return ok
}

func (d *doneSet) add(id ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ids == nil {
		d.ids = make(map[ID]struct{})
	}
	d.ids[id] = struct{}{}
}
