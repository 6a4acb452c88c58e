package sim_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"shardlease/internal/campaign"
	"shardlease/internal/campaign/sim"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
	"shardlease/pkg/lease"
)

// sweepErrors runs a campaign for every stride-th operation of the file system, which fails (and all later ones, if sticky), then finishes the epoch on the
// healed disk. It returns how many campaigns failed because of it.
func sweepErrors(t *testing.T, errno error, sticky bool, stride int) (failed int) {
	t.Helper()
	for k := 1; ; k += stride {
		disk := seeded(t, 3)
		faulty := faultfs.New(disk)
		faulty.Inject(faultfs.Rule{Nth: k, Err: errno, Sticky: sticky})
		text := &bytes.Buffer{}
		cfg := config(t, faulty, uint64(k), text)
		cfg.Options.StatsJSON = ""
		out, err := try(cfg)
		if err != nil {
			t.Fatalf("%v from operation %d on: %v\n%s", errno, k, err, text)
		}
		if faulty.Injected() == 0 {
			return failed
		}
		if out.Code != campaign.ExitOK {
			failed++
			if out.Reason == "" || !strings.Contains(text.String(), out.Reason) {
				t.Fatalf("%v from operation %d on: code %d without a sentence: %+v\n%s", errno, k, out.Code, out, text)
			}
			if err := finish(t, disk.Clone(), k); err != nil && !retired(disk) {
				t.Fatalf("%v from operation %d on: %v\nfirst run:\n%s", errno, k, err, text)
			}
		}
	}
}

// retired tells that nothing of the epoch but objects is left: all work was done before the disk failed.
func retired(disk *crashfs.FS) bool {
	_, err := disk.Lstat(epochDir)
	return os.IsNotExist(err)
}

// C: a broken or full disk ends the campaign with a code and a sentence, and never costs an acknowledged result: the epoch is finished when the disk is well.
func TestABrokenOrFullDiskLosesNothing(t *testing.T) {
	stride := 41
	if os.Getenv("SHARDLEASE_LONG") != "" {
		stride = 1
	}
	for _, errno := range []error{syscall.EIO, syscall.ENOSPC} {
		for _, sticky := range []bool{false, true} {
			if failed := sweepErrors(t, errno, sticky, stride); failed < 5 {
				t.Errorf("%v, sticky %t: only %d campaigns failed", errno, sticky, failed)
			}
		}
	}
}

// After a sync that failed the kernel may forget what it should have covered, while reads go on showing it: the next barrier succeeds and covers nothing of it. So a
// resumed epoch doesn't take a name for durable because it can be seen. The campaign ends well, then the power is cut: every object must still be there.
func TestNothingThatAFailedBarrierLeftInDoubtIsTakenForDurable(t *testing.T) {
	failed := 0
	for k := 1; ; k++ {
		disk := seeded(t, 3)
		syncs := 0
		faulty := disk.WithFaults(func(c *vfs.Call) error {
			if c.Op == vfs.OpSync || c.Op == vfs.OpSyncDir {
				if syncs++; syncs == k {
					return syscall.EIO
				}
			}
			return nil
		})
		out, err := try(config(t, faulty, uint64(k), &bytes.Buffer{}))
		if err != nil {
			t.Fatal(err)
		}
		if syncs < k {
			break
		}
		if out.Code == campaign.ExitOK || retired(disk) {
			continue
		}
		failed++
		same := disk.Clone()
		if err := finish(t, same, k); err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(4) {
			after := same.Crash(crashfs.Strict, seed)
			if n := objects(t, after); n != 4 {
				t.Errorf("failed sync %d, power cut %d: %d of 4 objects are left", k, seed, n)
			}
		}
	}
	if failed < 20 {
		t.Errorf("only %d campaigns failed", failed)
	}
}

func objects(t *testing.T, fsys vfs.FS) (n int) {
	t.Helper()
	entries, err := fsys.ReadDir("/out")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if campaign.IsHex(e.Name(), 64) {
			n++
		}
	}
	return n
}

// Beyond row 10: an execution that outlives the TTL during the worker shutdown keeps its lease, and its result counts.
func TestHeartbeatsGoOnWhileWorkersAreBeingStopped(t *testing.T) {
	fsys, text := seeded(t, 6), &bytes.Buffer{}
	cfg := config(t, fsys, 1, text)
	cfg.Options.Timeout = 10 * time.Second
	cfg.Target = func(rng *rand.Rand, job campaign.Job) (campaign.Execution, time.Duration) {
		e, _ := oneChild(rng, job)
		return e, 5 * time.Second
	}
	c, err := sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for c.Now().Sub(start) < time.Second {
		c.Step(ctx)
	}
	c.Interrupt(ctx, 0)
	out, err := c.Run(ctx, time.Minute)
	s := readStats(t, fsys)
	if err != nil || out.Code != campaign.ExitUnfinished || s.Total.Drained == 0 || s.Total.Analyzed != s.Total.Drained || s.Total.LostLeases+s.Total.StaleResults != 0 {
		t.Fatalf("%+v, %v\n%+v\n%s", out, err, s, text)
	}
}

// The heartbeats of a campaign whose clocks differ by less than the TTL lose nothing.
func TestClocksMayDiffer(t *testing.T) {
	for seed := range uint64(10) {
		fsys, text := seeded(t, 12), &bytes.Buffer{}
		cfg := config(t, fsys, seed, text)
		cfg.Skew = func(rank int) time.Duration { return time.Duration(rank%2) * 500 * time.Millisecond }
		out := run(t, cfg)
		if s := readStats(t, fsys); out.Code != campaign.ExitOK || s.Final.Observations != 13 || s.Total.LostLeases != 0 {
			t.Fatalf("seed %d: %+v\n%s", seed, s, text)
		}
	}
}

func TestTheTemporaryOutputDirectoryGoesWithACompleteCampaign(t *testing.T) {
	fsys, text := seeded(t, 3), &bytes.Buffer{}
	cfg := config(t, fsys, 1, text)
	cfg.Options.OutputDir = ""
	if out := run(t, cfg); out.Code != campaign.ExitOK {
		t.Fatalf("%+v\n%s", out, text)
	}
	dir := readStats(t, fsys).OutputDir
	if !strings.Contains(dir, "/symcc_shared_") {
		t.Fatalf("output directory %q", dir)
	}
	if _, err := fsys.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}

func TestSimulatedChildrenAreTheSameEachTime(t *testing.T) {
	names := func(seed uint64) string {
		fsys, text := seeded(t, 2), &bytes.Buffer{}
		cfg := config(t, fsys, seed, text)
		cfg.Options.Simulate = true
		cfg.Target = func(rng *rand.Rand, job campaign.Job) (campaign.Execution, time.Duration) {
			if string(job.Input) == "integrity-seed-001\n" || string(job.Input) == "integrity-seed-002\n" {
				return campaign.Execution{}, time.Second
			}
			return oneChild(rng, job) // else the campaign would go on for ever
		}
		if out := run(t, cfg); out.Code != campaign.ExitOK {
			t.Fatalf("%+v\n%s", out, text)
		}
		entries, err := fsys.ReadDir("/out")
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, e := range entries {
			all = append(all, e.Name())
		}
		if f := readStats(t, fsys).Final; f.Objects < 8 || f.Observations != f.Objects {
			t.Fatalf("%+v", f)
		}
		return strings.Join(all, " ")
	}
	if names(1) != names(2) {
		t.Error("the mutations depend on the run")
	}
}

func TestFailedInputsAreKeptAndExecutionsAreLogged(t *testing.T) {
	fsys, text := seeded(t, 4), &bytes.Buffer{}
	cfg := config(t, fsys, 1, text)
	cfg.Options.FailedDir, cfg.Options.ExecutionLog = "/failed/deep", "/executions"
	ends := []campaign.Execution{{Retcode: -11}, {Retcode: -9, TimedOut: true}, {Retcode: 3}, {}}
	cfg.Target = func(_ *rand.Rand, job campaign.Job) (campaign.Execution, time.Duration) {
		var n int
		if _, err := fmt.Sscanf(string(job.Input), "integrity-seed-%d", &n); err != nil {
			t.Fatal(err)
		}
		return ends[n-1], time.Second
	}
	if out := run(t, cfg); out.Code != campaign.ExitOK {
		t.Fatalf("%+v\n%s", out, text)
	}
	s := readStats(t, fsys)
	if s.Total.Signalled != 1 || s.Total.TimedOut != 1 || s.Total.ExitNonzero != 1 || s.Total.ExitZero != 1 {
		t.Errorf("%+v", s.Total.Counters)
	}
	kept, err := fsys.ReadDir("/failed/deep")
	if err != nil || len(kept) != 2 {
		t.Errorf("%v, %v", kept, err)
	}
	for i := range 2 {
		data := fmt.Appendf(nil, "integrity-seed-%03d\n", i+1)
		if got, err := vfs.ReadFile(fsys, "/failed/deep/"+lease.SumID(data).String(), 100); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%q, %v", got, err)
		}
	}
	log, err := vfs.ReadFile(fsys, "/executions", 1<<20)
	if err != nil || bytes.Count(log, []byte(`"event":"start"`)) != 4 || bytes.Count(log, []byte(`"event":"end"`)) != 4 || bytes.Count(log, []byte("\n")) != 8 {
		t.Errorf("%s, %v", log, err)
	}
}

func TestAStatisticsFileThatCannotBeWrittenIsFoundBeforeAnyWork(t *testing.T) {
	fsys, text := seeded(t, 3), &bytes.Buffer{}
	cfg := config(t, fsys, 1, text)
	cfg.Options.StatsJSON = "/in" // a directory
	if out := run(t, cfg); out.Code != campaign.ExitCantCreate || !strings.HasPrefix(out.Reason, "statistics file: ") {
		t.Errorf("%+v", out)
	}
	if strings.Count(text.String(), "\n") != 1 {
		t.Errorf("more than one sentence:\n%s", text)
	}
	if _, err := fsys.Lstat("/out"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the output directory was touched: %v", err)
	}
}

func TestAKilledCampaignHasNoStatisticsNotThoseOfAnEarlierOne(t *testing.T) {
	fsys := seeded(t, 3)
	run(t, config(t, fsys, 1, &bytes.Buffer{}))
	readStats(t, fsys)
	c, err := sim.New(config(t, fsys, 2, &bytes.Buffer{}))
	if err != nil {
		t.Fatal(err)
	}
	for c.Now().Sub(start) < 500*time.Millisecond {
		c.Step(t.Context())
	}
	if _, err := fsys.Lstat("/stats.json"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("stale statistics: %v", err)
	}
}
