package lease

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"time"

	"shardlease/pkg/groupcommit/vfs"
)

// The waiting time between two attempts at a lock doubles from the first to the last, each drawn at random from half of it to the whole, so
// that a crowd spreads out.
const (
	firstPoll = 500 * time.Microsecond
	lastPoll  = 32 * time.Millisecond
)

// lock takes the exclusive lock of one record and waits for it until deadline, ctx's end or Close. The first attempt is made in any
// case, so a deadline in the past means "try". Contention that outlasts the deadline matches ErrLocked; whatever else goes wrong (a lock file
// that is no regular file, a file system without such locks) is reported at once and as it is: no operation goes on unlocked.
//
// The clock used for waiting is the monotonic one.
func (s *store) lock(ctx context.Context, id ID, deadline time.Time) (io.Closer, error) {
	l, err := s.waitLock(ctx, s.locks[s.shard(id)], id.lockKey(), deadline)
	if err != nil {
		return nil, lockError(id, err)
	}
	return l, nil
}

func lockError(id ID, err error) error { return fmt.Errorf("lease: lock of record %s: %w", id, err) }

func (s *store) waitLock(ctx context.Context, name string, key uint64, deadline time.Time) (io.Closer, error) {
	start := time.Now()
	defer s.stats.lockWait.since(start)
	for poll := firstPoll; ; poll = min(2*poll, lastPoll) {
		l, err := s.fs.TryLock(name, key)
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, vfs.ErrLocked) {
			return nil, err
		}
		left := time.Until(deadline)
		if left <= 0 {
			return nil, fmt.Errorf("%w: waited %v for %s; who holds it is alive, since the kernel frees the locks of the dead",
				ErrLocked, time.Since(start).Round(time.Microsecond), name)
		}
		timer := time.NewTimer(min(left, poll/2+rand.N(poll/2)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-s.closed:
			timer.Stop()
			return nil, fs.ErrClosed
		}
	}
}

func (s *store) lockDeadline() time.Time { return time.Now().Add(s.opts.LockTimeout) }
