package lease

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
)

// lies leaves out the operations that match, and says that they were done.
func lies(match func(c *vfs.Call) bool) func(vfs.FS) vfs.FS {
	return func(fsys vfs.FS) vfs.FS {
		return vfs.Intercept(fsys, func(c *vfs.Call, do func() error) error {
			if match(c) {
				return nil
			}
			return do()
		})
	}
}

// insists repeats a failed sync once.
func insists(fsys vfs.FS) vfs.FS {
	return vfs.Intercept(fsys, func(c *vfs.Call, do func() error) error {
		err := do()
		if err != nil && (c.Op == vfs.OpSync || c.Op == vfs.OpSyncDir) {
			return do()
		}
		return err
	})
}

// The durability bugs of package groupcommit's test, put under a table.
func TestPlantedDurabilityBugsAreCaughtInATable(t *testing.T) {
	lapsed := crashCase{"", after(claimAll, pass(time.Minute)), claimTwo}
	isOp := func(op vfs.Op) func(c *vfs.Call) bool { return func(c *vfs.Call) bool { return c.Op == op } }
	for _, b := range []struct {
		name string
		c    crashCase
		wrap func(vfs.FS) vfs.FS
		disk func(c *vfs.Call) bool // fails once
	}{
		{"no file sync", lapsed, lies(isOp(vfs.OpSync)), nil},
		{"no directory sync", lapsed, lies(isOp(vfs.OpSyncDir)), nil},
		{"no directory sync when released", crashCase{"", claimAll, abandonTwo}, lies(isOp(vfs.OpSyncDir)), nil},
		{"no directory sync when done", crashCase{"", after(claimAll, beginTwo), finishTwo}, lies(isOp(vfs.OpSyncDir)), nil},
		{"retry of a failed file sync", lapsed, insists, isOp(vfs.OpSync)},
		{"retry of a failed barrier", lapsed, insists, func(c *vfs.Call) bool {
			return c.Op == vfs.OpSyncDir && c.Name == crashRoot+"/000"
		}},
		{"no parent sync of a new shard", crashCase{"", nil, claimTwo}, lies(func(c *vfs.Call) bool {
			return c.Op == vfs.OpSyncDir && c.Name == crashRoot
		}), nil},
		{"no parent sync of a new root", crashCase{"", nil, claimTwo}, lies(func(c *vfs.Call) bool {
			return c.Op == vfs.OpSyncDir && c.Name == "/epoch"
		}), nil},
	} {
		t.Run(b.name, func(t *testing.T) {
			f, w, err := crashfs.New(), newCrashWorld(), error(nil)
			if b.c.prepare != nil {
				f, w, err = prepared(b.c)
			} else {
				err = groupcommit.MkdirAll(f, crashOut, 0o777)
			}
			if err != nil {
				t.Fatal(err)
			}
			s, failed := &crashfs.Sweep{Limit: crashLimit}, false
			s.Fault = func(c *vfs.Call) error {
				if b.disk == nil || failed || !b.disk(c) {
					return nil
				}
				failed = true
				return syscall.EIO
			}
			err = sweepCase(f, w, func(w *crashWorld) error {
				w.fsys = b.wrap(w.fsys)
				return opening(b.c.work)(w)
			}, s, nil)
			if err == nil {
				t.Fatalf("not caught in %v", s)
			}
			t.Log(err)
		})
	}
}

// rival is a way to renew a lease, right or wrong.
type rival struct {
	name  string
	wrap  func(vfs.FS) vfs.FS                    // what it does to locks
	now   func(c *clock) func() time.Time        // when it reads the clock
	renew func(t *Table, id ID, tok Token) error // what it checks
}

type noLock struct{ vfs.FS }

func (noLock) TryLock(string, ...uint64) (vfs.Lock, error) { return noLocks{io.NopCloser(nil)}, nil }

func underLock(c *clock) func() time.Time { return c.now }

func beforeLock(c *clock) func() time.Time {
	start := c.now()
	return func() time.Time { return start }
}

func renewOwn(t *Table, id ID, tok Token) error { return t.Heartbeat(bg, id, tok) }

func renewAny(t *Table, id ID, _ Token) error {
	r, err := t.Lookup(id)
	if err != nil {
		return err
	}
	return t.Heartbeat(bg, id, r.Token)
}

// meet lets a holder renew its lease a second before it lapses. Before the holder's operation number n 20 s pass and, if
// claims, another takes the lease if it can. It returns what went wrong, and false if the holder has fewer operations.
func meet(r rival, n int, claims bool) (error, bool) {
	f, w, err := prepared(crashCase{prepare: claimTwo})
	if err != nil {
		return err, false
	}
	id := crashIDs[0]
	w.clock.add(9 * time.Second)
	var taken *Token
	i, renewing := 0, false
	options := w.options(vfs.Intercept(r.wrap(f), func(c *vfs.Call, do func() error) error {
		if renewing {
			i++
		}
		if renewing && i == n {
			w.clock.add(20 * time.Second)
			if claims {
				taken = steal(w.options(r.wrap(f.Process())), id)
			}
		}
		return do()
	}))
	now := w.clock.now
	options.Now = func() time.Time { return now() }
	table, err := Open(crashRoot, options)
	if err != nil {
		return err, false
	}
	now, renewing = r.now(w.clock), true
	renewal := r.renew(table, id, w.tokens[id])
	renewing = false
	rec, err := table.Lookup(id)
	switch {
	case err != nil:
		return err, i >= n
	case taken != nil && rec.Token != *taken:
		return fmt.Errorf("fence %d was given out, and the record went back to fence %d", taken.Fence, rec.Token.Fence), true
	case renewal == nil && rec.Token != w.tokens[id]:
		return errors.New("the holder was told that it holds a lease that another has"), true
	case renewal == nil && rec.Lapsed(w.clock.now(), rec.TTL):
		return errors.New("the holder was told that it holds a lease that has lapsed"), true
	}
	return nil, i >= n
}

func steal(options *Options, id ID) *Token {
	options.LockTimeout = time.Millisecond
	t, err := Open(crashRoot, options)
	if err != nil {
		return nil
	}
	tok, err := t.Claim(bg, id, nil, Holder{Owner: "thief"})
	if err != nil {
		return nil
	}
	return &tok
}

// meetEverywhere tries every moment of the renewal.
func meetEverywhere(r rival) error {
	for _, claims := range []bool{false, true} {
		for n := 1; ; n++ {
			err, more := meet(r, n, claims)
			if err != nil {
				return fmt.Errorf("at operation %d, claiming %v: %w", n, claims, err)
			}
			if !more {
				break
			}
		}
	}
	return nil
}

// G7, rules 2 and 4: at every moment of a renewal time may jump and another may claim; nobody is told that it holds what
// it does not.
func TestARenewalMeetsATakeOverAtEveryMoment(t *testing.T) {
	same := func(fsys vfs.FS) vfs.FS { return fsys }
	if err := meetEverywhere(rival{"the table", same, underLock, renewOwn}); err != nil {
		t.Errorf("the table: %v", err)
	}
	for _, r := range []rival{
		{"no token check", same, underLock, renewAny},
		{"clock before lock", same, beforeLock, renewOwn},
		{"unlocked read-modify-write", func(fsys vfs.FS) vfs.FS { return noLock{fsys} }, underLock, renewOwn},
	} {
		err := meetEverywhere(r)
		if err == nil {
			t.Errorf("%s was not caught", r.name)
		}
		t.Logf("%s: %v", r.name, err)
	}
}
