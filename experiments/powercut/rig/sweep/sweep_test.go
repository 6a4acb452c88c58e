package sweep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"shardlease/experiments/powercut/rig/loopdev"
	"shardlease/experiments/powercut/rig/recdisk"
	"shardlease/experiments/powercut/rig/workload"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if self, err := built(); err == nil {
		os.RemoveAll(filepath.Dir(self))
	}
	os.Exit(code)
}

// built is the rig, built once for all tests.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rig")
	if err != nil {
		return "", err
	}
	self := filepath.Join(dir, "rig")
	out, err := exec.Command("go", "build", "-o", self, "..").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return self, nil
})

// bench builds the rig and gives it a place to work, or skips.
func bench(t *testing.T) Bench {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts file systems on loop devices")
	}
	for _, dev := range []string{"/dev/fuse", "/dev/loop-control"} {
		if _, err := os.Stat(dev); err != nil {
			t.Skipf("needs %s: %v", dev, err)
		}
	}
	self, err := built()
	if err != nil {
		t.Fatal(err)
	}
	fs, err := loopdev.Find("ext4")
	if err != nil {
		t.Fatal(err)
	}
	b := Bench{Self: self, Dir: filepath.Join(t.TempDir(), "bench"), FS: fs}
	t.Cleanup(func() {
		if err := b.CleanUp(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func sweepOf(t *testing.T, b Bench, twin string, f recdisk.Faults, p Plan) (Report, *recdisk.Recording, workload.Config) {
	t.Helper()
	c := small
	c.Twin = twin
	rec, _, err := b.Record(t.Context(), c, f, "")
	if err != nil {
		t.Fatal(err)
	}
	p.Seed, p.Keep = 5, 1
	rep, err := b.Sweep(t.Context(), rec, c, p)
	if err != nil {
		t.Fatal(err)
	}
	return rep, rec, c
}

// lost says what is wrong with the tallies of a sound product on a sound disk; empty is nothing. Half of a torn write may leave no file system
// behind: ext4 writes its superblock, two sectors with one checksum, past the journal while it mounts. Without a torn write each must mount.
func lost(cells Cells) string {
	for _, c := range cells {
		torn := c.Mode == recdisk.Prefix.String() || c.Mode == recdisk.Sectors.String()
		if c.Bad > 0 || c.Unmountable > 0 && !torn || 2*c.Unmountable > c.States {
			return fmt.Sprintf("%+v", c)
		}
	}
	return ""
}

func TestOnlyATornWriteMayCostTheFileSystem(t *testing.T) {
	for _, c := range []struct {
		cell Cell
		ok   bool
	}{
		{Cell{"sectors", true, Tally{States: 9}}, true},
		{Cell{"sectors", true, Tally{States: 9, Unmountable: 1}}, true},
		{Cell{"prefix", true, Tally{States: 9, Unmountable: 1}}, true},
		{Cell{"sectors", true, Tally{States: 9, Unmountable: 5}}, false},
		{Cell{"whole", false, Tally{States: 9, Unmountable: 1}}, false},
		{Cell{"none", false, Tally{States: 9, Unmountable: 1}}, false},
		{Cell{"all", false, Tally{States: 9, Unmountable: 1}}, false},
		{Cell{"sectors", true, Tally{States: 9, Bad: 1}}, false},
	} {
		if found := lost(Cells{{"none", true, Tally{States: 3}}, c.cell}); (found == "") != c.ok {
			t.Errorf("%+v: %q", c.cell, found)
		}
	}
}

var small = workload.Config{Seed: 5, Batches: 6, Items: 6, Targets: 4, Lanes: 2, Shards: 2}

func TestNothingAcknowledgedIsLostAtAnySampledCut(t *testing.T) {
	rep, _, _ := sweepOf(t, bench(t), "", recdisk.Faults{}, Plan{Points: 12, Acks: 8})
	if found := lost(rep.Cells); rep.Cells.Total().States < 12*len(recdisk.Modes()) || found != "" {
		t.Errorf("%s: %+v", found, rep)
	}
}

func TestNothingIsLostWhenThePowerFailsAgainDuringRecovery(t *testing.T) {
	rep, _, _ := sweepOf(t, bench(t), "", recdisk.Faults{}, Plan{Points: 4, Acks: 4, Again: 3, AgainPoints: 4})
	if found := lost(rep.Again); rep.Again.Total().States < 3*len(recdisk.Modes()) || found != "" {
		t.Errorf("%s: %+v", found, rep)
	}
}

func TestEachTwinIsCaughtAndItsViolationReplays(t *testing.T) {
	b := bench(t)
	for _, twin := range workload.CutTwins {
		rep, rec, c := sweepOf(t, b, twin, recdisk.Faults{}, Plan{Acks: 6})
		if rep.Cells.Total().Bad == 0 {
			t.Errorf("twin %s was not caught", twin)
			continue
		}
		if fault, err := b.Replay(t.Context(), rec, c, rep.Violations[0]); fault == nil || err != nil {
			t.Errorf("twin %s: the violation does not replay: %v, %v, %+v", twin, fault, err, rep.Violations[0])
		}
	}
}

func TestALyingDiskIsCaught(t *testing.T) {
	rep, _, _ := sweepOf(t, bench(t), "", recdisk.Faults{Lying: true}, Plan{Acks: 6})
	if sum := rep.Cells.Total(); sum.Bad+sum.Unmountable == 0 {
		t.Errorf("not caught: %+v", sum)
	}
}

func TestADiskThatFailsOnceLosesNothingAcknowledged(t *testing.T) {
	all, err := bench(t).Breakages(t.Context(), small, 2, Plan{Acks: 2, Seed: 5, Keep: 1})
	if err != nil {
		t.Fatal(err)
	}
	hits, failed := 0, 0
	for _, br := range all {
		// A tally of all modes, of which two in five tear a write; see lost.
		if br.Bad > 0 || 5*br.Unmountable > 2*br.States {
			t.Errorf("%+v", br)
		}
		if br.Hit {
			hits++
		}
		failed += br.Failed
	}
	if hits == 0 || failed == 0 {
		t.Errorf("%d requests failed, and %d operations: nothing was tried", hits, failed)
	}
}

func TestWhoTriesAFailedSyncAgainIsCaught(t *testing.T) {
	c := small
	c.Twin = workload.BrokenDiskTwins[0]
	all, err := bench(t).Breakages(t.Context(), c, 2, Plan{Acks: 2, Seed: 5, Keep: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, br := range all {
		if br.Kind == FailedData && br.Bad > 0 {
			return
		}
	}
	t.Errorf("not caught: %+v", all)
}

func TestARigThatWasKilledIsCleanedUpByTheNext(t *testing.T) {
	b := bench(t)
	killed := exec.Command(b.Self, "sweep", "-dir", b.Dir, "-every", "-batches", "200")
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	for range 1000 { // until it is at work on mounts
		if mounts, _ := os.ReadFile("/proc/self/mounts"); strings.Contains(string(mounts), b.path("mnt")) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed.Wait()
	next := exec.Command(b.Self, "sweep", "-dir", b.Dir, "-points", "2", "-batches", "2")
	if out, err := next.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := os.Stat(b.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
	for _, file := range []string{"/proc/self/mounts", "/proc/self/mountinfo"} {
		if data, err := os.ReadFile(file); err != nil || strings.Contains(string(data), b.Dir) {
			t.Errorf("%s still names %s (%v)", file, b.Dir, err)
		}
	}
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range loops {
		if name, _ := os.ReadFile(l); strings.HasPrefix(string(name), b.Dir) {
			t.Errorf("%s is still attached to %s", l, name)
		}
	}
	left := func() string { return processesNaming(t, b.Dir) }
	for range 200 {
		if left() == "" {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("still running: %s", left())
}

// processesNaming lists the processes with the text in their arguments.
func processesNaming(t *testing.T, text string) string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range files {
		if args, _ := os.ReadFile(f); strings.Contains(string(args), text) {
			found = append(found, strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	return strings.Join(found, "; ")
}

func TestTwoRigsDoNotShareADirectory(t *testing.T) {
	b := Bench{Dir: t.TempDir()}
	unlock, err := b.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := b.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second lock: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	again, err := b.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := again(); err != nil {
		t.Error(err)
	}
}

func TestASweepEndsWithItsContext(t *testing.T) {
	b := bench(t)
	rec, _, err := b.Record(t.Context(), small, recdisk.Faults{}, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Sweep(ctx, rec, small, Plan{Every: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
