package faultfs_test

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"testing"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
)

var errInjected = errors.New("injected")

func injected(t *testing.T, f *faultfs.FS, want int) {
	t.Helper()
	if got := f.Injected(); got != want {
		t.Errorf("injected %d, want %d", got, want)
	}
}

func TestRuleFiresOnItsOccurrenceOnceOrForEver(t *testing.T) {
	dir := t.TempDir()
	for _, sticky := range []bool{false, true} {
		f := faultfs.New(vfs.OS)
		f.Inject(faultfs.Rule{Op: vfs.OpSyncDir, Nth: 2, Sticky: sticky, Err: errInjected})
		var got []bool
		for range 4 {
			got = append(got, f.SyncDir(dir) == nil)
		}
		want := []bool{true, false, !sticky, !sticky}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("sticky %v: succeeded %v, want %v", sticky, got, want)
				break
			}
		}
	}
}

func TestRuleMatchesEitherNameAndItsFunction(t *testing.T) {
	dir := t.TempDir()
	f := faultfs.New(vfs.OS)
	f.Inject(faultfs.Rule{Op: vfs.OpRename, Base: "new*", Sticky: true, Err: errInjected})
	f.Inject(faultfs.Rule{Match: func(c *vfs.Call) bool { return c.Op == vfs.OpMkdir }, Err: fs.ErrPermission})
	if err := f.Rename(dir+"/a", dir+"/new1"); err != errInjected {
		t.Error(err)
	}
	if err := f.Rename(dir+"/new1", dir+"/a"); err != errInjected {
		t.Error(err)
	}
	if err := f.Rename(dir+"/a", dir+"/b"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := f.Mkdir(dir+"/d", 0o777); err != fs.ErrPermission {
		t.Error(err)
	}
	injected(t, f, 3)
	f.Clear()
	injected(t, f, 0)
	if err := f.Mkdir(dir+"/d", 0o777); err != nil {
		t.Error(err)
	}
}

func TestAfterDoesTheOperationAndFailsAllTheSame(t *testing.T) {
	dir := t.TempDir()
	f := faultfs.New(vfs.OS)
	f.Inject(faultfs.Rule{Op: vfs.OpMkdir, Err: errInjected, After: true})
	if err := f.Mkdir(dir+"/d", 0o777); err != errInjected {
		t.Error(err)
	}
	if _, err := os.Stat(dir + "/d"); err != nil {
		t.Error("not done:", err)
	}
	f.Inject(faultfs.Rule{Op: vfs.OpOpen, Err: errInjected, After: true, Sticky: true})
	for range 5000 { // more than the usual limit of descriptors, if each leaked
		if _, err := f.OpenFile(dir+"/file", os.O_CREATE|os.O_RDWR, 0o666); err != errInjected {
			t.Fatal(err)
		}
	}
	f.Inject(faultfs.Rule{Op: vfs.OpLock, Err: errInjected, After: true})
	if _, err := f.TryLock(dir+"/lock", 0); err != errInjected {
		t.Error(err)
	}
	l, err := f.TryLock(dir+"/lock", 0)
	if err != nil {
		t.Fatal("the lock that nobody got is held:", err)
	}
	f.Inject(faultfs.Rule{Op: vfs.OpUnlock, Err: errInjected})
	if err := l.Close(); err != errInjected {
		t.Error(err)
	}
	if l, err = f.TryLock(dir+"/lock", 0); err != nil {
		t.Fatal("a failed unlock leaks the lock:", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestShortWriteSaysNothingAndWritesLess(t *testing.T) {
	name := t.TempDir() + "/file"
	f := faultfs.New(vfs.OS)
	f.Inject(faultfs.Rule{Op: vfs.OpWrite, Short: 2})
	w, err := f.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := w.Write([]byte("12345")); n != 3 || err != nil {
		t.Errorf("wrote %d, %v", n, err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if data, _ := os.ReadFile(name); string(data) != "123" {
		t.Errorf("content %q", data)
	}
	injected(t, f, 1)
}

func TestHookBlocksOnlyItsOwnOperation(t *testing.T) {
	dir := t.TempDir()
	f := faultfs.New(vfs.OS)
	blocked, release := make(chan string), make(chan struct{})
	f.Inject(faultfs.Rule{Op: vfs.OpSyncDir, Hook: func(c *vfs.Call) { blocked <- c.Name; <-release }})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f.SyncDir(dir); err != nil {
			t.Error(err)
		}
	})
	if name := <-blocked; name != dir {
		t.Errorf("blocked on %s", name)
	}
	if err := f.SyncDir(dir); err != nil { // the second one is not held up
		t.Error(err)
	}
	close(release)
	wg.Wait()
	injected(t, f, 1)
}
