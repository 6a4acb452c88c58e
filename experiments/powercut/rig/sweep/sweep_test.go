package sweep

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"shardlease/experiments/powercut/rig/loopdev"
	"shardlease/experiments/powercut/rig/recdisk"
	"shardlease/experiments/powercut/rig/workload"
)

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
	self := filepath.Join(t.TempDir(), "rig")
	if out, err := exec.Command("go", "build", "-o", self, "..").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
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
	c := workload.Config{Seed: 5, Batches: 8, Items: 6, Shards: 2, Twin: twin}
	rec, err := b.Record(t.Context(), c, f)
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

func TestNothingAcknowledgedIsLostAtAnySampledCut(t *testing.T) {
	rep, _, _ := sweepOf(t, bench(t), "", recdisk.Faults{}, Plan{Points: 15})
	if sum := rep.Totals(); sum.States != 75 || sum.Bad+sum.Unmountable > 0 {
		t.Errorf("%+v: %+v", sum, rep.Violations)
	}
}

func TestEachTwinIsCaughtAndItsViolationReplays(t *testing.T) {
	b := bench(t)
	for twin := range workload.Twins {
		rep, rec, c := sweepOf(t, b, twin, recdisk.Faults{}, Plan{Points: 6, Acks: true})
		if rep.Totals().Bad == 0 {
			t.Errorf("twin %s was not caught", twin)
			continue
		}
		if err := os.MkdirAll(b.path("crash"), 0o700); err != nil {
			t.Fatal(err)
		}
		if b.Replay(t.Context(), rec, c, rep.Violations[0]) == nil {
			t.Errorf("twin %s: the violation does not replay: %+v", twin, rep.Violations[0])
		}
	}
}

func TestALyingDiskIsCaught(t *testing.T) {
	rep, _, _ := sweepOf(t, bench(t), "", recdisk.Faults{Lying: true}, Plan{Points: 6, Acks: true})
	if sum := rep.Totals(); sum.Bad+sum.Unmountable == 0 {
		t.Errorf("not caught: %+v", sum)
	}
}

func TestARigThatWasKilledIsCleanedUpByTheNext(t *testing.T) {
	b := bench(t)
	if err := os.MkdirAll(b.path("mnt"), 0o700); err != nil {
		t.Fatal(err)
	}
	image := b.path("left.img")
	if err := (recdisk.Image{}).WriteFile(image, b.FS.Size); err != nil {
		t.Fatal(err)
	}
	if err := b.FS.Format(image); err != nil {
		t.Fatal(err)
	}
	if err := loopdev.Mount(image, b.path("mnt"), b.FS.Name, ""); err != nil {
		t.Fatal(err)
	}
	if err := b.CleanUp(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(b.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}

func TestASweepEndsWithItsContext(t *testing.T) {
	b := bench(t)
	c := workload.Config{Seed: 5, Batches: 2, Items: 3, Shards: 1}
	rec, err := b.Record(t.Context(), c, recdisk.Faults{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Sweep(ctx, rec, c, Plan{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
