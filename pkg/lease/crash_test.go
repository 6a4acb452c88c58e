package lease

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
)

// crashCase prepares a durable state, then does the work under power cuts.
type crashCase struct {
	name    string
	prepare func(w *crashWorld, t *Table) error
	work    func(w *crashWorld, t *Table) error
}

func nothingBefore(*crashWorld, *Table) error { return nil }

func claimAll(w *crashWorld, t *Table) error {
	var errs []error
	for _, id := range crashIDs {
		errs = append(errs, w.claim(t, id, "first", w.fences[id]+1))
	}
	return errors.Join(errs...)
}

func each(op func(w *crashWorld, t *Table, id ID) error) func(w *crashWorld, t *Table) error {
	return func(w *crashWorld, t *Table) error { return errors.Join(op(w, t, crashIDs[0]), op(w, t, crashIDs[2])) }
}

func after(steps ...func(w *crashWorld, t *Table) error) func(w *crashWorld, t *Table) error {
	return func(w *crashWorld, t *Table) error {
		var errs []error
		for _, s := range steps {
			errs = append(errs, s(w, t))
		}
		return errors.Join(errs...)
	}
}

func pass(d time.Duration) func(w *crashWorld, t *Table) error {
	return func(w *crashWorld, _ *Table) error { w.clock.add(d); return nil }
}

var (
	beginTwo   = each((*crashWorld).begin)
	finishTwo  = each(func(w *crashWorld, t *Table, id ID) error { return w.complete(t, id) })
	abandonTwo = each((*crashWorld).abandon)
	claimTwo   = each(func(w *crashWorld, t *Table, id ID) error { return w.claim(t, id, "second", w.fences[id]+1) })
)

func beat(w *crashWorld, t *Table) error { return w.heartbeat(t) }

var crashCases = []crashCase{
	{"Claim", nothingBefore, claimTwo},
	{"ClaimOfALapsedLease", after(claimAll, pass(time.Minute)), claimTwo},
	{"ClaimOfAnAbandonedRecord", after(claimAll, abandonTwo), claimTwo},
	{"Heartbeat", after(claimTwo, pass(time.Second)), beat},
	{"HeartbeatMany", after(claimAll, pass(time.Second)), after(beat, pass(time.Second), beat)},
	{"BeginCommit", claimAll, beginTwo},
	{"Complete", after(claimAll, beginTwo), finishTwo},
	{"Abandon", claimAll, abandonTwo},
	{"WholeLife", nothingBefore, after(claimTwo, pass(time.Second), beat, beginTwo, finishTwo)},
}

// prepared returns a durable file system with the case's state.
func prepared(c crashCase) (*crashfs.FS, *crashWorld, error) {
	f := crashfs.New()
	w := newCrashWorld()
	w.fsys, w.acked = f, func(string) {}
	if err := groupcommit.MkdirAll(f, crashOut, 0o777); err != nil {
		return nil, nil, err
	}
	t, err := w.open()
	if err != nil {
		return nil, nil, err
	}
	if err := c.prepare(w, t); err != nil {
		return nil, nil, err
	}
	return f, w, f.SyncFS("/") // lock files are volatile by design, and would only multiply the states
}

// firstAndSecond are the sweeps of the work and of the process that goes on after it. The states of the second are a small
// sample each, but of many moments; those of Journal are among them.
func firstAndSecond() (first, second *crashfs.Sweep) {
	return &crashfs.Sweep{Limit: crashLimit, Seed: 1},
		&crashfs.Sweep{Limit: secondLimit, Seed: 2, Policies: []crashfs.Policy{crashfs.Strict}}
}

func opening(work func(w *crashWorld, t *Table) error) func(w *crashWorld) error {
	return func(w *crashWorld) error {
		t, err := w.open()
		if err != nil {
			return err
		}
		return work(w, t)
	}
}

// A power cut after any file-system operation of the lease's operations, and again during what the next process does:
// nothing acknowledged is lost, fences never go back, released stays released, a commit keeps its manifest, done means
// published, and the table works.
func TestNoCrashStateLosesAnAcknowledgedLease(t *testing.T) {
	first, second := firstAndSecond()
	for _, c := range crashCases {
		t.Run(c.name, func(t *testing.T) {
			f, w, err := prepared(c)
			if err != nil {
				t.Fatal(err)
			}
			if err := sweepCase(f, w, opening(c.work), first, second); err != nil {
				t.Error(err)
			}
		})
	}
	t.Logf("first power cut: %v", first)
	t.Logf("second power cut, while the next process goes on: %v", second)
}

// The same with renewals by beats: ownership is decided by the records alone, so the same rules hold. The next process
// goes on without another cut.
func TestNoCrashStateLosesAnAcknowledgedLeaseOfASession(t *testing.T) {
	first, _ := firstAndSecond()
	for _, c := range crashCases {
		f, w, err := prepared(c)
		if err != nil {
			t.Fatal(err)
		}
		w.renewals = OneFlush
		if err := sweepCase(f, w, opening(c.work), first, &crashfs.Sweep{Policies: []crashfs.Policy{}}); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	t.Log(first)
}

// Rule 5: a root is there with its layout, or isn't, at every moment of its creation.
func TestACrashWhileARootIsCreatedIsHarmless(t *testing.T) {
	first, second := firstAndSecond()
	f := crashfs.New()
	if err := groupcommit.MkdirAll(f, crashOut, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := sweepCase(f, newCrashWorld(), opening(claimTwo), first, second); err != nil {
		t.Error(err)
	}
	t.Logf("first power cut: %v", first)
	t.Logf("second power cut, while the next process goes on: %v", second)
}

// G5, G6: with one barrier or one file sync failing, what HeartbeatMany calls durable is, and the next batch is as good as ever.
func TestAFailingDiskLosesNoAcknowledgedRenewal(t *testing.T) {
	for _, fault := range []struct {
		op   vfs.Op
		name string
	}{
		{vfs.OpSyncDir, crashRoot + "/000"},
		{vfs.OpSyncDir, crashRoot + "/001"},
		{vfs.OpSync, crashRoot + "/000/" + secondOfShard0.String() + ".json.tmp"},
	} {
		f, w, err := prepared(crashCase{prepare: after(claimAll, pass(time.Second))})
		if err != nil {
			t.Fatal(err)
		}
		failed := false
		first := &crashfs.Sweep{Limit: crashLimit, Fault: func(c *vfs.Call) error {
			if failed || c.Op != fault.op || c.Name != fault.name {
				return nil
			}
			failed = true
			return syscall.EIO
		}}
		err = sweepCase(f, w, opening(func(w *crashWorld, t *Table) error {
			var be *BatchError
			if err := w.heartbeat(t); !errors.As(err, &be) || !errors.Is(err, syscall.EIO) {
				return fmt.Errorf("the disk failed, and the batch says %v", err)
			}
			w.clock.add(time.Second)
			return w.heartbeat(t)
		}), first, nil)
		if err != nil {
			t.Errorf("%s of %s failed: %v", fault.op, fault.name, err)
		}
		t.Logf("%s of %s failed: %v", fault.op, fault.name, first)
	}
}

// killedBefore runs work in a process that is killed before its operation number n. It returns false if work has fewer.
func killedBefore(n int, f *crashfs.FS, w *crashWorld, work func(w *crashWorld) error) bool {
	p := f.Process()
	i := 0
	w.acked = func(string) {}
	w.fsys = vfs.Intercept(p, func(c *vfs.Call, do func() error) error {
		if i++; i == n {
			p.Kill()
		}
		return do()
	})
	_ = work(w) // it dies somewhere in the middle
	return i >= n
}

// FS-25: a process is killed before each of its operations, and leaves names that are visible but not durable. What the
// next process acknowledges on top of them survives every power cut.
func TestNothingIsAcknowledgedOnTopOfWhatAPowerCutTakesBack(t *testing.T) {
	cases := append([]crashCase{{"Open", nil, claimTwo}}, crashCases...)
	s := &crashfs.Sweep{Limit: secondLimit, Seed: 3, Policies: []crashfs.Policy{crashfs.Strict}}
	kills := 0
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for n := 1; ; n++ {
				f, w, err := crashfs.New(), newCrashWorld(), error(nil)
				if c.prepare != nil {
					f, w, err = prepared(c)
				} else {
					err = groupcommit.MkdirAll(f, crashOut, 0o777)
				}
				if err != nil {
					t.Fatal(err)
				}
				dead := w.on(nil, nil)
				if !killedBefore(n, f, dead, opening(c.work)) {
					return
				}
				kills++
				if err := sweepCase(f, dead, func(w *crashWorld) error { return w.goOn() }, s, nil); err != nil {
					t.Fatalf("killed before operation %d: %v", n, err)
				}
			}
		})
	}
	t.Logf("%d kills: %v", kills, s)
}

// FS-3, FS-4, GC-4: each sync of each operation fails once. Its caller gets an error or a lease, never a wrong promise; and
// the same table, and the next process, go on.
func TestAnyOneFailingSyncLosesNothingThatWasAcknowledged(t *testing.T) {
	s := &crashfs.Sweep{Limit: 8, Seed: 4, Policies: []crashfs.Policy{crashfs.Strict}}
	faults := 0
	for _, c := range crashCases {
		t.Run(c.name, func(t *testing.T) {
			for n := 1; ; n++ {
				f, w, err := prepared(c)
				if err != nil {
					t.Fatal(err)
				}
				syncs, working := 0, true
				s.Fault = func(c *vfs.Call) error {
					if !working || c.Op != vfs.OpSync && c.Op != vfs.OpSyncDir {
						return nil
					}
					if syncs++; syncs == n {
						return syscall.EIO
					}
					return nil
				}
				err = sweepCase(f, w, func(w *crashWorld) error {
					err := opening(c.work)(w)
					if working = false; syncs >= n && !errors.Is(err, syscall.EIO) {
						return fmt.Errorf("the disk failed, and the operation says %v", err)
					}
					return w.goOn()
				}, s, nil)
				if err != nil {
					t.Fatalf("sync %d failing: %v", n, err)
				}
				if syncs < n {
					return
				}
				faults++
			}
		})
	}
	t.Logf("%d faults: %v", faults, s)
}
