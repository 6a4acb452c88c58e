package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
)

// Rule 4, F326: contention is bounded, typed, and harmless to the lock file.
func TestLockWaitIsBoundedAndTyped(t *testing.T) {
	f := newFixture(t)
	f.opts.LockTimeout = 20 * time.Millisecond
	table := f.open()
	l, err := table.s.lock(bg, firstOfShard0, time.Time{})
	f.must(err)
	file := filepath.Join(f.root, locksDir, "000.lock")
	f.must(os.Chtimes(file, time.Unix(0, 0), time.Unix(0, 0))) // age means nothing
	_, err = table.Claim(bg, firstOfShard0, nil, Holder{})
	f.want(err, ErrLocked, os.ErrDeadlineExceeded)
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	f.claim(table, secondOfShard0, "a") // the same file, another record
	f.must(l.Close())
	f.claim(table, firstOfShard0, "a")
	if table.Stats().LockWait.Quantile(1) < uint64(10*time.Millisecond) {
		t.Error("the wait was not measured")
	}
}

// LK-4, F326: what is not contention is no reason to wait, and never to go on unlocked.
func TestLockErrorsSurfaceAtOnce(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSYS, syscall.ENOLCK, syscall.EOPNOTSUPP, syscall.Errno(524), syscall.EIO} {
		f := newFixture(t)
		f.opts.LockTimeout = time.Hour
		table := f.open()
		f.fault.Inject(faultfs.Rule{Op: vfs.OpLock, Err: errno})
		_, err := table.Claim(bg, firstOfShard0, nil, Holder{})
		f.want(err, errno)
		if errors.Is(err, ErrLocked) || f.writes() > 0 {
			t.Errorf("%v: %v", errno, err)
		}
		f.claim(table, firstOfShard0, "a") // F326: a later claim works
	}
}

func TestALockPathThatIsNoFileIsRefused(t *testing.T) {
	for _, make := range []func(string) error{
		func(name string) error { return os.Mkdir(name, 0o777) },
		func(name string) error { return os.Symlink("/dev/null", name) },
		func(name string) error { return syscall.Mkfifo(name, 0o666) },
	} {
		f := newFixture(t)
		table := f.open()
		name := filepath.Join(f.root, locksDir, "000.lock")
		f.must(make(name))
		_, err := table.Claim(bg, firstOfShard0, nil, Holder{})
		f.want(err, vfs.ErrNotRegular)
		if _, err := os.Lstat(name); err != nil {
			t.Error("it was removed")
		}
	}
}

// LK-12: a wait that was given up leaves nobody with the lock.
func TestACancelledWaitLeavesNoLockBehind(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	l, err := table.s.lock(bg, firstOfShard0, time.Time{})
	f.must(err)
	ctx, cancel := context.WithTimeout(bg, 10*time.Millisecond)
	defer cancel()
	_, err = table.Claim(ctx, firstOfShard0, nil, Holder{})
	f.want(err, context.DeadlineExceeded)
	f.must(l.Close())
	l, err = table.s.lock(bg, firstOfShard0, time.Time{})
	f.must(err)
	f.must(l.Close())
	_, err = table.Claim(ctx, firstOfShard0, nil, Holder{})
	f.want(err, context.DeadlineExceeded) // before anything else
}

// LK-11: goroutines that share one table exclude each other: one claim wins.
func TestOneOfManyConcurrentClaimsWins(t *testing.T) {
	f := newFixture(t)
	f.opts.LockTimeout = time.Minute
	table := f.open()
	var mu sync.Mutex
	var wg sync.WaitGroup
	won := 0
	for i := range 16 {
		wg.Go(func() {
			_, err := table.Claim(bg, firstOfShard0, nil, Holder{Owner: fmt.Sprint(i)})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if !errors.Is(err, ErrHeld) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d claims won", won)
	}
}

// LK-2: the number of lock files is bounded by the shards. Locks are taken in locks/ only, outside of what barriers cover.
func TestLockFilesAreBoundedByTheShards(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	for n := range 100 {
		f.claim(table, itemID(n), "a")
	}
	files, err := os.ReadDir(filepath.Join(f.root, locksDir))
	f.must(err)
	if len(files) != 4+1 { // and the layout's
		t.Errorf("%d lock files for 100 records in 4 shards", len(files))
	}
	for _, e := range f.trace.Events() {
		if e.Op == vfs.OpSyncDir && filepath.Base(e.Name) == locksDir || e.Op == vfs.OpLock && filepath.Base(filepath.Dir(e.Name)) != locksDir {
			t.Errorf("%s of %s", e.Op, e.Name)
		}
	}
}

// LE-7: an item whose commit hangs holds up nobody else.
func TestAHangingCommitDoesNotHoldUpOtherItems(t *testing.T) {
	f := newFixture(t)
	f.opts.LockTimeout = time.Minute
	table := f.open()
	held, ids := f.claimMany(table, 8)
	f.must(table.BeginCommit(bg, ids[0], held[ids[0]], payload("{}")))
	inside, leave := make(chan struct{}), make(chan struct{})
	done := make(chan error)
	go func() {
		_, err := table.Complete(bg, ids[0], held[ids[0]], func(context.Context, jsonRaw) error { close(inside); <-leave; return nil })
		done <- err
	}()
	<-inside
	others := map[ID]Token{}
	for _, id := range ids[1:] {
		others[id] = held[id]
	}
	b, err := table.HeartbeatMany(bg, others)
	f.must(err)
	if len(b.Renewed) != 7 {
		t.Errorf("%+v", b)
	}
	close(leave)
	f.must(<-done)
}
