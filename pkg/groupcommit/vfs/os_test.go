package vfs_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"shardlease/pkg/groupcommit/vfs"
)

// holdEnv makes the test binary a process that holds key 1 of the named lock file and has a child that outlives it.
const holdEnv = "VFS_TEST_HOLD_LOCK"

func TestMain(m *testing.M) {
	if name := os.Getenv(holdEnv); name != "" {
		hold(name)
	}
	os.Exit(m.Run())
}

func hold(name string) {
	if _, err := vfs.OS.TryLock(name, 1); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(child.Process.Pid)
	select {}
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := vfs.ReadFile(vfs.OS, name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func wantIs(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("error %v does not match %v", err, target)
		}
	}
}

func TestOpenFileNeverFollowsALinkAndClosesOnExec(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/file", "x")
	if err := os.Symlink("file", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	_, err := vfs.OS.OpenFile(dir+"/link", os.O_RDWR, 0)
	wantIs(t, err, unix.ELOOP)
	_, err = vfs.OS.OpenFile(dir+"/link", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	wantIs(t, err, fs.ErrExist)

	f, err := vfs.OS.OpenFile(dir+"/file", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	flags, err := unix.FcntlInt(descriptorOf(t, dir+"/file"), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("descriptor flags %#x, %v: no FD_CLOEXEC", flags, err)
	}
}

// descriptorOf returns this process's descriptor of a file.
func descriptorOf(t *testing.T, name string) uintptr {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range fds {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && target == name {
			n, err := strconv.Atoi(e.Name())
			if err != nil {
				t.Fatal(err)
			}
			return uintptr(n)
		}
	}
	t.Fatalf("%s is not open", name)
	return 0
}

func TestFileSyncsAndReportsAClosedDescriptor(t *testing.T) {
	name := t.TempDir() + "/file"
	f, err := vfs.OS.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("xyz"), 2); err != nil {
		t.Error(err)
	}
	wantIs(t, f.Datasync(), nil)
	wantIs(t, f.Sync(), nil)
	wantIs(t, f.Close(), nil)
	wantIs(t, f.Datasync(), fs.ErrClosed)
	wantIs(t, f.Sync(), fs.ErrClosed)
	if got := read(t, name); got != "\x00\x00xyz" {
		t.Errorf("content %q", got)
	}
}

func TestRenameNoReplaceAndExchange(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a", "a")
	write(t, dir+"/b", "b")
	wantIs(t, vfs.OS.RenameNoReplace(dir+"/a", dir+"/b"), fs.ErrExist)
	wantIs(t, vfs.OS.Exchange(dir+"/a", dir+"/b"), nil)
	if got := read(t, dir+"/a") + read(t, dir+"/b"); got != "ba" {
		t.Errorf("after exchange %q, want ba", got)
	}
	wantIs(t, vfs.OS.Exchange(dir+"/a", dir+"/absent"), fs.ErrNotExist)
	wantIs(t, vfs.OS.RenameNoReplace(dir+"/a", dir+"/c"), nil)
	wantIs(t, vfs.OS.Rename(dir+"/c", dir+"/b"), nil)
	if got := read(t, dir+"/b"); got != "b" {
		t.Errorf("after rename %q, want b", got)
	}
	var link *os.LinkError
	if err := vfs.OS.Rename(dir+"/absent", dir+"/b"); !errors.As(err, &link) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("rename of an absent file: %v", err)
	}
}

func TestSyncDirSurfacesWhatIsNotADirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/file", "")
	wantIs(t, vfs.OS.SyncDir(dir), nil)
	wantIs(t, vfs.OS.SyncDir(dir+"/file"), unix.ENOTDIR)
	wantIs(t, vfs.OS.SyncDir(dir+"/absent"), fs.ErrNotExist)
}

// A file system that would not report a lost write is refused: proc stands for overlayfs, FUSE and the network ones.
func TestSyncFSIsRefusedWhereItWouldNotReportLostWrites(t *testing.T) {
	name := t.TempDir() + "/file"
	write(t, name, "")
	for name, want := range map[string]error{name: nil, "/proc/self/status": errors.ErrUnsupported} {
		f, err := vfs.OS.OpenFile(name, os.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.SyncFS(); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		f.Close()
		if err := f.SyncFS(); err == nil {
			t.Error("synced a closed file")
		}
	}
}

func TestReadFileRefusesMoreThanItsLimit(t *testing.T) {
	name := t.TempDir() + "/file"
	write(t, name, "12345")
	if data, err := vfs.ReadFile(vfs.OS, name, 5); err != nil || string(data) != "12345" {
		t.Errorf("got %q, %v", data, err)
	}
	_, err := vfs.ReadFile(vfs.OS, name, 4)
	wantIs(t, err, vfs.ErrTooLarge)
}

// LK-9, LK-11: handles of one process exclude each other key by key, in any order, without EDEADLK.
func TestLocksExcludeByKeyWithinOneProcess(t *testing.T) {
	name := t.TempDir() + "/locks"
	for _, key := range []uint64{0, 1, 1<<63 - 1} {
		l, err := vfs.OS.TryLock(name, key)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, err = vfs.OS.TryLock(name, key)
		wantIs(t, err, vfs.ErrLocked)
	}
	_, err := vfs.OS.TryLock(name, 1<<63) // the top bit is not part of the key
	wantIs(t, err, vfs.ErrLocked)
}

// LK-9: of several keys at once the free ones are taken, and given back together.
func TestTryLockTakesThoseOfItsKeysThatAreFree(t *testing.T) {
	name := t.TempDir() + "/locks"
	try := func(keys ...uint64) vfs.Lock {
		t.Helper()
		l, err := vfs.OS.TryLock(name, keys...)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	first := try(3, 9)
	second := try(9, 1, 3, 2, 1<<63+2)
	for i, want := range []bool{false, true, false, true, true} {
		if second.Held(i) != want {
			t.Errorf("key number %d: held is %t", i, !want)
		}
	}
	for _, keys := range [][]uint64{{3}, {1}, {2, 9}} {
		_, err := vfs.OS.TryLock(name, keys...)
		wantIs(t, err, vfs.ErrLocked)
	}
	wantIs(t, second.Close(), nil)
	third := try(1, 2, 3)
	if !third.Held(0) || !third.Held(1) || third.Held(2) {
		t.Error("what another had is not free, or what the first has is")
	}
	wantIs(t, errors.Join(first.Close(), third.Close()), nil)
}

func TestLockHolderCanCloseOnlyOnce(t *testing.T) {
	name := t.TempDir() + "/locks"
	first, err := vfs.OS.TryLock(name, 7)
	if err != nil {
		t.Fatal(err)
	}
	wantIs(t, first.Close(), nil)
	second, err := vfs.OS.TryLock(name, 7) // likely gets the same descriptor number
	if err != nil {
		t.Fatal(err)
	}
	wantIs(t, first.Close(), fs.ErrClosed)
	_, err = vfs.OS.TryLock(name, 7)
	wantIs(t, err, vfs.ErrLocked)
	wantIs(t, second.Close(), nil)
	if _, err := os.Stat(name); err != nil {
		t.Errorf("LK-1: the lock file must stay: %v", err)
	}
}

func TestTryLockRefusesWhatIsNotRegular(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(dir+"/dir", 0o777), os.Symlink("file", dir+"/link"), unix.Mkfifo(dir+"/fifo", 0o666)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dir", "link", "fifo"} {
		_, err := vfs.OS.TryLock(filepath.Join(dir, name), 0)
		wantIs(t, err, vfs.ErrNotRegular)
	}
	_, err := vfs.OS.TryLock(dir+"/absent/lock", 0)
	wantIs(t, err, fs.ErrNotExist)
	if errors.Is(err, vfs.ErrLocked) {
		t.Errorf("%v looks like contention", err)
	}
	if _, err := os.Lstat(dir + "/file"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the link was followed: %v", err)
	}
}

// LK-11: of many goroutines at most one is inside.
func TestLockAdmitsOneGoroutineAtATime(t *testing.T) {
	name := t.TempDir() + "/locks"
	var inside, entered atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				l, err := vfs.OS.TryLock(name, 3)
				if errors.Is(err, vfs.ErrLocked) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d goroutines inside", n)
				}
				entered.Add(1)
				inside.Add(-1)
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if entered.Load() == 0 {
		t.Error("nobody got the lock")
	}
}

// LK-7: a child between fork and exec has a copy of the descriptor; a released lock is free all the same.
func TestLockIsFreeAtOnceAfterCloseInAForkStorm(t *testing.T) {
	name := t.TempDir() + "/locks"
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command("true").Run()
				}
			}
		})
	}
	busy := 0
	for range 2000 {
		l, err := vfs.OS.TryLock(name, 0)
		if errors.Is(err, vfs.ErrLocked) {
			busy++
			continue
		}
		if err == nil {
			err = l.Close()
		}
		if err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
	if busy > 0 {
		t.Errorf("lock was busy %d times, though nobody held it", busy)
	}
}

// LK-6: the death of the holder releases the lock, even while a child of it lives on.
func TestKilledHolderReleasesThoughItsChildLives(t *testing.T) {
	name := t.TempDir() + "/locks"
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), holdEnv+"="+name)
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	line := bufio.NewScanner(out)
	line.Scan()
	child, err := strconv.Atoi(line.Text())
	if err != nil {
		t.Fatalf("holder says %q", line.Text())
	}
	defer func() { _ = unix.Kill(child, unix.SIGKILL) }()
	_, err = vfs.OS.TryLock(name, 1)
	wantIs(t, err, vfs.ErrLocked)
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = holder.Process.Wait() // Wait of Cmd would wait for the child's copy of the pipe too
	if err := unix.Kill(child, 0); err != nil {
		t.Fatalf("the child is gone, so this test shows nothing: %v", err)
	}
	l, err := vfs.OS.TryLock(name, 1)
	if err != nil {
		t.Fatal(err)
	}
	wantIs(t, l.Close(), nil)
}

// A hint has no result, whatever the file: closed, read-only, or on a file system without write-back.
func TestStartSyncIsOnlyAHint(t *testing.T) {
	name := t.TempDir() + "/file"
	for _, flag := range []int{os.O_RDWR | os.O_CREATE, os.O_RDONLY} {
		f, err := vfs.OS.OpenFile(name, flag, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if flag != os.O_RDONLY {
			if _, err := f.Write([]byte("content")); err != nil {
				t.Fatal(err)
			}
		}
		f.StartSync()
		wantIs(t, f.Close(), nil)
		f.StartSync() // must not touch a descriptor that has its number by now
	}
	if data, err := os.ReadFile(name); err != nil || string(data) != "content" {
		t.Errorf("got %q, %v", data, err)
	}
}
