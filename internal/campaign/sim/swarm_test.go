package sim_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"shardlease/internal/campaign"
	"shardlease/internal/campaign/sim"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
)

// swarm draws a campaign from a seed: ranks, message delays, clock skews, targets with different children and durations, pauses, and perhaps the end of all
// processes with a power cut, once or twice. It returns how many executions there were and the final records.
func swarm(t *testing.T, seed uint64) (executions int, f *campaign.Final, text *bytes.Buffer) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 3))
	text = &bytes.Buffer{}
	disk := seeded(t, 1+rng.IntN(12))
	begin := start
	for cuts := rng.IntN(3); ; cuts-- {
		cfg := config(t, disk, rng.Uint64(), text)
		cfg.Start = begin
		cfg.Ranks = 2 + rng.IntN(10)
		cfg.MaxDelay = time.Duration(rng.IntN(200)) * time.Millisecond
		skews := make([]time.Duration, cfg.Ranks)
		for i := range skews {
			skews[i] = time.Duration(rng.IntN(400)) * time.Millisecond
		}
		cfg.Skew = func(rank int) time.Duration { return skews[rank] }
		view := disk
		cfg.FS = func(int) vfs.FS { return view }
		cfg.Target = func(rng *rand.Rand, job campaign.Job) (campaign.Execution, time.Duration) {
			executions++
			e := campaign.Execution{Retcode: rng.IntN(3) - 1}
			for i := range int(job.ID[0] % 4) {
				e.Outputs = append(e.Outputs, campaign.Output{Name: strconv.Itoa(i), Data: fmt.Appendf(nil, "child %d of %d", i, job.ID[1]%3)})
			}
			return e, time.Duration(rng.IntN(3000)) * time.Millisecond
		}
		out := drive(t, cfg, rng, seed, cuts > 0, text)
		if out != nil && out.Code == campaign.ExitOK {
			return executions, readStats(t, view).Final, text
		}
		if cuts < -5 {
			t.Fatalf("seed %d: the campaign never ends well: %+v\n%s", seed, out, text)
		}
		disk = disk.Crash(crashfs.Journal, seed)
		begin = begin.Add(time.Duration(rng.IntN(600)) * time.Second)
	}
}

// drive runs one campaign with pauses, to its end or, if it is to be cut, to any moment: then it returns nil.
func drive(t *testing.T, cfg sim.Config, rng *rand.Rand, seed uint64, cut bool, text *bytes.Buffer) *campaign.Outcome {
	t.Helper()
	c, err := sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	end := cfg.Start.Add(5 * time.Minute)
	if cut {
		end = cfg.Start.Add(time.Duration(rng.IntN(8000)) * time.Millisecond)
	}
	for c.Now().Before(end) {
		if rng.IntN(300) == 0 {
			c.Pause(rng.IntN(cfg.Ranks), c.Now().Add(time.Duration(rng.IntN(4000))*time.Millisecond))
		}
		if !c.Step(ctx) {
			t.Fatalf("seed %d: stuck\n%s", seed, text)
		}
		if out, ended := c.Ended(); ended {
			return &out
		}
	}
	if !cut {
		t.Fatalf("seed %d: not ended within 5 minutes\n%s", seed, text)
	}
	return nil
}

// TestSeededCampaigns: every campaign ends, after as many runs of its epoch as it takes, with each object analysed exactly once in the records. A failing seed
// replays: SHARDLEASE_SIM_SEED=N. SHARDLEASE_SIM_SEEDS=N runs more.
func TestSeededCampaigns(t *testing.T) {
	first, count := uint64(0), uint64(60)
	if text := os.Getenv("SHARDLEASE_SIM_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		first, count = n, 1
	} else if text := os.Getenv("SHARDLEASE_SIM_SEEDS"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		count = n
	}
	executions, objects := 0, 0
	for seed := first; seed < first+count; seed++ {
		n, f, text := swarm(t, seed)
		if f.Observations != f.Objects || f.Unfinished != 0 || n < f.Objects || f.External+f.Interesting != f.Objects {
			t.Fatalf("seed %d: %d executions, %+v\n%s", seed, n, f, text)
		}
		executions += n
		objects += f.Objects
	}
	t.Logf("%d campaigns, %d objects, %d executions", count, objects, executions)
}
