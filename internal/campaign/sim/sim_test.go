package sim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shardlease/internal/campaign"
	"shardlease/internal/campaign/sim"
	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const epochID = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// options are those of the reference's forced-heartbeat campaign.
func options(t testing.TB) *campaign.Options {
	t.Helper()
	f := campaign.DefaultFlags()
	f.InputDir, f.OutputDir, f.StatsJSON = "/in", "/out", "/stats.json"
	f.Timeout, f.MaxIdle, f.WorkersPerMaster, f.Target = 3, 1, 3, []string{"target"}
	env := map[string]string{"SYMCC_STANDALONE_WORK_LEASE_TTL": "1", "SYMCC_STANDALONE_WORK_LEASE_SHARDS": "4",
		"SYMCC_STANDALONE_WORK_EPOCH": epochID, "SYMCC_SHUTDOWN_GRACE_SEC": "10"}
	o, err := campaign.NewOptions(f, func(k string) string { return env[k] })
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// seeded is a file system with n seeds in /in.
func seeded(t testing.TB, n int) *crashfs.FS {
	t.Helper()
	fsys := crashfs.New()
	if err := groupcommit.MkdirAll(fsys, "/in", 0o777); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := groupcommit.WriteFile(fsys, fmt.Sprintf("/in/%02d", i), fmt.Appendf(nil, "integrity-seed-%03d\n", i+1), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return fsys
}

// oneChild always writes the same child, as the reference's target does.
func oneChild(_ *rand.Rand, _ campaign.Job) (campaign.Execution, time.Duration) {
	return campaign.Execution{Outputs: []campaign.Output{{Name: "out", Data: []byte("shared-generated-child\n")}}}, 1200 * time.Millisecond
}

func config(t testing.TB, fsys vfs.FS, seed uint64, out *bytes.Buffer) sim.Config {
	return sim.Config{Options: options(t), Ranks: 8, Seed: seed, MaxDelay: 20 * time.Millisecond, FS: func(int) vfs.FS { return fsys },
		Start: start, Target: oneChild, Stdout: out, Stderr: out}
}

func run(t testing.TB, cfg sim.Config) campaign.Outcome {
	t.Helper()
	out, err := try(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func try(cfg sim.Config) (campaign.Outcome, error) {
	c, err := sim.New(cfg)
	if err != nil {
		return campaign.Outcome{}, err
	}
	return c.Run(context.Background(), 5*time.Minute)
}

func readStats(t testing.TB, fsys vfs.FS) campaign.Stats {
	t.Helper()
	data, err := vfs.ReadFile(fsys, "/stats.json", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var s campaign.Stats
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestACampaignOfTwoMastersAnalysesEachObjectOnce(t *testing.T) {
	for seed := range uint64(20) {
		fsys, text := seeded(t, 12), &bytes.Buffer{}
		if out := run(t, config(t, fsys, seed, text)); out.Code != 0 || !out.Orderly {
			t.Fatalf("seed %d: outcome %+v\n%s", seed, out, text)
		}
		s := readStats(t, fsys)
		if s.Total.Analyzed != 13 || s.Final.Observations != 13 || s.Final.Generated != 13 || s.Final.Interesting != 1 || s.Total.Acked != 6 {
			t.Fatalf("seed %d: %+v", seed, s)
		}
		if s.Total.DirectorySyncsAvoided != s.Total.Renewals-s.Total.DirectorySyncs || s.Total.DirectorySyncsAvoided == 0 || s.Total.Failures != 0 {
			t.Fatalf("seed %d: heartbeats %+v", seed, s.Total.HeartbeatMetrics)
		}
		// Test vector of the reference: these seeds and this child are split 6 and 7.
		if s.Final.ByMaster[0] != 6 || s.Final.ByMaster[1] != 7 || s.Masters[0].Analyzed != 6 || s.Masters[1].Analyzed != 7 {
			t.Fatalf("seed %d: split %v", seed, s.Final.ByMaster)
		}
		if _, err := fsys.Lstat("/out/.standalone-work-" + epochID); err == nil {
			t.Fatalf("seed %d: the epoch is still there", seed)
		}
	}
}

func TestACampaignReplaysExactlyFromItsSeed(t *testing.T) {
	history := func(seed uint64) string {
		var h strings.Builder
		cfg := config(t, seeded(t, 5), seed, &bytes.Buffer{})
		cfg.Event = func(now time.Time, rank int, what string) { fmt.Fprintln(&h, now.Sub(start), rank, what) }
		run(t, cfg)
		return h.String()
	}
	first := history(7)
	if again := history(7); first != again {
		t.Fatal("two runs with seed 7 differ")
	}
	if first == history(8) {
		t.Fatal("seeds 7 and 8 give the same history: nothing is drawn from the seed")
	}
}

// contents lists every file under dir with its bytes.
func contents(t *testing.T, fsys vfs.FS, dir string) string {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var s strings.Builder
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if e.IsDir() {
			s.WriteString(contents(t, fsys, name))
			continue
		}
		data, err := vfs.ReadFile(fsys, name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&s, "%s %q\n", name, data)
	}
	return s.String()
}

// The records of a campaign go with its epoch, so they are compared in the middle.
func TestACampaignWritesTheSameBytesAgainFromItsSeed(t *testing.T) {
	write := func(seed uint64) string {
		fsys := seeded(t, 5)
		c, err := sim.New(config(t, fsys, seed, &bytes.Buffer{}))
		if err != nil {
			t.Fatal(err)
		}
		for c.Now().Sub(start) < 1500*time.Millisecond {
			c.Step(context.Background())
		}
		return contents(t, fsys, "/out")
	}
	first := write(7)
	if again := write(7); first != again {
		t.Fatalf("two runs with seed 7 differ:\n%s\n%s", first, again)
	}
	if !strings.Contains(first, `\"leased\"`) {
		t.Fatalf("no lease is held at the time of the comparison:\n%s", first)
	}
	if first == write(8) {
		t.Fatal("seeds 7 and 8 write the same bytes: nothing is drawn from the seed")
	}
}

func TestAnInterruptedCampaignKeepsItsEpochAndSaysSo(t *testing.T) {
	fsys, text := seeded(t, 12), &bytes.Buffer{}
	ctx := context.Background()
	c, err := sim.New(config(t, fsys, 3, text))
	if err != nil {
		t.Fatal(err)
	}
	for c.Now().Sub(start) < 1500*time.Millisecond {
		c.Step(ctx)
	}
	c.Interrupt(ctx, 1)
	out, err := c.Run(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if out.Code != campaign.ExitUnfinished || !out.Orderly || !strings.Contains(text.String(), "SYMCC_STANDALONE_WORK_EPOCH="+epochID) {
		t.Fatalf("%+v\n%s", out, text)
	}
	s := readStats(t, fsys)
	if s.ExitCode != campaign.ExitUnfinished || s.Total.Acked != 6 || s.Final.Unfinished == 0 || s.Total.Batches == 0 {
		t.Fatalf("%+v", s)
	}
	if !strings.Contains(text.String(), "[Master 1] Lease heartbeat group commit: batches=") {
		t.Fatalf("the heartbeat counters are not printed on a failing exit\n%s", text)
	}
	cfg := config(t, fsys, 4, text)
	cfg.Start = c.Now()
	if out := run(t, cfg); out.Code != 0 {
		t.Fatalf("%+v\n%s", out, text)
	}
	if s := readStats(t, fsys); s.Final.Observations != 13 || s.Final.Unfinished != 0 {
		t.Fatalf("%+v", s.Final)
	}
}
