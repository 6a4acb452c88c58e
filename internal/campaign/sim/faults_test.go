package sim_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"shardlease/internal/campaign"
	"shardlease/internal/campaign/sim"
	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
	"shardlease/pkg/lease"
)

const epochDir = "/out/.standalone-work-" + epochID

// expectResume finishes a campaign that was cut short and checks that the records are right. The clone has none of its locks: all its processes are gone.
func expectResume(t *testing.T, fsys *crashfs.FS, observations int) {
	t.Helper()
	fsys = fsys.Clone()
	text := &bytes.Buffer{}
	cfg := config(t, fsys, 99, text)
	cfg.Start = start.Add(time.Hour)
	if out := run(t, cfg); out.Code != campaign.ExitOK {
		t.Fatalf("resume: %+v\n%s", out, text)
	}
	if f := readStats(t, fsys).Final; f.Observations != observations || f.Unfinished != 0 {
		t.Fatalf("resume: %+v", f)
	}
}

// failingBeats is a table whose heartbeats fail after the first few.
type failingBeats struct {
	campaign.Table
	left *int
}

func (f failingBeats) HeartbeatMany(ctx context.Context, held map[lease.ID]lease.Token) (lease.HeartbeatBatch, error) {
	if *f.left--; *f.left < 0 {
		return lease.HeartbeatBatch{}, errors.New("injected heartbeat failure")
	}
	return f.Table.HeartbeatMany(ctx, held)
}

// Beyond row 9: the report's program ends before it prints failures.
func TestAFailedHeartbeatEndsTheCampaignAndIsPrinted(t *testing.T) {
	fsys, text := seeded(t, 12), &bytes.Buffer{}
	cfg := config(t, fsys, 1, text)
	cfg.Env = func(rank int, env *campaign.Env) {
		left := 2
		if rank == 0 {
			left = 1 << 30
		}
		env.OpenTable = func(root string, opts *lease.Options) (campaign.Table, error) {
			table, err := lease.Open(root, opts)
			return failingBeats{table, &left}, err
		}
	}
	out := run(t, cfg)
	if out.Code != campaign.ExitIncomplete || !out.Orderly || !strings.Contains(out.Reason, "injected heartbeat failure") {
		t.Fatalf("%+v\n%s", out, text)
	}
	for _, want := range []string{"[Master 1] Global work control failure: work lease heartbeat failed: injected", "[Master 0] Global work control failure: master 1: ",
		"[Master 1] Lease heartbeat group commit: batches=2 renewals=", " failures=1\n", "[Master 1] Worker shutdown: acked=3/3 pending=[]"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("missing %q in\n%s", want, text)
		}
	}
	s := readStats(t, fsys)
	if s.Total.Failures != 1 || s.Masters[1].Failures != 1 || s.ExitCode != campaign.ExitIncomplete || s.Total.Acked != 6 || s.Total.Drained == 0 {
		t.Errorf("%+v", s)
	}
	expectResume(t, fsys, 13)
}

// Beyond row 15: the report's program exits with 0 and deletes unfinished work.
func TestAWallTimeoutWithUnfinishedWorkIsNoSuccess(t *testing.T) {
	fsys, text := seeded(t, 12), &bytes.Buffer{}
	cfg := config(t, fsys, 1, text)
	cfg.Options.WallTimeout = 4 * time.Second
	out := run(t, cfg)
	if out.Code != campaign.ExitUnfinished || !strings.Contains(out.Reason, "wall timeout with unfinished work") {
		t.Fatalf("%+v\n%s", out, text)
	}
	if _, err := fsys.Lstat(epochDir + "/state.json"); err != nil {
		t.Fatal(err)
	}
	expectResume(t, fsys, 13)
}

func TestACorruptRecordIsReportedAndNeverOverwritten(t *testing.T) {
	fsys, text := seeded(t, 12), &bytes.Buffer{}
	c, err := sim.New(config(t, fsys, 1, text))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for c.Now().Sub(start) < 500*time.Millisecond {
		c.Step(ctx)
	}
	victim := lease.SumID([]byte("integrity-seed-012\n"))
	name := fmt.Sprintf("%s/%03d/%s.json", epochDir, victim[3]%4, victim)
	if _, err := fsys.Lstat(name); err != nil {
		t.Fatal(err)
	}
	garbage := []byte(`{"schema":1`)
	if err := groupcommit.WriteFile(fsys, name, garbage, 0o666); err != nil {
		t.Fatal(err)
	}
	out, err := c.Run(ctx, time.Minute)
	if err != nil || out.Code != campaign.ExitIncomplete {
		t.Fatalf("%+v, %v\n%s", out, err, text)
	}
	if data, err := vfs.ReadFile(fsys, name, 100); err != nil || !bytes.Equal(data, garbage) {
		t.Fatalf("the corrupt record is now %q, %v", data, err)
	}
}

// lyingStages changes what one worker writes into its stage, after it has been hashed.
type lyingStages struct{ vfs.FS }

func (f lyingStages) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	file, err := f.FS.OpenFile(name, flag, perm)
	if err == nil && strings.Contains(name, "/staging/") && flag&os.O_CREATE != 0 {
		return lyingFile{file}, nil
	}
	return file, err
}

type lyingFile struct{ vfs.File }

func (f lyingFile) Write(p []byte) (int, error) {
	return f.File.Write(bytes.Repeat([]byte("x"), len(p)))
}

func TestAWorkerWithAWrongResultIsQuarantinedAndItsItemGoesElsewhere(t *testing.T) {
	fsys, text := seeded(t, 12), &bytes.Buffer{}
	cfg := config(t, fsys, 1, text)
	cfg.FS = func(rank int) vfs.FS {
		if rank == 2 {
			return lyingStages{fsys}
		}
		return fsys
	}
	out := run(t, cfg)
	s := readStats(t, fsys)
	if out.Code != campaign.ExitIncomplete || s.Total.InvalidResults != 1 || s.Total.QuarantinedWorkers != 1 || s.Final.Observations != 13 || s.Final.Unfinished != 0 || s.Total.Acked != 6 {
		t.Fatalf("%+v\n%+v\n%s", out, s, text)
	}
	expectResume(t, fsys, 13)
}

func TestWithoutTrustworthyWorkersTheCampaignFails(t *testing.T) {
	fsys, text := seeded(t, 12), &bytes.Buffer{}
	cfg := config(t, fsys, 1, text)
	cfg.FS = func(rank int) vfs.FS {
		if rank > 1 {
			return lyingStages{fsys}
		}
		return fsys
	}
	if out := run(t, cfg); out.Code != campaign.ExitIncomplete || !strings.Contains(out.Reason, "all workers of this master") {
		t.Fatalf("%+v\n%s", out, text)
	}
	if s := readStats(t, fsys); s.Final.Observations != 0 || s.Final.Objects != 12 {
		t.Fatalf("%+v", s.Final)
	}
	expectResume(t, fsys, 13)
}

func TestRepeatedControlMessagesChangeNothing(t *testing.T) {
	fsys, text := seeded(t, 12), &bytes.Buffer{}
	cfg := config(t, fsys, 5, text)
	cfg.Copies = func(m campaign.Message) int {
		if m.Tag == campaign.TagResult {
			return 1
		}
		return 2
	}
	if out := run(t, cfg); out.Code != campaign.ExitOK {
		t.Fatalf("%+v\n%s", out, text)
	}
	if s := readStats(t, fsys); s.Final.Observations != 13 || s.Total.QuarantinedControl == 0 || s.Total.Acked != 6 {
		t.Fatalf("%+v", s)
	}
}

func TestALostAnswerEndsTheCampaignWithinTheGrace(t *testing.T) {
	for _, tag := range []int{campaign.TagProbe, campaign.TagProbeReply, campaign.TagQuiesce, campaign.TagQuiesceAck, campaign.TagStopAck, campaign.TagStats} {
		fsys, text := seeded(t, 3), &bytes.Buffer{}
		cfg := config(t, fsys, 5, text)
		cfg.Copies = func(m campaign.Message) int {
			if m.Tag == tag {
				return 0
			}
			return 1
		}
		out := run(t, cfg)
		if out.Code != campaign.ExitIncomplete && out.Code != campaign.ExitStats {
			t.Errorf("without tag %d: %+v\n%s", tag, out, text)
		}
		expectResume(t, fsys, 4)
	}
}

// A master that is stopped for three times the TTL finds its leases taken over, and none of its results is published twice.
func TestAPausedMasterIsFenced(t *testing.T) {
	stale := 0
	for seed := range uint64(10) {
		fsys, text := seeded(t, 12), &bytes.Buffer{}
		c, err := sim.New(config(t, fsys, seed, text))
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		for c.Now().Sub(start) < time.Second {
			c.Step(ctx)
		}
		c.Pause(1, c.Now().Add(3*time.Second))
		out, err := c.Run(ctx, time.Minute)
		if err != nil || out.Code != campaign.ExitOK {
			t.Fatalf("seed %d: %+v, %v\n%s", seed, out, err, text)
		}
		s := readStats(t, fsys)
		if s.Final.Observations != 13 || s.Total.Analyzed != 13 || s.Masters[0].Recovered == 0 {
			t.Fatalf("seed %d: %+v", seed, s)
		}
		stale += s.Masters[1].LostLeases + s.Masters[1].StaleResults
	}
	if stale == 0 {
		t.Error("the paused master never lost anything: nothing is tested")
	}
}

// HQ-5 and the quiescence races: an input that comes at any moment around the end is analysed, or the campaign had ended before; never does it end over
// unfinished work.
func TestInputsThatComeLateAreAnalysedOrLeftForTheNextRun(t *testing.T) {
	seen := map[int]int{}
	for at := time.Second; at < 6*time.Second; at += 40 * time.Millisecond {
		fsys, text := seeded(t, 6), &bytes.Buffer{}
		c, err := sim.New(config(t, fsys, uint64(at), text))
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		ended := false
		for !ended && c.Now().Sub(start) < at {
			c.Step(ctx)
			_, ended = c.Ended()
		}
		if err := groupcommit.WriteFile(fsys, "/in/late", []byte("late"), 0o666); err != nil {
			t.Fatal(err)
		}
		out, ended := c.Ended()
		if !ended {
			if out, err = c.Run(ctx, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		f := readStats(t, fsys).Final
		if out.Code != campaign.ExitOK || f.Unfinished != 0 || f.Observations != f.Objects {
			t.Fatalf("late input at %s: %+v, %+v\n%s", at, out, f, text)
		}
		seen[f.Observations]++
	}
	if seen[7] == 0 || seen[8] == 0 {
		t.Errorf("both outcomes should occur: %v", seen)
	}
}

func TestOneEpochHasOneCampaign(t *testing.T) {
	fsys, text := seeded(t, 3), &bytes.Buffer{}
	first, err := sim.New(config(t, fsys, 1, &bytes.Buffer{}))
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		first.Step(context.Background())
	}
	out := run(t, config(t, fsys, 2, text))
	if out.Code != campaign.ExitUsage || !strings.Contains(out.Reason, "another campaign is running") {
		t.Fatalf("%+v", out)
	}
	if out, err := first.Run(context.Background(), time.Minute); err != nil || out.Code != campaign.ExitOK {
		t.Fatalf("%+v, %v", out, err)
	}
}

func TestAnotherShardCountIsRefusedWithTheRightOne(t *testing.T) {
	fsys := cutShort(t)
	cfg := config(t, fsys, 2, &bytes.Buffer{})
	cfg.Options.Shards = 8
	if out := run(t, cfg); out.Code != campaign.ExitUsage || !strings.Contains(out.Reason, "SYMCC_STANDALONE_WORK_LEASE_SHARDS=4") {
		t.Fatalf("%+v", out)
	}
	expectResume(t, fsys, 13)
}

// cutShort is what a power cut leaves of a campaign in full swing.
func cutShort(t *testing.T) *crashfs.FS {
	t.Helper()
	fsys := seeded(t, 12)
	c, err := sim.New(config(t, fsys, 1, &bytes.Buffer{}))
	if err != nil {
		t.Fatal(err)
	}
	for c.Now().Sub(start) < 1500*time.Millisecond {
		c.Step(context.Background())
	}
	return fsys.Crash(crashfs.Journal, 1)
}

func TestAResumedEpochMayHaveOtherMasters(t *testing.T) {
	fsys, text := cutShort(t), &bytes.Buffer{}
	cfg := config(t, fsys, 2, text)
	cfg.Start = start.Add(time.Second) // the old leases have not expired
	cfg.Options.WorkersPerMaster = 90
	if out := run(t, cfg); out.Code != campaign.ExitOK {
		t.Fatalf("%+v\n%s", out, text)
	}
	if f := readStats(t, fsys).Final; f.Observations != 13 || f.Unfinished != 0 {
		t.Fatalf("%+v", f)
	}
	if !strings.Contains(text.String(), "[Master] No more inputs after ") || !strings.Contains(text.String(), "single-master (7 workers)") {
		t.Errorf("%s", text)
	}
}

func TestRanksWithOtherSettingsAreRefused(t *testing.T) {
	fsys, text := seeded(t, 3), &bytes.Buffer{}
	cfg := config(t, fsys, 1, text)
	c, err := sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Options.LeaseTTL *= 2 // workers look at the options they were given; masters have copies
	out, err := c.Run(context.Background(), time.Minute)
	if err != nil || out.Code != campaign.ExitUsage || !strings.Contains(out.Reason, "other settings than rank 0") {
		t.Fatalf("%+v, %v", out, err)
	}
}
