package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"shardlease/pkg/groupcommit"
)

// group is one operation on a group of targets, all locks of which are held.
type group struct {
	s       *store
	targets []uint64      // in lock order
	members []groupMember // likewise
	locks   []io.Closer
	flushed groupcommit.Flushed // of write
}

type groupMember struct {
	target uint64
	id     ID
	old    *Record // nil: no record
	bytes  []byte  // the old file, aliased by old
	data   []byte  // the new file
}

// lockedGroup calls f with all members read and the clock read after that, under all their locks.
func (s *store) lockedGroup(ctx context.Context, targets []uint64, f func(g *group, now time.Time) error) error {
	g, err := s.newGroup(targets)
	if err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer func() {
		for _, l := range slices.Backward(g.locks) {
			l.Close() // the kernel releases the lock even if this fails
		}
	}()
	if err := g.lock(ctx); err != nil {
		return err
	}
	for i := range g.members {
		m := &g.members[i]
		r, raw, err := s.read(m.id, nil)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		m.old, m.bytes = &r, raw
	}
	now, err := s.now()
	if err != nil {
		return err
	}
	return f(g, now)
}

// lock takes the locks in the order of the IDs, the same for all groups, so that no two groups wait for each other. Two members whose lock
// is one and the same (a hash collision) take it once.
func (g *group) lock(ctx context.Context) error {
	type place struct {
		shard int
		key   uint64
	}
	deadline := g.s.lockDeadline()
	taken := make(map[place]bool, len(g.members))
	for _, m := range g.members {
		p := place{g.s.shard(m.id), m.id.lockKey()}
		if taken[p] {
			continue
		}
		l, err := g.s.lock(ctx, m.id, deadline)
		if err != nil {
			return err
		}
		taken[p] = true
		g.locks = append(g.locks, l)
	}
	return nil
}

// free refuses if m belongs to a group that is held.
func (g *group) free(m *groupMember, now time.Time) error {
	_, err := next(m.old, OpClaim, Token{}, now, g.s.opts.MaxSkew)
	if !errors.Is(err, ErrHeld) {
		return err
	}
	whole, werr := g.whole(m.old, now)
	if werr != nil {
		return werr
	}
	if whole {
		return fmt.Errorf("target %d: %w", m.target, err)
	}
	return nil
}

// whole reports whether all targets that r was claimed with still carry its token and none has lapsed.
func (g *group) whole(r *Record, now time.Time) (bool, error) {
	for _, target := range r.Targets {
		id := TargetID(target)
		sibling, err := g.record(id)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return false, nil
		case errors.Is(err, ErrCorrupt): // says nothing: r's own time decides
		case err != nil:
			return false, err
		case sibling.Token != r.Token || sibling.Status != Leased || sibling.Lapsed(now, g.s.opts.MaxSkew):
			return false, nil
		}
	}
	return true, nil
}

func (g *group) record(id ID) (*Record, error) {
	for i := range g.members {
		if m := &g.members[i]; m.id == id {
			if m.old == nil {
				return nil, fs.ErrNotExist
			}
			return m.old, nil
		}
	}
	r, _, err := g.s.read(id, nil)
	return &r, err
}

// owned refuses unless op is possible for m with tok and the group is the one that was claimed.
func (g *group) owned(m *groupMember, op Op, tok Token, now time.Time) error {
	if _, err := next(m.old, op, tok, now, g.s.opts.MaxSkew); err != nil {
		return fmt.Errorf("target %d: %w", m.target, err)
	}
	if !slices.Equal(m.old.Targets, g.targets) {
		return fmt.Errorf("lease: target %d was claimed with %d targets, not with these %d: %w",
			m.target, len(m.old.Targets), len(g.targets), fs.ErrInvalid)
	}
	return nil
}

// write makes the new files of all members durable, one barrier per shard. If anything fails, all members get their old bytes back, while
// the locks are still held.
func (g *group) write() error {
	b := g.s.writer.NewBatch()
	updates := make([]groupcommit.Update, len(g.members))
	for i, m := range g.members {
		updates[i] = g.s.update(m.id, m.data)
	}
	err := errors.Join(b.Publish(updates)...)
	if err == nil {
		if g.flushed, err = b.Flush(); err == nil {
			return nil
		}
	}
	if rerr := g.rollBack(); rerr != nil {
		return fmt.Errorf("lease: write group: %w; its roll-back failed too: %w", err, rerr)
	}
	return fmt.Errorf("lease: write group, rolled back: %w", err)
}

// rollBack restores each member that is not as it was. It looks, since a rename may have been done in spite of its error. Its batch
// is one of its own, since the other refuses changes in directories whose barrier failed, and writes the old bytes as they were.
func (g *group) rollBack() error {
	b := groupcommit.NewBatch(g.s.fs)
	var errs []error
	for _, m := range g.members {
		raw, err := g.s.readFile(g.s.path(m.id), nil)
		gone := errors.Is(err, fs.ErrNotExist)
		switch {
		case m.old == nil && gone || m.old != nil && err == nil && bytes.Equal(raw, m.bytes):
		case m.old == nil:
			if err := b.Remove(g.s.path(m.id)); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		default:
			errs = append(errs, b.Publish([]groupcommit.Update{g.s.update(m.id, m.bytes)})[0])
		}
	}
	_, err := b.Flush()
	return errors.Join(append(errs, err)...)
}
