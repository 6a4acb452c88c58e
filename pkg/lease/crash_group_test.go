package lease

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"
	"time"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
)

// What the holder of a group was told, and with it what others must find.
const (
	groupFree   = "free"
	groupHeld   = "held"
	groupEither = "free or held" // an operation has begun and said nothing
)

var crashTargets = []uint64{1, 2, 3}

// groupWorld is a target table with one group and what was promised about it.
type groupWorld struct {
	fsys   vfs.FS
	clock  *clock
	acked  func(string)
	expect string
	tok    Token  // of the last claim that succeeded
	fence  uint64 // the highest that was given out
}

func (w *groupWorld) options(fsys vfs.FS, c *clock) *Options {
	return &Options{Shards: 2, TTL: 10 * time.Second, LockTimeout: time.Second, Now: c.now, FS: fsys}
}

// do runs an operation that leaves the group as next if it succeeds, as it was if it does not, and meanwhile as either.
func (w *groupWorld) do(what, next string, op func() error) error {
	before := w.expect
	if next != w.expect {
		w.expect = groupEither
	}
	err := op()
	if err == nil {
		w.expect = next
		w.acked(what)
	} else {
		w.expect = before // one fault is no obstacle to the roll-back
		w.acked("the failure of " + what)
	}
	return err
}

func (w *groupWorld) claim(t *TargetTable) error {
	return w.do("ClaimGroup", groupHeld, func() error {
		tok, err := t.ClaimGroup(bg, crashTargets, nil, Holder{Owner: "first"})
		if err == nil {
			w.tok, w.fence = tok, tok.Fence
		}
		return err
	})
}

func (w *groupWorld) heartbeat(t *TargetTable) error {
	return w.do("HeartbeatGroup", groupHeld, func() error { return t.HeartbeatGroup(bg, crashTargets, w.tok) })
}

func (w *groupWorld) release(t *TargetTable) error {
	return w.do("ReleaseGroup", groupFree, func() error { return t.ReleaseGroup(bg, crashTargets, w.tok) })
}

// whole says whether all targets carry one token and none has lapsed, and the highest fence among them (G9).
func (w *groupWorld) whole(t *TargetTable) (whole bool, tok Token, highest uint64, err error) {
	whole = true
	for i, target := range crashTargets {
		r, err := t.Lookup(target)
		if errors.Is(err, fs.ErrNotExist) {
			whole = false
			continue
		}
		if err != nil {
			return false, tok, 0, err
		}
		if i == 0 {
			tok = r.Token
		}
		highest = max(highest, r.Token.Fence)
		whole = whole && r.Token == tok && r.Status == Leased && !r.Lapsed(w.clock.now(), r.TTL)
	}
	return whole, tok, highest, nil
}

// check opens the table on what a power cut has left. Another must be refused if the group is whole, and get it if not;
// the holder that was told so still has it.
func (w *groupWorld) check(crashed *crashfs.FS) error {
	t, err := OpenTargets(crashRoot, w.options(crashed, w.clock))
	if err != nil {
		return err
	}
	whole, tok, highest, err := w.whole(t)
	switch {
	case err != nil:
		return err
	case w.expect == groupHeld && (!whole || tok != w.tok):
		return fmt.Errorf("the group is held, and what is left is whole: %v, under fence %d", whole, tok.Fence)
	case w.expect == groupFree && whole:
		return fmt.Errorf("the group is free, and what is left is held under fence %d", tok.Fence)
	}
	later := &clock{}
	later.ns.Store(w.clock.ns.Load())
	if err := w.checkClaim(crashed.Clone(), later, max(highest, w.fence), whole); err != nil {
		return err
	}
	later.add(10 * time.Second)
	if err := w.checkClaim(crashed.Clone(), later, max(highest, w.fence), false); err != nil {
		return fmt.Errorf("after the TTL: %w", err)
	}
	if w.expect == groupHeld {
		return errors.Join(t.HeartbeatGroup(bg, crashTargets, w.tok), t.ReleaseGroup(bg, crashTargets, w.tok))
	}
	return nil
}

// checkClaim lets another claim a group that shares a target.
func (w *groupWorld) checkClaim(f *crashfs.FS, c *clock, highest uint64, held bool) error {
	t, err := OpenTargets(crashRoot, w.options(f, c))
	if err != nil {
		return err
	}
	tok, err := t.ClaimGroup(bg, crashTargets, nil, Holder{Owner: "thief"})
	switch {
	case held && !errors.Is(err, ErrHeld):
		return fmt.Errorf("a claim of a group that is whole: %v, want %v", err, ErrHeld)
	case held:
		return nil
	case err != nil:
		return fmt.Errorf("a claim of a group that nobody holds: %w", err)
	case tok.Fence <= highest:
		return fmt.Errorf("fence %d was given out after %d", tok.Fence, highest)
	}
	return nil
}

// groupCases prepare with all but the last step and cut the power in the last.
var groupCases = []struct {
	name  string
	steps []func(w *groupWorld, t *TargetTable) error
}{
	{"ClaimGroup", []func(w *groupWorld, t *TargetTable) error{(*groupWorld).claim}},
	{"HeartbeatGroup", []func(w *groupWorld, t *TargetTable) error{(*groupWorld).claim, (*groupWorld).heartbeat}},
	{"ReleaseGroup", []func(w *groupWorld, t *TargetTable) error{(*groupWorld).claim, (*groupWorld).release}},
	{"ClaimAfterRelease", []func(w *groupWorld, t *TargetTable) error{(*groupWorld).claim, (*groupWorld).release, (*groupWorld).claim}},
}

// sweepGroup cuts the power everywhere in the last step of case number n. Steps on a failing disk may fail.
func sweepGroup(n int, s *crashfs.Sweep, wrap func(vfs.FS) vfs.FS) error {
	steps := groupCases[n].steps
	f := crashfs.New()
	w := &groupWorld{fsys: f, clock: at(1000), acked: func(string) {}, expect: groupFree}
	t, err := OpenTargets(crashRoot, w.options(f, w.clock))
	for _, step := range steps[:len(steps)-1] {
		err = errors.Join(err, step(w, t))
		w.clock.add(time.Second)
	}
	if err = errors.Join(err, f.SyncFS("/")); err != nil {
		return err
	}
	var workErr error
	err = s.Run(f, func(fsys vfs.FS, acked func(string)) {
		w.acked = acked
		var t *TargetTable
		if t, workErr = OpenTargets(crashRoot, w.options(wrap(fsys), w.clock)); workErr == nil {
			workErr = steps[len(steps)-1](w, t)
		}
	}, w.check)
	if s.Fault != nil {
		workErr = nil // expected to fail, and to leave what check allows
	}
	return errors.Join(err, workErr)
}

// Rule of the target table: a power cut anywhere leaves a group that is held as a whole, or free at once for the next.
func TestNoCrashStateLeavesHalfAGroupHeld(t *testing.T) {
	s := &crashfs.Sweep{Limit: crashLimit, Seed: 1}
	for n, c := range groupCases {
		if err := sweepGroup(n, s, func(fsys vfs.FS) vfs.FS { return fsys }); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	t.Log(s)
}

// A disk that fails any one sync of a group operation, with a power cut anywhere in it and in its roll-back. The Journal
// states are among those of Strict.
func TestAGroupOnAFailingDiskIsHeldOrFree(t *testing.T) {
	total := &crashfs.Sweep{Limit: 8, Seed: 1, Policies: []crashfs.Policy{crashfs.Strict}}
	for n, c := range groupCases {
		for fails := 1; ; fails++ {
			syncs := 0
			total.Fault = func(c *vfs.Call) error {
				if c.Op == vfs.OpSync || c.Op == vfs.OpSyncDir && c.Name != crashRoot {
					syncs++
				}
				if syncs == fails && (c.Op == vfs.OpSync || c.Op == vfs.OpSyncDir && c.Name != crashRoot) {
					return syscall.EIO
				}
				return nil
			}
			if err := sweepGroup(n, total, func(fsys vfs.FS) vfs.FS { return fsys }); err != nil {
				t.Errorf("%s, sync %d failing: %v", c.name, fails, err)
			}
			if syncs < fails {
				break
			}
		}
	}
	t.Log(total)
}

func TestPlantedBugsOfGroupsAreCaught(t *testing.T) {
	for _, b := range []struct {
		name string
		n    int
		op   vfs.Op
	}{
		{"no file sync when claimed", 0, vfs.OpSync},
		{"no directory sync when claimed", 0, vfs.OpSyncDir},
		{"no directory sync when released", 2, vfs.OpSyncDir},
	} {
		err := sweepGroup(b.n, &crashfs.Sweep{Limit: crashLimit}, lies(func(c *vfs.Call) bool { return c.Op == b.op }))
		if err == nil {
			t.Errorf("%s was not caught", b.name)
		}
		t.Logf("%s: %.300s", b.name, fmt.Sprint(err))
	}
}
