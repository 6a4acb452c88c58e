package groupcommit_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
)

const (
	crashLimit  = 2000 // states of one moment and policy; a larger set is sampled
	secondLimit = 8    // the same for the second power cut, during recovery
)

// absent stands for the content of a name that isn't there, directory for that of a directory.
const (
	absent    = "(absent)"
	directory = "(directory)"
)

// promises says what each name may hold after a power cut.
type promises map[string][]string

// may adds contents that an unfinished operation may leave.
func (p promises) may(name string, contents ...string) {
	for _, c := range contents {
		if !slices.Contains(p[name], c) {
			p[name] = append(slices.Clip(p[name]), c)
		}
	}
}

// must is what was acknowledged: nothing else may be left.
func (p promises) must(name, content string) { p[name] = []string{content} }

func (p promises) check(fsys vfs.FS) error {
	for _, name := range slices.Sorted(maps.Keys(p)) {
		got, err := holds(fsys, name)
		if err != nil {
			return err
		}
		if !slices.Contains(p[name], got) {
			return fmt.Errorf("%s holds %q, want one of %q", name, got, p[name])
		}
	}
	return nil
}

func holds(fsys vfs.FS, name string) (string, error) {
	i, err := fsys.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return absent, nil
	case err != nil:
		return "", err
	case i.IsDir():
		return directory, nil
	}
	data, err := vfs.ReadFile(fsys, name, 1<<10)
	return strings.TrimRight(string(data), " \t\n"), err // without the padding of strategies with spares
}

// world is where a workload runs. It may be run again on what a power cut has left of itself.
type world struct {
	promises
	fsys  vfs.FS
	acked func(what string)
	// fresh is false in the second run: then the promises of the first stand, and errors about names that are or are
	// not there already are part of the recovery.
	fresh bool
}

// do runs one operation that leaves name with old or new content until it is acknowledged.
func (w world) do(what string, op func() error, changed map[string]string) error {
	for name, content := range changed {
		w.may(name, content)
	}
	err := op()
	if err == nil {
		for name, content := range changed {
			w.must(name, content)
		}
		w.acked(what)
	}
	return err
}

// ignore drops the errors that a repetition may meet.
func (w world) ignore(err error, expected ...error) error {
	for _, e := range expected {
		if !w.fresh && errors.Is(err, e) {
			return nil
		}
	}
	return err
}

// crashCase is a piece of work on a file system that has /s and /t with two durable records each.
type crashCase struct {
	name string
	work func(w world) error
	// also is a rule over several names, checked beside the promises once a barrier has been run.
	also func(fsys vfs.FS) error
}

func records(names ...string) (list []groupcommit.Update) {
	for _, n := range names {
		list = append(list, groupcommit.Update{Name: n, Data: []byte("new"), Perm: 0o644})
	}
	return list
}

// publishing is a batch that publishes whole new contents, and is acknowledged by its Flush.
func publishing(names ...string) func(w world) error {
	return func(w world) error {
		changed := map[string]string{}
		for _, n := range names {
			changed[n] = "new"
		}
		return w.do("Flush", func() error {
			b := groupcommit.NewBatch(w.fsys)
			errs := b.Publish(records(names...))
			_, err := b.Flush()
			return errors.Join(append(errs, err)...)
		}, changed)
	}
}

// someName is the rule of a move: the object is never without a name.
func someName(object string, names ...string) func(vfs.FS) error {
	return func(fsys vfs.FS) error {
		for _, n := range names {
			if got, err := holds(fsys, n); err != nil || got == object {
				return err
			}
		}
		return fmt.Errorf("%q has lost all its names %q", object, names)
	}
}

type mover func(fsys vfs.FS, oldname, newname string) error

// replaceAcross moves a record between directories and, in a repetition, drops the name that a power cut may have left
// beside the new one.
func replaceAcross(replace mover) func(w world) error {
	return func(w world) error {
		op := func() error {
			err := replace(w.fsys, "/s/a", "/t/moved")
			if err == nil && !w.fresh {
				err = w.ignore(groupcommit.Remove(w.fsys, "/s/a"), fs.ErrNotExist)
			}
			return err
		}
		return w.ignore(w.do("Replace", op, map[string]string{"/s/a": absent, "/t/moved": "s/a"}), fs.ErrNotExist)
	}
}

var crashCases = []crashCase{
	{"WriteFileOfANewName", func(w world) error {
		return w.do("WriteFile", func() error { return groupcommit.WriteFile(w.fsys, "/s/c", []byte("new"), 0o644) },
			map[string]string{"/s/c": "new"})
	}, nil},
	{"WriteFileOverAnOldOne", func(w world) error {
		return w.do("WriteFile", func() error { return groupcommit.WriteFile(w.fsys, "/s/a", []byte("new"), 0o644) },
			map[string]string{"/s/a": "new"})
	}, nil},
	{"MkdirAllAndARecordInIt", func(w world) error {
		err := w.do("MkdirAll", func() error { return groupcommit.MkdirAll(w.fsys, "/n/m/o", 0o755) },
			map[string]string{"/n": directory, "/n/m": directory, "/n/m/o": directory})
		if err != nil {
			return err
		}
		w.may("/n/m/o/r", absent)
		return publishing("/n/m/o/r")(w)
	}, nil},
	{"ReplaceAcrossDirectories", replaceAcross(groupcommit.Replace), someName("s/a", "/s/a", "/t/moved")},
	{"ReplaceWithinADirectory", func(w world) error {
		op := func() error { return groupcommit.Replace(w.fsys, "/s/a", "/s/b") }
		return w.ignore(w.do("Replace", op, map[string]string{"/s/a": absent, "/s/b": "s/a"}), fs.ErrNotExist)
	}, someName("s/a", "/s/a", "/s/b")},
	{"RenameNoReplace", func(w world) error {
		op := func() error { return groupcommit.RenameNoReplace(w.fsys, "/s/a", "/t/moved") }
		return w.ignore(w.do("RenameNoReplace", op, map[string]string{"/s/a": absent, "/t/moved": "s/a"}),
			fs.ErrNotExist, fs.ErrExist)
	}, someName("s/a", "/s/a", "/t/moved")},
	{"Link", func(w world) error {
		op := func() error { return groupcommit.Link(w.fsys, "/s/a", "/t/second") }
		return w.ignore(w.do("Link", op, map[string]string{"/t/second": "s/a"}), fs.ErrExist)
	}, nil},
	{"Remove", func(w world) error {
		op := func() error { return groupcommit.Remove(w.fsys, "/s/a") }
		return w.ignore(w.do("Remove", op, map[string]string{"/s/a": absent}), fs.ErrNotExist)
	}, nil},
	{"RemoveAll", func(w world) error {
		return w.do("RemoveAll", func() error { return groupcommit.RemoveAll(w.fsys, "/s") },
			map[string]string{"/s": absent, "/s/a": absent, "/s/b": absent})
	}, nil},
	{"BatchInOneShard", publishing("/s/a", "/s/b", "/s/c"), nil},
	{"BatchInTwoShards", publishing("/s/a", "/s/b", "/t/a"), nil},
	{"BatchOfReplaceExchangeAndRemove", func(w world) error {
		if !w.fresh {
			return nil // not idempotent: its users know by their records what is left to do
		}
		b := groupcommit.NewBatch(w.fsys)
		return w.do("Flush", func() error {
			tmp, err := groupcommit.Stage(w.fsys, "/s/c", []byte("new"), 0o644)
			err = errors.Join(err, b.Replace(tmp, "/s/c"), b.Exchange("/s/a", "/s/b"), b.Remove("/t/a"))
			_, ferr := b.Flush()
			return errors.Join(err, ferr)
		}, map[string]string{"/s/a": "s/b", "/s/b": "s/a", "/s/c": "new", "/t/a": absent})
	}, someName("s/a", "/s/a", "/s/b")},
}

// start returns a fresh file system with four durable records, and what is promised about it.
func start(t testing.TB) (*crashfs.FS, promises) {
	t.Helper()
	f, p := crashfs.New(), promises{}
	for _, name := range []string{"s/a", "s/b", "t/a", "t/b"} {
		if err := errors.Join(groupcommit.MkdirAll(f, "/"+path.Dir(name), 0o755),
			groupcommit.WriteFile(f, "/"+name, []byte(name), 0o644)); err != nil {
			t.Fatal(err)
		}
		p.must("/"+name, name)
	}
	p.must("/s", directory)
	for _, name := range []string{"/s/c", "/t/moved", "/t/second", "/n", "/n/m", "/n/m/o"} {
		p.may(name, absent)
	}
	return f, p
}

// secondSweep cuts the power while the first cut is recovered from. The states of Journal are among those of Strict.
func secondSweep() *crashfs.Sweep {
	return &crashfs.Sweep{Limit: secondLimit, Seed: 2, Policies: []crashfs.Policy{crashfs.Strict}}
}

func asItIs(fsys vfs.FS) vfs.FS { return fsys }

// sweep runs c on a fresh file system through wrap, cuts the power everywhere, and runs c again on each state through
// wrap, cutting the power everywhere in that run too.
func sweep(t testing.TB, c crashCase, first, second *crashfs.Sweep, wrap func(vfs.FS) vfs.FS) error {
	t.Helper()
	f, p := start(t)
	return cutAndWork(c, f, p, true, first, wrap, func(crashed *crashfs.FS) error {
		return cutAndWork(c, crashed, maps.Clone(p), false, second, wrap, func(*crashfs.FS) error { return nil })
	})
}

// cutAndWork runs c on f under s, checks the promises in every state, and gives each to then.
func cutAndWork(c crashCase, f *crashfs.FS, p promises, fresh bool, s *crashfs.Sweep, wrap func(vfs.FS) vfs.FS,
	then func(*crashfs.FS) error) error {
	barriers := 0
	var workErr error
	err := s.Run(f, func(fsys vfs.FS, acked func(string)) {
		counted := vfs.Intercept(fsys, func(c *vfs.Call, do func() error) error {
			if c.Op == vfs.OpSyncDir {
				barriers++ // before it is done, since the power is cut right after that
			}
			return do()
		})
		workErr = c.work(world{p, wrap(counted), acked, fresh})
	}, func(crashed *crashfs.FS) error {
		err := p.check(crashed)
		if err == nil && c.also != nil && (barriers > 0 || slices.Equal(s.Policies, []crashfs.Policy{crashfs.Journal})) {
			err = c.also(crashed)
		}
		if err == nil {
			err = then(crashed)
		}
		return err
	})
	return errors.Join(err, workErr)
}

// Contract, G1 to G4: after a power cut anywhere in an operation, and anywhere in its repetition, each name is whole and
// old or new, and what was acknowledged is there.
func TestNothingAcknowledgedIsLostInAnyCrashState(t *testing.T) {
	first, second := &crashfs.Sweep{Limit: crashLimit, Seed: 1}, secondSweep()
	for _, c := range crashCases {
		t.Run(c.name, func(t *testing.T) {
			if err := sweep(t, c, first, second, asItIs); err != nil {
				t.Error(err)
			}
		})
	}
	t.Logf("first power cut: %v", first)
	t.Logf("second power cut, during recovery: %v", second)
	if first.Sampled > 0 {
		t.Errorf("the first power cut is meant to be exhaustive")
	}
}

// A1: where a rename across directories is atomic, as under a journal, the object keeps a name at every moment. Under
// the strict policy it may lose both between the rename and the first barrier, which no order of barriers can prevent.
func TestAMoveKeepsANameWhereRenamesAreAtomic(t *testing.T) {
	for _, c := range crashCases {
		if c.also == nil {
			continue
		}
		s := &crashfs.Sweep{Limit: crashLimit, Policies: []crashfs.Policy{crashfs.Journal}}
		if err := sweep(t, c, s, s, asItIs); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// flushOutcome is a batch on two directories whose caller believes exactly what Flush told.
func flushOutcome(w world) error {
	b := groupcommit.NewBatch(w.fsys)
	for _, name := range []string{"/s/a", "/t/a"} {
		w.may(name, "new")
	}
	errs := b.Publish(records("/s/a", "/t/a"))
	res, err := b.Flush()
	for _, dir := range res.Durable {
		w.must(dir+"/a", "new")
	}
	w.acked("Flush")
	if !w.fresh {
		return nil
	}
	if len(res.Durable) != 1 || len(res.Unknown) != 1 || !errors.Is(err, groupcommit.ErrUnknown) {
		return fmt.Errorf("one barrier failed, and Flush says %+v, %v", res, errors.Join(append(errs, err)...))
	}
	return nil
}

// once fails the first operation that matches with EIO.
func once(match func(c *vfs.Call) bool) func(*vfs.Call) error {
	failed := false
	return func(c *vfs.Call) error {
		if failed || !match(c) {
			return nil
		}
		failed = true
		return syscall.EIO
	}
}

// G5, G6: with one barrier failing, what Flush calls durable is, the other directory is old or new, and a later barrier
// there, which succeeds and keeps nothing of the first, acknowledges only what was written anew.
func TestAFailedBarrierLosesNothingThatWasAcknowledged(t *testing.T) {
	for _, dir := range []string{"/s", "/t"} {
		first := &crashfs.Sweep{Limit: crashLimit, Fault: once(func(c *vfs.Call) bool { return c.Op == vfs.OpSyncDir && c.Name == dir })}
		c := crashCase{"", func(w world) error { return errors.Join(flushOutcome(w), publishing("/s/a", "/t/a")(w)) }, nil}
		err := sweep(t, c, first, secondSweep(), asItIs)
		if err != nil {
			t.Errorf("barrier of %s failed: %v", dir, err)
		}
		t.Logf("barrier of %s failed: %v", dir, first)
	}
}

// G1: a failed file sync keeps the old record; writing it again makes a new temp file and is safe.
func TestAFailedFileSyncLosesNothingThatWasAcknowledged(t *testing.T) {
	first := &crashfs.Sweep{Limit: crashLimit, Fault: once(func(c *vfs.Call) bool { return c.Op == vfs.OpSync })}
	c := crashCase{"", func(w world) error {
		err := publishing("/s/a", "/t/a")(w)
		if w.fresh && !errors.Is(err, syscall.EIO) {
			return fmt.Errorf("a failed sync came back as %v", err)
		}
		return publishing("/s/a", "/t/a")(w)
	}, nil}
	if err := sweep(t, c, first, secondSweep(), asItIs); err != nil {
		t.Error(err)
	}
	t.Log(first)
}
