package groupcommit_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
	"shardlease/pkg/groupcommit/vfs/tracefs"
)

var update = flag.Bool("update", false, "rewrite the golden traces in testdata")

// scenario is one use of the package, run under tracing and under every single fault.
type scenario struct {
	name  string
	files []string // "dir/name" with content "old", or "dir/"
	run   func(fsys vfs.FS, dir string) error
}

// batch publishes "new" under each name, one update at a time, and joins all errors with that of the Flush.
func batch(names ...string) func(fsys vfs.FS, dir string) error {
	return func(fsys vfs.FS, dir string) error {
		b := groupcommit.NewBatch(fsys)
		var errs []error
		for _, name := range names {
			errs = append(errs, b.Publish([]groupcommit.Update{{Name: filepath.Join(dir, name), Data: []byte("new"), Perm: 0o666}})...)
		}
		_, err := b.Flush()
		return errors.Join(append(errs, err)...)
	}
}

var scenarios = []scenario{
	{"mkdirall", nil, func(fsys vfs.FS, dir string) error { return groupcommit.MkdirAll(fsys, dir+"/first/nested", 0o777) }},
	{"mkdirall-existing", []string{"first/nested/"}, func(fsys vfs.FS, dir string) error {
		return groupcommit.MkdirAll(fsys, dir+"/first/nested", 0o777)
	}},
	{"replace", []string{"d/src", "d/dst"}, func(fsys vfs.FS, dir string) error {
		return groupcommit.Replace(fsys, dir+"/d/src", dir+"/d/dst")
	}},
	{"replace-across", []string{"staging/h", "public/"}, func(fsys vfs.FS, dir string) error {
		return groupcommit.Replace(fsys, dir+"/staging/h", dir+"/public/h")
	}},
	{"rename-noreplace", []string{"staging/h", "public/"}, func(fsys vfs.FS, dir string) error {
		return groupcommit.RenameNoReplace(fsys, dir+"/staging/h", dir+"/public/h")
	}},
	{"link", []string{"d/src", "e/"}, func(fsys vfs.FS, dir string) error {
		return groupcommit.Link(fsys, dir+"/d/src", dir+"/e/dst")
	}},
	{"remove", []string{"d/gone"}, func(fsys vfs.FS, dir string) error { return groupcommit.Remove(fsys, dir+"/d/gone") }},
	{"removeall", []string{"epoch/a/x", "epoch/a/y", "epoch/b/"}, func(fsys vfs.FS, dir string) error {
		return groupcommit.RemoveAll(fsys, dir+"/epoch")
	}},
	{"writefile", []string{"d/rec"}, func(fsys vfs.FS, dir string) error {
		return groupcommit.WriteFile(fsys, dir+"/d/rec", []byte("new"), 0o666)
	}},
	{"writefile-leftover", []string{"d/rec", "d/rec.tmp"}, func(fsys vfs.FS, dir string) error {
		return groupcommit.WriteFile(fsys, dir+"/d/rec", []byte("new"), 0o666)
	}},
	{"batch-one-shard", []string{"0/a", "0/b"}, batch("0/a", "0/b", "0/c")},
	{"batch-two-shards", []string{"0/a", "1/b"}, batch("0/a", "1/b", "0/c")},
	{"batch-all-operations", []string{"0/src", "0/gone", "1/x", "1/y"}, func(fsys vfs.FS, dir string) error {
		b := groupcommit.NewBatch(fsys)
		errs := []error{
			b.Replace(dir+"/0/src", dir+"/0/dst"), b.Remove(dir + "/0/gone"), b.Exchange(dir+"/1/x", dir+"/1/y"),
		}
		_, err := b.Flush()
		return errors.Join(append(errs, err)...)
	}},
}

func setup(t *testing.T, files []string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, f := range files {
		if strings.HasSuffix(f, "/") {
			if err := os.MkdirAll(filepath.Join(dir, f), 0o777); err != nil {
				t.Fatal(err)
			}
			continue
		}
		put(t, filepath.Join(dir, f), "old")
	}
	return dir
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		put(t, file, got)
	}
	if want := content(file); got != want {
		t.Errorf("trace differs from %s (go test -update rewrites it)\ngot\n%swant\n%s", file, got, want)
	}
}

// Invariants G1 to G4: the order of the operations of each primitive and of the batch. Each trace also passes the
// durability check at its end.
func TestGoldenTraces(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			dir := setup(t, s.files)
			trace := tracefs.New(vfs.OS, dir)
			if err := s.run(trace, dir); err != nil {
				t.Fatal(err)
			}
			golden(t, s.name, trace.String())
			trace.Mark("returned")
			if err := trace.Check("returned"); err != nil {
				t.Error(err)
			}
		})
	}
}

// Invariant G5: the barriers of what was published before and after a failed member, and after a failed barrier.
func TestGoldenTracesOfFailures(t *testing.T) {
	for name, rule := range map[string]faultfs.Rule{
		"batch-failing-member":    {Op: vfs.OpSync, Nth: 2, Err: errInjected},
		"batch-failing-rename":    {Op: vfs.OpRename, Nth: 2, Err: errInjected},
		"batch-failing-barrier":   {Op: vfs.OpSyncDir, Err: errInjected},
		"batch-done-but-reported": {Op: vfs.OpRename, Nth: 2, Err: errInjected, After: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := setup(t, []string{"0/a", "1/b"})
			faults := faultfs.New(vfs.OS)
			faults.Inject(rule)
			trace := tracefs.New(faults, dir)
			wantIs(t, batch("0/a", "1/b", "0/c", "2/no-such-shard")(trace, dir), errInjected)
			golden(t, name, trace.String())
		})
	}
}

// FS-5 and invariant G6: each operation of each primitive fails once, before it is done and after, and its error surfaces.
// Published names hold the whole old content or the whole new one.
func TestEveryFaultOfEveryPrimitiveSurfaces(t *testing.T) {
	for _, s := range scenarios {
		dir := setup(t, s.files)
		trace := tracefs.New(vfs.OS, dir)
		if err := s.run(trace, dir); err != nil {
			t.Fatal(err)
		}
		for nth, e := range trace.Events() {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d-%s-after-%v", s.name, nth+1, e.Op, after), func(t *testing.T) {
					dir := setup(t, s.files)
					faults := faultfs.New(vfs.OS)
					faults.Inject(faultfs.Rule{Nth: nth + 1, Err: errInjected, After: after})
					err := s.run(faults, dir)
					want(t, "injected", faults.Injected(), 1)
					wantIs(t, err, errInjected)
					failedSync := e.Op == vfs.OpSyncDir
					lost := after && (e.Op == vfs.OpRename || e.Op == vfs.OpRenameNoReplace)
					if failedSync || lost {
						wantIs(t, err, groupcommit.ErrUnknown)
					}
					// A leftover stays if the fault comes before its removal; so does a file whose creation seemed to fail.
					leftover := s.name == "writefile-leftover" && nth <= 3
					wholeContents(t, dir, !leftover && !(after && e.Op == vfs.OpOpen))
				})
			}
		}
	}
}

// wholeContents checks all files below dir: old or new, never anything else.
func wholeContents(t *testing.T, dir string, noTemps bool) {
	t.Helper()
	err := filepath.Walk(dir, func(name string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		if strings.HasSuffix(name, ".tmp") {
			if noTemps {
				t.Errorf("%s stays", name)
			}
		} else if got := content(name); got != "old" && got != "new" {
			t.Errorf("%s holds %q", name, got)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
