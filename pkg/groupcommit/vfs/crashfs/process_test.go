package crashfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
)

func TestKillFreesLocksAndFilesAndKeepsWhatWasWritten(t *testing.T) {
	f := crashfs.New()
	p, other := f.Process(), f.Process()
	h := write(t, p, "a", "data", os.O_CREATE)
	lock, err := p.TryLock("l", 7)
	must(t, err)
	if _, err := other.TryLock("l", 7); !errors.Is(err, vfs.ErrLocked) {
		t.Fatalf("the second process got %v", err)
	}
	free, err := other.TryLock("l", 8)
	must(t, err)
	must(t, free.Close())

	p.Kill()
	_, writeErr := h.Write([]byte("more"))
	for what, err := range map[string]error{"write": writeErr, "mkdir": p.Mkdir("d", 0o755), "close": h.Close(), "unlock": lock.Close()} {
		var pe *fs.PathError
		if !errors.Is(err, crashfs.ErrKilled) || !errors.As(err, &pe) {
			t.Errorf("%s of a killed process: %v", what, err)
		}
	}
	taken, err := other.TryLock("l", 7)
	must(t, err)
	p.Kill() // again, and with somebody else holding the lock
	if _, err := f.TryLock("l", 7); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("killing a process twice freed another one's lock: %v", err)
	}
	must(t, taken.Close())
	if got := dump(t, f); got != "a=data l=" {
		t.Errorf("the page cache lost something: %q", got)
	}
}

func TestAPowerCutFreesAllLocks(t *testing.T) {
	f := crashfs.New()
	_, err := f.TryLock("l", 1)
	must(t, err)
	must(t, f.SyncDir("/"))
	for crashed := range f.States(crashfs.Strict, 10, 1).All() {
		l, err := crashed.TryLock("l", 1)
		must(t, err)
		must(t, l.Close())
	}
	if _, err := f.TryLock("l", 1); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("looking at the states freed the lock: %v", err)
	}
}

func TestARemovedFileLivesOnInItsDescriptors(t *testing.T) {
	f := crashfs.New()
	h := write(t, f, "a", "1", os.O_CREATE)
	must(t, f.Remove("a"))
	put(t, f, "a", "2")
	_, err := h.Write([]byte("3"))
	must(t, err)
	must(t, h.Sync())
	must(t, h.Close())
	if got := dump(t, f); got != "a=2" {
		t.Errorf("the new file has the old one's bytes: %q", got)
	}
	if err := h.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("closing twice: %v", err)
	}
}

// churn does one drawn operation; errors are part of the game.
func churn(t *rapid.T, fsys vfs.FS) {
	name := rapid.SampledFrom([]string{"a", "b", "d", "d/a", "d/b"})
	n, m := name.Draw(t, "name"), name.Draw(t, "other")
	switch rapid.IntRange(0, 9).Draw(t, "call") {
	case 0, 1, 2:
		if f, err := fsys.OpenFile(n, os.O_RDWR|os.O_CREATE, 0o644); err == nil {
			_, _ = f.WriteAt([]byte(rapid.StringMatching(`[a-z]{1,3}`).Draw(t, "data")), 0)
			if rapid.Bool().Draw(t, "sync") {
				_ = f.Sync()
			}
			_ = f.Close()
		}
	case 3, 4:
		_ = fsys.Rename(n, m)
	case 5:
		_ = fsys.Link(n, m)
	case 6:
		_ = fsys.Remove(n)
	case 7:
		_ = fsys.Mkdir("d", 0o755)
	case 8:
		_ = fsys.SyncDir(rapid.SampledFrom([]string{"/", "d"}).Draw(t, "dir"))
	case 9:
		_ = fsys.Exchange(n, m)
	}
}

func TestEveryJournalStateIsAStrictStateAndBothHaveTheExtremes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := crashfs.New()
		for range rapid.IntRange(0, 12).Draw(rt, "steps") {
			churn(rt, f)
		}
		before := dump(t, f)
		strict := f.States(crashfs.Strict, 20_000, 1)
		if !strict.Exhaustive {
			return
		}
		all := map[string]bool{}
		for c := range strict.All() {
			all[dump(t, c)] = true
		}
		if !all[before] {
			rt.Fatalf("no state in which everything survived, %q", before)
		}
		for c := range f.States(crashfs.Journal, 20_000, 1).All() {
			d := dump(t, c)
			if !all[d] {
				rt.Fatalf("the journal leaves %q (%s), which strict does not", d, c.Cut())
			}
			if s := c.States(crashfs.Strict, 10, 1); s.Count != 1 || dump(t, c.Crash(crashfs.Strict, 1)) != d {
				rt.Fatalf("%q after a power cut is not durable", d)
			}
		}
		must(t, f.SyncFS("/"))
		if got := states(t, f, crashfs.Strict); !slices.Equal(got, []string{before}) || dump(t, f) != before {
			rt.Fatalf("SyncFS of %q left %q", before, got)
		}
	})
}

func TestClonesAndCrashedFileSystemsAreIndependent(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := crashfs.New()
		for range 6 {
			churn(rt, f)
		}
		clone, crashed := f.Clone(), f.Crash(crashfs.Strict, 1)
		want, wantStates, wantCrashed := dump(t, f), states(t, f, crashfs.Strict), dump(t, crashed)
		if got := states(t, clone, crashfs.Strict); !slices.Equal(got, wantStates) {
			rt.Fatalf("the clone has the states %q, not %q", got, wantStates)
		}
		i := rapid.IntRange(0, 2).Draw(rt, "which")
		for range 6 {
			churn(rt, []*crashfs.FS{f, clone, crashed}[i])
		}
		if i != 0 && (dump(t, f) != want || !slices.Equal(states(t, f, crashfs.Strict), wantStates)) {
			rt.Fatalf("number %d changed its origin", i)
		}
		if i != 1 && (dump(t, clone) != want || !slices.Equal(states(t, clone, crashfs.Strict), wantStates)) {
			rt.Fatalf("number %d changed the clone", i)
		}
		if i != 2 && dump(t, crashed) != wantCrashed {
			rt.Fatalf("number %d changed the crashed one", i)
		}
	})
}

// replace publishes a content durably, as pkg/groupcommit does.
func replace(fsys vfs.FS, name, data string) error {
	h, err := fsys.OpenFile(name+".tmp", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = h.Write([]byte(data))
	return errors.Join(err, h.Sync(), h.Close(), fsys.Rename(name+".tmp", name), fsys.SyncDir("/"))
}

func TestALongRunKeepsNoGarbage(t *testing.T) {
	f := crashfs.New()
	kept := write(t, f, "gone", "x", os.O_CREATE)
	must(t, f.Remove("gone"))
	for i := range 5000 {
		must(t, replace(f, fmt.Sprint("r", i%10), fmt.Sprint(i)))
	}
	_, err := kept.Write([]byte("y"))
	must(t, err)
	if n := f.Inodes(); n > 2048 {
		t.Errorf("%d inodes for 10 files", n)
	}
	want := "r0=4990 r1=4991 r2=4992 r3=4993 r4=4994 r5=4995 r6=4996 r7=4997 r8=4998 r9=4999"
	if got := states(t, f, crashfs.Strict); !slices.Equal(got, []string{want}) {
		t.Errorf("the files are damaged: %q", got)
	}
}

func TestConcurrentUseIsSafe(t *testing.T) {
	f := crashfs.New()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 50 {
				if err := replace(f.Process(), fmt.Sprintf("g%d", g), fmt.Sprint(i)); err != nil {
					t.Error(err)
				}
				for c := range f.States(crashfs.Strict, 20, uint64(i)).All() {
					if err := c.SyncDir("/"); err != nil {
						t.Error(err)
					}
				}
				f.Crash(crashfs.Journal, uint64(i)).Clone()
			}
		})
	}
	wg.Wait()
	if got, want := states(t, f, crashfs.Strict), []string{"g0=49 g1=49 g2=49 g3=49"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTheClockDatesFiles(t *testing.T) {
	f := crashfs.New()
	now := time.Unix(1000, 0)
	f.SetClock(func() time.Time { return now })
	put(t, f, "a", "1")
	now = now.Add(time.Hour)
	for _, fsys := range []*crashfs.FS{f, f.Clone()} {
		i, err := fsys.Lstat("a")
		must(t, err)
		if !i.ModTime().Equal(time.Unix(1000, 0)) {
			t.Errorf("dated %v", i.ModTime())
		}
		put(t, fsys, "b", "1")
		if i, err = fsys.Lstat("b"); err != nil || !i.ModTime().Equal(now) {
			t.Errorf("dated %v, %v", i.ModTime(), err)
		}
	}
}

func TestSweepCutsAtEveryChangeAndAtEveryPromise(t *testing.T) {
	acked := 0
	s := crashfs.Sweep{Limit: 100, Seed: 1}
	work := func(barrier bool) func(vfs.FS, func(string)) {
		return func(fsys vfs.FS, ack func(string)) {
			put(t, fsys, "a", "1")
			if barrier {
				must(t, fsys.SyncDir("/"))
			}
			acked = 1
			ack("a")
		}
	}
	check := func(crashed *crashfs.FS) error {
		if _, err := crashed.Lstat("a"); err != nil && acked == 1 {
			return err
		}
		return nil
	}
	must(t, s.Run(crashfs.New(), work(true), check))
	// start 1; create 2; write 4 (no name; dropped, zeros, kept: half of one byte is none); sync 2; barrier, promise, end
	if s.Moments != 7 || s.Sampled != 0 || s.States != 2*(1+2+4+2+1+1+1) {
		t.Errorf("swept %v", &s)
	}
	acked = 0
	err := s.Run(crashfs.New(), work(false), check)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a promise without a barrier was let through: %v", err)
	}
	t.Log(err)
}

func BenchmarkStates(b *testing.B) {
	f := crashfs.New()
	for i := range 16 {
		put(b, f, fmt.Sprint("durable", i), "data")
	}
	must(b, f.SyncDir("/"))
	for i := range 3 {
		name := fmt.Sprint("rec", i)
		write(b, f, name+".tmp", "data", os.O_CREATE)
		must(b, f.Rename(name+".tmp", name))
	}
	n := 0
	for b.Loop() {
		for c := range f.States(crashfs.Strict, 10_000, 1).All() {
			_, _ = c.Lstat("rec0")
			n++
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/state")
}

func TestFaultsOfAProcessAreItsOwnAndEndWithIt(t *testing.T) {
	disk := crashfs.New()
	p := disk.Process()
	failing := true
	fsys := p.WithFaults(func(c *vfs.Call) error {
		if failing && c.Op == vfs.OpMkdir {
			return syscall.EIO
		}
		return nil
	})
	if err := fsys.Mkdir("/a", 0o777); !errors.Is(err, syscall.EIO) {
		t.Errorf("failing: %v", err)
	}
	if err := disk.Mkdir("/a", 0o777); err != nil {
		t.Errorf("another process: %v", err)
	}
	failing = false
	lock, err := fsys.TryLock("/lock", 0)
	if err != nil {
		t.Fatal(err)
	}
	p.Kill()
	if err := fsys.Mkdir("/b", 0o777); !errors.Is(err, crashfs.ErrKilled) {
		t.Errorf("killed: %v", err)
	}
	if _, err := disk.TryLock("/lock", 0); err != nil {
		t.Errorf("the lock of a killed process: %v", err)
	}
	_ = lock.Close() // the process is gone, and with it the lock
}
