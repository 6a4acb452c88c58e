package crashfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, fsys vfs.FS, name, data string, flag int) vfs.File {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_WRONLY|flag, 0o644)
	must(t, err)
	_, err = f.Write([]byte(data))
	must(t, err)
	return f
}

// put makes a file with synced content; its name is not durable.
func put(t testing.TB, fsys vfs.FS, name, data string) {
	t.Helper()
	f := write(t, fsys, name, data, os.O_CREATE|os.O_TRUNC)
	must(t, f.Sync())
	must(t, f.Close())
}

// dump is what reads see: "path=content" for files and "path/" for directories, sorted.
func dump(t testing.TB, fsys vfs.FS) string {
	t.Helper()
	var all []string
	var walk func(dir string)
	walk = func(dir string) {
		list, err := fsys.ReadDir(dir)
		must(t, err)
		for _, e := range list {
			name := strings.TrimPrefix(dir+"/"+e.Name(), "//")
			if e.IsDir() {
				all = append(all, name+"/")
				walk(name)
				continue
			}
			data, err := vfs.ReadFile(fsys, name, 1<<20)
			must(t, err)
			all = append(all, name+"="+strings.ReplaceAll(string(data), "\x00", "0"))
		}
	}
	walk("/")
	return strings.Join(all, " ")
}

// states returns the dumps of all states, and fails unless they are all of them and as many as announced.
func states(t testing.TB, f *crashfs.FS, p crashfs.Policy) []string {
	t.Helper()
	s := f.States(p, 10_000, 1)
	if !s.Exhaustive {
		t.Fatalf("more than %d states", s.Count)
	}
	found := map[string]bool{}
	n := 0
	for crashed := range s.All() {
		found[dump(t, crashed)] = true
		n++
	}
	if n != s.Count {
		t.Fatalf("States counted %d and yielded %d", s.Count, n)
	}
	return slices.Sorted(maps.Keys(found))
}

type legalCase struct {
	name    string
	work    func(t *testing.T, f *crashfs.FS)
	strict  []string
	journal []string // nil: the same
}

func run(t *testing.T, cases []legalCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := crashfs.New()
			c.work(t, f)
			if c.journal == nil {
				c.journal = c.strict
			}
			for p, want := range map[crashfs.Policy][]string{crashfs.Strict: c.strict, crashfs.Journal: c.journal} {
				if got := states(t, f, p); !slices.Equal(got, want) {
					t.Errorf("%v:\n got %q\nwant %q", p, got, want)
				}
			}
		})
	}
}

// Each case is small enough to list its states by hand.
func TestAPowerCutLeavesExactlyTheLegalContents(t *testing.T) {
	run(t, []legalCase{
		{"AFileNeverSyncedMayBeMissingEmptyZerosTornOrWhole", func(t *testing.T, f *crashfs.FS) {
			write(t, f, "a", "1234", os.O_CREATE)
		}, []string{"", "a=", "a=0000", "a=12", "a=1234"}, nil},
		{"FileSyncMakesContentDurableButNotItsName", func(t *testing.T, f *crashfs.FS) {
			put(t, f, "a", "1234")
		}, []string{"", "a=1234"}, nil},
		{"DirectorySyncMakesANameDurableButNotItsContent", func(t *testing.T, f *crashfs.FS) {
			write(t, f, "a", "1234", os.O_CREATE)
			must(t, f.SyncDir("/"))
		}, []string{"a=", "a=0000", "a=12", "a=1234"}, nil},
		{"BothSyncsMakeAFileDurable", func(t *testing.T, f *crashfs.FS) {
			put(t, f, "a", "1234")
			must(t, f.SyncDir("/"))
		}, []string{"a=1234"}, nil},
		{"SyncFSMakesEverythingDurable", func(t *testing.T, f *crashfs.FS) {
			must(t, f.Mkdir("d", 0o755))
			write(t, f, "d/a", "1234", os.O_CREATE)
			must(t, f.SyncFS("/"))
		}, []string{"d/ d/a=1234"}, nil},
		{"ATruncatedFileMayBeOldEmptyZerosTornOrNew", func(t *testing.T, f *crashfs.FS) {
			put(t, f, "a", "old")
			must(t, f.SyncFS("/"))
			write(t, f, "a", "newer!", os.O_TRUNC)
		}, []string{"a=", "a=000000", "a=new", "a=newer!", "a=old"}, nil},
		{"AnOverwriteInPlaceIsOldTornOrNewAndNeverZeros", func(t *testing.T, f *crashfs.FS) {
			put(t, f, "a", "xx1234yy")
			must(t, f.SyncFS("/"))
			h, err := f.OpenFile("a", os.O_RDWR, 0)
			must(t, err)
			_, err = h.WriteAt([]byte("5678"), 2)
			must(t, err)
		}, []string{"a=xx1234yy", "a=xx5634yy", "a=xx5678yy"}, nil},
		{"HardLinksShareTheirContent", func(t *testing.T, f *crashfs.FS) {
			write(t, f, "a", "12", os.O_CREATE)
			must(t, f.Link("a", "b"))
			must(t, f.SyncDir("/"))
		}, []string{"a= b=", "a=00 b=00", "a=1 b=1", "a=12 b=12"}, nil},
	})
}

func TestAPowerCutLeavesExactlyTheLegalNames(t *testing.T) {
	twoDirs := func(t *testing.T, f *crashfs.FS) {
		must(t, f.Mkdir("d", 0o755))
		must(t, f.Mkdir("e", 0o755))
		put(t, f, "d/a", "1")
		must(t, f.SyncFS("/"))
	}
	run(t, []legalCase{
		{"ARenameWithinADirectoryIsOldOrNew", func(t *testing.T, f *crashfs.FS) {
			put(t, f, "a", "old")
			put(t, f, "t", "new")
			must(t, f.SyncDir("/"))
			must(t, f.Rename("t", "a"))
		}, []string{"a=new", "a=old t=new"}, nil},
		{"AReplacementNeedsNoEarlierReplacement", func(t *testing.T, f *crashfs.FS) {
			put(t, f, "a", "0")
			put(t, f, "t", "1")
			put(t, f, "u", "2")
			must(t, f.SyncDir("/"))
			must(t, f.Rename("t", "a"))
			must(t, f.Rename("u", "a"))
		}, []string{"a=0 t=1 u=2", "a=1 u=2", "a=2", "a=2 t=1"}, []string{"a=0 t=1 u=2", "a=1 u=2", "a=2"}},
		{"ANameMovedTwiceIsNeverInTwoPlaces", func(t *testing.T, f *crashfs.FS) {
			put(t, f, "a", "1")
			must(t, f.SyncDir("/"))
			must(t, f.Rename("a", "b"))
			must(t, f.Rename("b", "c"))
		}, []string{"a=1", "b=1", "c=1"}, nil},
		{"ARenameAcrossDirectoriesMayLeaveBothNamesOrNone", func(t *testing.T, f *crashfs.FS) {
			twoDirs(t, f)
			must(t, f.Rename("d/a", "e/b"))
		}, []string{"d/ d/a=1 e/", "d/ d/a=1 e/ e/b=1", "d/ e/", "d/ e/ e/b=1"}, []string{"d/ d/a=1 e/", "d/ e/ e/b=1"}},
		{"SourceBarrierBeforeDestinationMayLoseBothNames", func(t *testing.T, f *crashfs.FS) {
			twoDirs(t, f)
			must(t, f.Rename("d/a", "e/b"))
			must(t, f.SyncDir("d"))
		}, []string{"d/ e/", "d/ e/ e/b=1"}, []string{"d/ e/ e/b=1"}},
		{"DestinationBarrierBeforeSourceNeverLosesTheFile", func(t *testing.T, f *crashfs.FS) {
			twoDirs(t, f)
			must(t, f.Rename("d/a", "e/b"))
			must(t, f.SyncDir("e"))
		}, []string{"d/ d/a=1 e/ e/b=1", "d/ e/ e/b=1"}, []string{"d/ e/ e/b=1"}},
		{"ARemovedFileMayComeBack", func(t *testing.T, f *crashfs.FS) {
			put(t, f, "a", "1")
			must(t, f.SyncDir("/"))
			must(t, f.Remove("a"))
		}, []string{"", "a=1"}, nil},
		{"AnExchangeSwapsBothNamesOrNone", func(t *testing.T, f *crashfs.FS) {
			put(t, f, "a", "1")
			put(t, f, "b", "2")
			must(t, f.SyncDir("/"))
			must(t, f.Exchange("a", "b"))
		}, []string{"a=1 b=2", "a=2 b=1"}, nil},
		// Journals carry the parent along: on ext4, XFS and btrfs this loss could never be provoked. POSIX allows it.
		{"ANewDirectoryWhoseParentWasNotSyncedMayVanishWithAllItHolds", func(t *testing.T, f *crashfs.FS) {
			must(t, f.Mkdir("d", 0o755))
			put(t, f, "d/a", "1")
			must(t, f.SyncDir("d"))
		}, []string{"", "d/ d/a=1"}, []string{"d/ d/a=1"}},
		{"DirectoriesAreIndependent", func(t *testing.T, f *crashfs.FS) {
			must(t, f.Mkdir("d", 0o755))
			must(t, f.Mkdir("e", 0o755))
			must(t, f.SyncDir("/"))
			put(t, f, "d/a", "1")
			put(t, f, "e/a", "2")
		}, []string{"d/ d/a=1 e/", "d/ d/a=1 e/ e/a=2", "d/ e/", "d/ e/ e/a=2"},
			[]string{"d/ d/a=1 e/", "d/ d/a=1 e/ e/a=2", "d/ e/"}},
	})
}

func TestAnIntermediateVersionMaySurvive(t *testing.T) {
	f := crashfs.New()
	put(t, f, "a", "v1")
	must(t, f.SyncFS("/"))
	for _, v := range []string{"v2", "v3"} {
		put(t, f, "tmp", v)
		must(t, f.Rename("tmp", "a"))
	}
	for _, p := range []crashfs.Policy{crashfs.Strict, crashfs.Journal} {
		all := states(t, f, p)
		for _, want := range []string{"a=v1", "a=v2", "a=v3"} {
			if !slices.Contains(all, want) {
				t.Errorf("%v has no state %q in %q", p, want, all)
			}
		}
	}
}

// syncFS makes everything durable.
func syncFS(fsys vfs.FS) error {
	f, err := fsys.OpenFile("/", os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.SyncFS(), f.Close())
}

// failing returns a view of f on which the given operations fail with EIO.
func failing(f *crashfs.FS, ops ...vfs.Op) vfs.FS {
	return f.WithFaults(func(c *vfs.Call) error {
		if slices.Contains(ops, c.Op) {
			return syscall.EIO
		}
		return nil
	})
}

// The fsync error of Linux since 4.13: retrying a failed sync succeeds and loses the data, and reading it back lies.
func TestASyncRetriedAfterAFailureSucceedsAndLoses(t *testing.T) {
	for _, op := range []vfs.Op{vfs.OpSync, vfs.OpDatasync} {
		f := crashfs.New()
		put(t, f, "a", "old")
		must(t, f.SyncFS("/"))
		h := write(t, f, "a", "new", 0)
		bad := write(t, failing(f, op), "a", "new", 0)
		sync := map[vfs.Op]func() error{vfs.OpSync: bad.Sync, vfs.OpDatasync: bad.Datasync}[op]
		var pe *fs.PathError
		if err := sync(); !errors.As(err, &pe) || !errors.Is(err, syscall.EIO) {
			t.Fatalf("%s: injected failure came back as %v", op, err)
		}
		if got := states(t, f, crashfs.Strict); !slices.Equal(got, []string{"a=new", "a=nld", "a=old"}) {
			t.Errorf("%s: after the failure everything is in doubt, got %q", op, got)
		}
		must(t, h.Sync())
		if got := dump(t, f); got != "a=new" {
			t.Errorf("%s: reads see %q", op, got)
		}
		if got := states(t, f, crashfs.Strict); !slices.Equal(got, []string{"a=old"}) {
			t.Errorf("%s: after the retry the old bytes are all there is, got %q", op, got)
		}
		_, err := h.WriteAt([]byte("+"), 3)
		must(t, err)
		must(t, h.Sync())
		if got := states(t, f, crashfs.Strict); !slices.Equal(got, []string{"a=old+"}) {
			t.Errorf("%s: a later write is synced alone, got %q", op, got)
		}
	}
}

func TestADirectorySyncRetriedAfterAFailureLosesItsNames(t *testing.T) {
	for _, op := range []vfs.Op{vfs.OpSyncDir, vfs.OpSyncFS} {
		f := crashfs.New()
		put(t, f, "a", "1")
		sync := func(fsys vfs.FS) error {
			if op == vfs.OpSyncDir {
				return fsys.SyncDir("/")
			}
			return syncFS(fsys)
		}
		if err := sync(failing(f, op)); !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
		if got := states(t, f, crashfs.Strict); !slices.Equal(got, []string{"", "a=1"}) {
			t.Errorf("%s: after the failure the name is in doubt, got %q", op, got)
		}
		must(t, sync(f))
		if got := states(t, f, crashfs.Strict); !slices.Equal(got, []string{""}) || dump(t, f) != "a=1" {
			t.Errorf("%s: after the retry %q is on disk and %q is seen", op, got, dump(t, f))
		}
	}
}

func TestStatesAboveTheLimitAreASeededSampleWithBothExtremes(t *testing.T) {
	f := crashfs.New()
	for i := range 40 {
		write(t, f, fmt.Sprintf("f%02d", i), "data", os.O_CREATE)
	}
	all := dump(t, f)
	for _, p := range []crashfs.Policy{crashfs.Strict, crashfs.Journal} {
		dumps := func(seed uint64) (d []string) {
			s := f.States(p, 100, seed)
			if s.Exhaustive || s.Count != 100 {
				t.Fatalf("%v: exhaustive %v with %d states", p, s.Exhaustive, s.Count)
			}
			for c := range s.All() {
				d = append(d, dump(t, c))
			}
			return d
		}
		one := dumps(7)
		if one[0] != "" || one[1] != all {
			t.Errorf("%v: the sample starts with %q and %q", p, one[0], one[1])
		}
		if !slices.Equal(one, dumps(7)) || slices.Equal(one, dumps(8)) {
			t.Errorf("%v: the seed does not decide the sample", p)
		}
		if a, b := dump(t, f.Crash(p, 3)), dump(t, f.Crash(p, 3)); a != b {
			t.Errorf("%v: Crash is not decided by its seed", p)
		}
	}
}

func TestCutNamesWhatSurvived(t *testing.T) {
	f := crashfs.New()
	must(t, f.Mkdir("d", 0o755))
	must(t, f.SyncDir("/"))
	write(t, f, "d/tmp", "1234", os.O_CREATE)
	must(t, f.Rename("d/tmp", "d/rec"))
	found := map[string]string{}
	for c := range f.States(crashfs.Strict, 100, 1).All() {
		found[dump(t, c)] = c.Cut()
	}
	want := map[string]string{
		"d/":              "/d: lost create tmp, lost rename tmp to rec",
		"d/ d/tmp=12":     "/d: kept create tmp, lost rename tmp to rec; /d/rec: content torn",
		"d/ d/rec=0000":   "/d: kept create tmp, kept rename tmp to rec; /d/rec: content zeros",
		"d/ d/rec=1234":   "/d: kept create tmp, kept rename tmp to rec; /d/rec: content kept",
		"d/ d/rec=":       "/d: kept create tmp, kept rename tmp to rec; /d/rec: content dropped",
		"nothing pending": "",
	}
	must(t, f.SyncFS("/"))
	found["nothing pending"] = f.Crash(crashfs.Strict, 1).Cut()
	for state, cut := range want {
		if got, ok := found[state]; !ok || got != cut {
			t.Errorf("state %q: cut %q, want %q", state, got, cut)
		}
	}
}
