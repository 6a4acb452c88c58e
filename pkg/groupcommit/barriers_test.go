package groupcommit_test

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
	"shardlease/pkg/groupcommit/vfs/tracefs"
)

// crowd is a Writer whose barriers of /s wait for a token each, and tell when they begin.
type crowd struct {
	*testing.T
	trace *tracefs.Trace
	fault *faultfs.FS
	w     *groupcommit.Writer
	begun chan struct{}
	token chan struct{}
}

func newCrowd(t *testing.T) *crowd {
	c := &crowd{T: t, begun: make(chan struct{}), token: make(chan struct{})}
	f := crashfs.New()
	if err := f.Mkdir("/s", 0o777); err != nil {
		t.Fatal(err)
	}
	c.trace = tracefs.New(f, "/")
	c.fault = faultfs.New(c.trace)
	slow := vfs.Intercept(c.fault, func(call *vfs.Call, do func() error) error {
		if call.Op == vfs.OpSyncDir {
			c.begun <- struct{}{}
			<-c.token
		}
		return do()
	})
	var err error
	if c.w, err = groupcommit.NewWriter(slow, groupcommit.Serial, ""); err != nil {
		t.Fatal(err)
	}
	return c
}

// publish starts one goroutine that publishes one record, flushes, and marks the record's name if that was a success.
func (c *crowd) publish(wg *sync.WaitGroup, i int, errs []error) {
	wg.Go(func() {
		name := fmt.Sprintf("/s/%d", i)
		b := c.w.NewBatch()
		err := b.Publish([]groupcommit.Update{{Name: name, Data: []byte("x"), Perm: 0o666}})[0]
		_, ferr := b.Flush()
		if errs[i] = errors.Join(err, ferr); errs[i] == nil {
			c.trace.Mark(name)
		}
	})
}

// checkOwn checks that for each name that was marked a good barrier began after its switch and ended before the mark.
func checkOwn(t *testing.T, trace *tracefs.Trace) {
	t.Helper()
	switched := map[string]tracefs.Event{}
	var barriers []tracefs.Event
	for _, e := range trace.Events() {
		switch e.Op {
		case vfs.OpRename:
			switched[e.NewName] = e
		case vfs.OpSyncDir:
			barriers = append(barriers, e)
		case tracefs.OpMark:
			covered := slices.ContainsFunc(barriers, func(s tracefs.Event) bool {
				return s.Err == nil && s.Name == path.Dir(e.Name) && s.Begin > switched[e.Name].End && s.End < e.Begin
			})
			if !covered {
				t.Errorf("%s was acknowledged without a barrier of its own", e.Name)
			}
		}
	}
}

// GC-8: 63 commits that come while a barrier is running share the next one; none is acknowledged by the one that ran
// before its name was switched (A3). No timer is involved: a lone commit waits for nobody.
func TestCommitsOfOneDirectoryShareTheNextBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		var wg sync.WaitGroup
		errs := make([]error, 64)
		c.publish(&wg, 0, errs)
		<-c.begun
		for i := 1; i < 64; i++ {
			c.publish(&wg, i, errs)
		}
		synctest.Wait()
		c.token <- struct{}{}
		<-c.begun
		c.token <- struct{}{}
		wg.Wait()
		want(t, "errors", errors.Join(errs...), nil)
		want(t, "barriers", c.trace.Counts().DirSyncs, 2)
		checkOwn(t, c.trace)
	})
}

// Invariant G6: a failed barrier fails all it covered, and only those; it is not tried again for them.
func TestAFailedSharedBarrierFailsAllItCovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		c.fault.Inject(faultfs.Rule{Op: vfs.OpSyncDir, Nth: 2, Err: syscall.EIO})
		var wg sync.WaitGroup
		errs := make([]error, 10)
		for _, comers := range [][]int{{0}, {1, 2, 3, 4, 5}, {6, 7, 8, 9}} {
			for _, i := range comers {
				c.publish(&wg, i, errs)
			}
			synctest.Wait()
			if comers[0] > 0 {
				c.token <- struct{}{} // ends the barrier before theirs
			}
			<-c.begun
		}
		c.token <- struct{}{}
		wg.Wait()
		for i, err := range errs {
			if failed := errors.Is(err, groupcommit.ErrUnknown) && errors.Is(err, syscall.EIO); failed != (i >= 1 && i < 6) {
				t.Errorf("commit %d: %v", i, err)
			}
		}
		want(t, "injected", c.fault.Injected(), 1)
		want(t, "good barriers", c.trace.Counts().DirSyncs, 2)
		checkOwn(t, c.trace)
	})
}

// Many goroutines, several directories, no choreography, now and then a failure.
func TestSharedBarriersCoverEveryAcknowledgement(t *testing.T) {
	f := crashfs.New()
	trace := tracefs.New(f, "/")
	faults := faultfs.New(trace)
	for n := 5; n < 100; n += 17 {
		faults.Inject(faultfs.Rule{Op: vfs.OpSyncDir, Nth: n, Err: syscall.EIO})
	}
	w, err := groupcommit.NewWriter(faults, groupcommit.Serial, "")
	want(t, "error", err, nil)
	for i := range 3 {
		want(t, "error", f.Mkdir(fmt.Sprintf("/%d", i), 0o777), nil)
	}
	var failed atomic.Int64
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 20 {
				b := w.NewBatch()
				name := fmt.Sprintf("/%d/%d-%d", (g+i)%3, g, i)
				err := b.Publish([]groupcommit.Update{{Name: name, Data: []byte("x"), Perm: 0o666}})[0]
				if _, ferr := b.Flush(); ferr != nil {
					failed.Add(1)
				} else if err == nil {
					trace.Mark(name)
				}
			}
		})
	}
	wg.Wait()
	if n := faults.Injected(); n == 0 || failed.Load() < int64(n) {
		t.Errorf("%d failed barriers failed %d commits", n, failed.Load())
	}
	checkOwn(t, trace)
}
