package groupcommit_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
	"shardlease/pkg/groupcommit/vfs/tracefs"
)

var errInjected = errors.New("injected")

// barriers are the directories synced in a trace, relative to dir, in order.
func barriers(trace *tracefs.Trace, dir string) (names []string) {
	for _, e := range trace.Events() {
		if e.Op == vfs.OpSyncDir {
			rel, _ := filepath.Rel(dir, e.Name)
			names = append(names, rel)
		}
	}
	return names
}

// F323: nested directories are synced top-down, each before its parent.
func TestMkdirAllSyncsEachNewDirectoryAndItsParent(t *testing.T) {
	dir := t.TempDir()
	trace := tracefs.New(vfs.OS, dir)
	want(t, "error", groupcommit.MkdirAll(trace, dir+"/first/nested", 0o777), nil)
	wantList(t, "barriers", barriers(trace, dir), "first", ".", "first/nested", "first")
	trace.Reset()
	want(t, "error", groupcommit.MkdirAll(trace, dir+"/first/nested", 0o777), nil)
	wantList(t, "barriers when it exists", barriers(trace, dir))
}

func TestMkdirAllSyncsTheDirectoryOfTheWinnerOfARace(t *testing.T) {
	dir := t.TempDir()
	faults := faultfs.New(vfs.OS)
	faults.Inject(faultfs.Rule{Op: vfs.OpMkdir, Hook: func(c *vfs.Call) { _ = os.Mkdir(c.Name, 0o777) }})
	trace := tracefs.New(faults, dir)
	want(t, "error", groupcommit.MkdirAll(trace, dir+"/new", 0o777), nil)
	want(t, "races", faults.Injected(), 1)
	wantList(t, "barriers", barriers(trace, dir), "new", ".")

	faults.Inject(faultfs.Rule{Op: vfs.OpMkdir, Hook: func(c *vfs.Call) { _ = os.WriteFile(c.Name, nil, 0o666) }})
	wantIs(t, groupcommit.MkdirAll(trace, dir+"/file", 0o777), syscall.ENOTDIR)
}

func TestMkdirAllByManyGoroutinesAtOnce(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if err := groupcommit.MkdirAll(vfs.OS, dir+"/a/b/c/d", 0o777); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestMkdirAllAcceptsALinkToADirectoryAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/file", "")
	put(t, dir+"/real/x", "")
	for link, to := range map[string]string{"good": "real", "bad": "file", "dangling": "absent", "loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "below a link", groupcommit.MkdirAll(vfs.OS, dir+"/good/sub", 0o777), nil)
	for _, name := range []string{"file", "bad", "dangling", "loop", "file/sub", "bad/sub"} {
		wantIs(t, groupcommit.MkdirAll(vfs.OS, filepath.Join(dir, name), 0o777), syscall.ENOTDIR)
	}
}

// A barrier that failed must not become a success because the directory is found the next time.
func TestMkdirAllAfterAFailedBarrierDoesAllOfItAgain(t *testing.T) {
	for nth := 1; nth <= 2; nth++ {
		dir := t.TempDir()
		faults := faultfs.New(vfs.OS)
		faults.Inject(faultfs.Rule{Op: vfs.OpSyncDir, Nth: nth, Err: syscall.EIO})
		trace := tracefs.New(faults, dir)
		wantIs(t, groupcommit.MkdirAll(trace, dir+"/new", 0o777), groupcommit.ErrUnknown, syscall.EIO)
		trace.Reset()
		want(t, "again", groupcommit.MkdirAll(trace, dir+"/new", 0o777), nil)
		wantList(t, "barriers", barriers(trace, dir), "new", ".")
	}
}

// F323: the destination is made durable first; without it the source barrier must not run.
func TestReplaceAcrossDirectoriesSyncsTheDestinationFirst(t *testing.T) {
	dir := setup(t, []string{"staging/h", "public/"})
	faults := faultfs.New(vfs.OS)
	trace := tracefs.New(faults, dir)
	want(t, "error", groupcommit.Replace(trace, dir+"/staging/h", dir+"/public/h"), nil)
	wantList(t, "barriers", barriers(trace, dir), "public", "staging")

	trace.Reset()
	faults.Inject(faultfs.Rule{Op: vfs.OpSyncDir, Err: syscall.EIO})
	err := groupcommit.Replace(trace, dir+"/public/h", dir+"/staging/h2")
	wantIs(t, err, groupcommit.ErrUnknown, syscall.EIO)
	var barrier *groupcommit.BarrierError
	if !errors.As(err, &barrier) || barrier.Dir != dir+"/staging" {
		t.Errorf("error %v names no directory", err)
	}
	want(t, "source", content(dir+"/public/h"), "<absent>")
	want(t, "destination", content(dir+"/staging/h2"), "old")
	wantList(t, "barriers", barriers(trace, dir), "staging")
}

// FS-22: no fallback that only looks exclusive.
func TestRenameNoReplaceNeverChecksThenRenames(t *testing.T) {
	dir := setup(t, []string{"src", "dst"})
	wantIs(t, groupcommit.RenameNoReplace(vfs.OS, dir+"/src", dir+"/dst"), fs.ErrExist)
	faults := faultfs.New(vfs.OS)
	faults.Inject(faultfs.Rule{Op: vfs.OpRenameNoReplace, Err: &os.LinkError{Op: "rename", Err: syscall.ENOSYS}})
	trace := tracefs.New(faults, dir)
	err := groupcommit.RenameNoReplace(trace, dir+"/src", dir+"/new")
	wantIs(t, err, errors.ErrUnsupported)
	if errors.Is(err, groupcommit.ErrUnknown) {
		t.Errorf("%v: the source is still there", err)
	}
	want(t, "renames", len(trace.Counts().Renames), 0)
	want(t, "source", content(dir+"/src"), "old")
}

func TestLinkAndRemoveReportWhatIsNotThere(t *testing.T) {
	dir := setup(t, []string{"src", "dst"})
	wantIs(t, groupcommit.Link(vfs.OS, dir+"/src", dir+"/dst"), fs.ErrExist)
	wantIs(t, groupcommit.Link(vfs.OS, dir+"/absent", dir+"/new"), fs.ErrNotExist)
	wantIs(t, groupcommit.Remove(vfs.OS, dir+"/absent"), fs.ErrNotExist)
}

// FS-23: the operation was done and the answer was an error. Nothing says "not done" then.
func TestDoneButReportedAsFailedIsUnknown(t *testing.T) {
	for op, run := range map[vfs.Op]func(fsys vfs.FS, dir string) error{
		vfs.OpRename:          func(fsys vfs.FS, dir string) error { return groupcommit.Replace(fsys, dir+"/src", dir+"/dst") },
		vfs.OpRenameNoReplace: func(fsys vfs.FS, dir string) error { return groupcommit.RenameNoReplace(fsys, dir+"/src", dir+"/new") },
		vfs.OpLink:            func(fsys vfs.FS, dir string) error { return groupcommit.Link(fsys, dir+"/src", dir+"/new") },
		vfs.OpRemove:          func(fsys vfs.FS, dir string) error { return groupcommit.Remove(fsys, dir+"/src") },
	} {
		dir := setup(t, []string{"src", "dst"})
		faults := faultfs.New(vfs.OS)
		faults.Inject(faultfs.Rule{Op: op, Err: syscall.EIO, After: true})
		wantIs(t, run(faults, dir), syscall.EIO, groupcommit.ErrUnknown)
		want(t, string(op)+" injected", faults.Injected(), 1)

		dir = setup(t, []string{"src", "dst"})
		faults.Clear()
		faults.Inject(faultfs.Rule{Op: op, Err: syscall.EIO})
		if err := run(faults, dir); !errors.Is(err, syscall.EIO) || errors.Is(err, groupcommit.ErrUnknown) {
			t.Errorf("%s not done: %v", op, err)
		}
	}
}

// FS-19.
func TestRemoveAllFollowsNoLink(t *testing.T) {
	dir := setup(t, []string{"outside/sentinel", "epoch/a/x"})
	for _, link := range []string{"epoch/a/link", "top"} {
		if err := os.Symlink(dir+"/outside", filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "tree", groupcommit.RemoveAll(vfs.OS, dir+"/epoch"), nil)
	want(t, "link", groupcommit.RemoveAll(vfs.OS, dir+"/top"), nil)
	want(t, "sentinel", content(dir+"/outside/sentinel"), "old")
	for _, name := range []string{"epoch", "top"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there", name)
		}
	}
}

// Every operation is refused here, for a broken check must not cost the machine its files.
func TestRemoveAllRefusesWhatCannotBeMeant(t *testing.T) {
	faults := faultfs.New(vfs.OS)
	faults.Inject(faultfs.Rule{Sticky: true, Err: errInjected})
	for _, dir := range []string{"", "/", "//", ".", "..", "/..", "a/..", "./"} {
		wantIs(t, groupcommit.RemoveAll(faults, dir), fs.ErrInvalid)
	}
	want(t, "operations", faults.Injected(), 0)
}

// Done again after a crash it promises the same, though there is nothing left to remove.
func TestRemoveAllOfNothingStillSyncsTheParent(t *testing.T) {
	dir := t.TempDir()
	trace := tracefs.New(vfs.OS, dir)
	want(t, "error", groupcommit.RemoveAll(trace, dir+"/gone/"), nil)
	wantList(t, "barriers", barriers(trace, dir), ".")
}

// FS-16.
func TestSyncDirTellsUnsupportedFromFailed(t *testing.T) {
	dir := t.TempDir()
	for errno, notDurable := range map[syscall.Errno]bool{
		syscall.EINVAL: true, syscall.ENOTSUP: true, syscall.ENOSYS: true,
		syscall.EIO: false, syscall.ENOSPC: false, syscall.EDQUOT: false, syscall.ENOENT: false, syscall.EINTR: false,
	} {
		faults := faultfs.New(vfs.OS)
		faults.Inject(faultfs.Rule{Op: vfs.OpSyncDir, Sticky: true, Err: &fs.PathError{Op: "fsync", Path: dir, Err: errno}})
		err := groupcommit.SyncDir(faults, dir)
		wantIs(t, err, errno)
		want(t, errno.Error(), errors.Is(err, groupcommit.ErrNotDurable), notDurable)
		err = groupcommit.WriteFile(faults, dir+"/f", nil, 0o666)
		wantIs(t, err, errno, groupcommit.ErrUnknown)
		want(t, errno.Error(), errors.Is(err, groupcommit.ErrNotDurable), notDurable)
	}
}

// FS-3: a failed sync is final for its temp file.
func TestRetryAfterAFailedFileSyncWritesANewTempFile(t *testing.T) {
	dir := setup(t, []string{"rec"})
	faults := faultfs.New(vfs.OS)
	faults.Inject(faultfs.Rule{Op: vfs.OpSync, Err: syscall.EIO})
	trace := tracefs.New(faults, dir)
	wantIs(t, groupcommit.WriteFile(trace, dir+"/rec", []byte("new"), 0o666), syscall.EIO)
	want(t, "record", content(dir+"/rec"), "old")
	want(t, "temp", content(dir+"/rec.tmp"), "<absent>")
	want(t, "again", groupcommit.WriteFile(trace, dir+"/rec", []byte("new"), 0o666), nil)
	want(t, "created", strings.Count(trace.String(), "open rec.tmp wronly create excl\n"), 2)
	want(t, "record", content(dir+"/rec"), "new")
}

// FS-12, FS-13.
func TestFullDiskLeavesTheOldContentAndRecovers(t *testing.T) {
	dir := setup(t, []string{"rec"})
	faults := faultfs.New(vfs.OS)
	for _, rule := range []faultfs.Rule{
		{Op: vfs.OpOpen, Err: syscall.ENOSPC}, {Op: vfs.OpWrite, Err: syscall.ENOSPC, After: true}, {Op: vfs.OpSync, Err: syscall.ENOSPC},
	} {
		faults.Inject(rule)
		wantIs(t, groupcommit.WriteFile(faults, dir+"/rec", []byte("new"), 0o666), syscall.ENOSPC)
		want(t, "record", content(dir+"/rec"), "old")
	}
	faults.Inject(faultfs.Rule{Op: vfs.OpWrite, Short: 1})
	wantIs(t, groupcommit.WriteFile(faults, dir+"/rec", []byte("new"), 0o666), io.ErrShortWrite)
	want(t, "injected", faults.Injected(), 4)
	want(t, "temp", content(dir+"/rec.tmp"), "<absent>")
	want(t, "with space again", groupcommit.WriteFile(faults, dir+"/rec", []byte("new"), 0o666), nil)
}

// FS-9: what is found under the temp name is removed, never opened; only a directory stands in the way.
func TestLeftoverTempFileIsReplacedWhateverItIs(t *testing.T) {
	dir := setup(t, []string{"outside"})
	for name, leave := range map[string]func(tmp string) error{
		"file":     func(tmp string) error { return os.WriteFile(tmp, []byte("garbage of a killed writer"), 0o644) },
		"link":     func(tmp string) error { return os.Symlink(dir+"/outside", tmp) },
		"dangling": func(tmp string) error { return os.Symlink(dir+"/nowhere", tmp) },
		"dir":      func(tmp string) error { return os.Mkdir(tmp, 0o777) },
	} {
		rec := filepath.Join(dir, name)
		if err := leave(rec + ".tmp"); err != nil {
			t.Fatal(err)
		}
		err := groupcommit.WriteFile(vfs.OS, rec, []byte("new"), 0o600)
		if name == "dir" {
			wantIs(t, err, syscall.EISDIR)
			continue
		}
		want(t, name, err, nil)
		want(t, name, content(rec), "new")
		info, err := os.Lstat(rec)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
		}
	}
	want(t, "outside", content(dir+"/outside"), "old")
	want(t, "nowhere", content(dir+"/nowhere"), "<absent>")
}

// FS-18: rename acts on the name.
func TestWriteFileReplacesALinkAndLeavesItsTarget(t *testing.T) {
	dir := setup(t, []string{"real"})
	for link, to := range map[string]string{"good": "real", "dangling": "absent", "loop": "loop"} {
		name := filepath.Join(dir, link)
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
		want(t, link, groupcommit.WriteFile(vfs.OS, name, []byte("new"), 0o666), nil)
		want(t, link, content(name), "new")
	}
	want(t, "target", content(dir+"/real"), "old")
	want(t, "target", content(dir+"/absent"), "<absent>")
}

// FS-14: the temp file is beside its record, wherever TMPDIR is and wherever a link to the shard leads. A rename that
// leaves the file system fails and changes nothing.
func TestOtherFileSystemsAreNoObstacleAndNoPassage(t *testing.T) {
	other, err := os.MkdirTemp("/dev/shm", "groupcommit")
	if err != nil {
		t.Skip("needs a second file system at /dev/shm:", err)
	}
	defer os.RemoveAll(other)
	dir := setup(t, []string{"src"})
	if err := os.Symlink(other, dir+"/shard"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", other)
	b := groupcommit.NewBatch(vfs.OS)
	wantIs(t, b.Publish(updates(dir, "shard/rec"))[0], nil)
	_, err = b.Flush()
	want(t, "flush", err, nil)
	want(t, "record", content(other+"/rec"), "new")

	err = groupcommit.Replace(vfs.OS, dir+"/src", other+"/dst")
	if !errors.Is(err, syscall.EXDEV) {
		t.Skip("needs a second file system at /dev/shm: rename says", err)
	}
	want(t, "unknown", errors.Is(err, groupcommit.ErrUnknown), false)
	want(t, "source", content(dir+"/src"), "old")
}

// FS-7. The umask belongs to the process, so this test must not run in parallel with others.
func TestModeIsSubjectToTheUmaskLikeThatOfOS(t *testing.T) {
	dir := t.TempDir()
	for _, umask := range []int{0o077, 0o027, 0o002} {
		for _, perm := range []fs.FileMode{0o600, 0o644, 0o666} {
			old := syscall.Umask(umask)
			err := errors.Join(os.RemoveAll(dir+"/os"), os.WriteFile(dir+"/os", nil, perm), groupcommit.WriteFile(vfs.OS, dir+"/own", nil, perm))
			syscall.Umask(old)
			if err != nil {
				t.Fatal(err)
			}
			a, _ := os.Stat(dir + "/os")
			b, _ := os.Stat(dir + "/own")
			want(t, "mode", b.Mode(), a.Mode())
		}
	}
}
