package hybrid

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"shardlease/internal/campaign"
	"shardlease/internal/hybrid/afl"
	"shardlease/pkg/lease"
)

// The whole loop: from a seed that is all wrong to the crash and the hang behind five right bytes, each step fed by the one before.
func TestCampaignFindsItsWayAndPublishesForAFL(t *testing.T) {
	t.Parallel()
	for _, leases := range []bool{true, false} {
		b := newBench(t, "xxxxx", "yyyyyy")
		o := b.options("symcc")
		o.Leases, o.TargetLeases = leases, leases
		o.SaveAll = filepath.Join(b.out, "all")
		s := b.start(o).wait(b, o, campaign.ExitOK)
		b.check(o)
		queue := b.published("symcc", afl.Queue)
		if len(queue) != len(secret) || !strings.HasPrefix(queue[len(secret)-1], secret) {
			t.Errorf("leases %v: queue holds %q", leases, queue)
		}
		if crashes, hangs := b.published("symcc", afl.Crashes), b.published("symcc", afl.Hangs); len(crashes) != 1 || len(hangs) != 1 {
			t.Errorf("leases %v: crashes %q, hangs %q", leases, crashes, hangs)
		}
		for input, n := range b.solver.runs {
			if n != 1 {
				t.Errorf("leases %v: %q was analysed %d times", leases, input, n)
			}
		}
		if s.Completed != len(b.solver.runs) || s.Published != len(secret) || s.Crashes != 1 || s.Hangs != 1 || s.Generated == 0 || !s.Clean {
			t.Errorf("leases %v: statistics %+v, %d runs", leases, s, len(b.solver.runs))
		}
		if saved, err := os.ReadDir(o.SaveAll); err != nil || len(saved) < len(queue) {
			t.Errorf("--save-all kept %d files, %v", len(saved), err)
		}
	}
}

// Longer runs, so that leases are renewed: one call a period for both workers, and the identities of the report.
func TestHeartbeatsOfACampaignAreOneCallAPeriod(t *testing.T) {
	t.Parallel()
	b := newBench(t, "xxxxx", "Myyyy", "MAzzz", "MAGuu")
	b.solver.pause = 700 * time.Millisecond
	o := b.options("symcc")
	o.LeaseTTL, o.TargetTTL, o.Shards = time.Second, time.Second, 1 // a period of a third of a second
	s := b.start(o).wait(b, o, campaign.ExitOK)
	b.check(o)
	if s.Batches < 2 || s.HeartbeatCalls != s.Batches+s.Failures {
		t.Errorf("%d calls, %d batches, %d failures", s.HeartbeatCalls, s.Batches, s.Failures)
	}
	if s.WorkOK != s.Renewals || s.DirectorySyncsAvoided != s.Renewals-s.DirectorySyncs || s.DirectorySyncs != s.Batches || s.WorkFailed != 0 {
		t.Errorf("counters %+v, metrics %+v", s.Counters, s.HeartbeatMetrics)
	}
	if s.TargetOK == 0 || s.TargetFailed != 0 {
		t.Errorf("target groups were not renewed: %+v", s.Counters)
	}
	f, err := os.Open(o.EventLog)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	events, err := readEvents(f)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, ev := range events {
		kinds[ev.Event]++
	}
	if uint64(kinds[EventHeartbeat]) != s.HeartbeatCalls || kinds[EventClaim] != s.Dispatched || kinds[EventDone] != s.Completed || kinds[EventStop] != 1 {
		t.Errorf("event log has %v for %+v", kinds, s)
	}
}

// Two coordinators at once on one root: every input is analysed exactly once, by one of them.
func TestTwoCoordinatorsShareAQueueWithoutDoingAnythingTwice(t *testing.T) {
	t.Parallel()
	var seeds []string
	for i := range 40 {
		seeds = append(seeds, strings.Repeat(string(rune('a'+i%26)), 5+i/26))
	}
	b := newBench(t, seeds...)
	b.solver.pause = 20 * time.Millisecond
	first, second := b.options("one"), b.options("two")
	j1, j2 := b.start(first), b.start(second)
	s1, s2 := j1.wait(b, first, campaign.ExitOK), j2.wait(b, second, campaign.ExitOK)
	b.check(first)
	b.check(second)
	for input, n := range b.solver.runs {
		if n != 1 {
			t.Errorf("%q was analysed %d times", input, n)
		}
	}
	if s1.Completed == 0 || s2.Completed == 0 || s1.Completed+s2.Completed != len(b.solver.runs) {
		t.Errorf("%d and %d completed of %d", s1.Completed, s2.Completed, len(b.solver.runs))
	}
	for _, seed := range seeds {
		if b.solver.runs[seed] != 1 {
			t.Errorf("seed %q was analysed %d times", seed, b.solver.runs[seed])
		}
	}
}

func TestCoordinatorsWithDifferentShardCountsRefuseEachOther(t *testing.T) {
	t.Parallel()
	b := newBench(t, "xxxxx")
	first := b.options("one")
	b.start(first).wait(b, first, campaign.ExitOK)
	second := b.options("two")
	second.Shards = 8
	j := b.start(second)
	j.wait(b, second, campaign.ExitUsage)
	contains(t, j.text.text(), "SYMCC_MULTI_MASTER_LEASE_SHARDS")
	if n := len(b.published("two", afl.Queue)); n != 0 {
		t.Errorf("the refused coordinator has published %d files", n)
	}
}

func TestCoordinatorsCannotShareAName(t *testing.T) {
	b := newBench(t, "xxxxx")
	peer, err := afl.OpenPeer(b.fs, b.out, "symcc")
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	o := b.options("symcc")
	j := b.start(o)
	j.wait(b, o, campaign.ExitUsage)
	contains(t, j.text.text(), "choose another name")
}

// A signal while the solver is at work: its result is still committed, nothing is left leased, the exit is clean.
func TestInterruptedCampaignKeepsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	b := newBench(t, "xxxxx")
	b.solver.pause = 300 * time.Millisecond
	o := b.options("symcc")
	j := b.start(o)
	waitFor(t, "the solver runs", func() bool {
		b.solver.mu.Lock()
		defer b.solver.mu.Unlock()
		return len(b.solver.runs) > 0
	})
	j.signals <- syscall.SIGTERM
	s := j.wait(b, o, campaign.ExitOK)
	b.check(o)
	if s.Completed == 0 || s.Drained == 0 || s.Reason != "interrupted by terminated" {
		t.Errorf("statistics %+v", s)
	}
}

// An input that always fails is parked after a few attempts; the campaign ends, and the others are done.
func TestInputThatAlwaysFailsIsParked(t *testing.T) {
	t.Parallel()
	b := newBench(t, "xxxxx", "bad!!")
	b.solver.before = func(job campaign.Job, e *campaign.Execution) {
		if string(job.Input) == "bad!!" {
			e.Problem, e.Detail = campaign.ErrExecution, "no such program"
		}
	}
	o := b.options("symcc")
	j := b.start(o)
	s := j.wait(b, o, campaign.ExitOK)
	b.check(o)
	if s.Parked != 1 || b.solver.runs["bad!!"] != maxAttempts {
		t.Errorf("parked %d after %d runs", s.Parked, b.solver.runs["bad!!"])
	}
	contains(t, j.text.text(), "is parked after 3 attempts: execution-error: no such program")
	if len(b.published("symcc", afl.Queue)) != len(secret) {
		t.Error("the bad input kept the others from being done")
	}
}

// A queue file that is trimmed or removed between the scan and the run: no result, nothing wrong, the new content is found.
func TestQueueFileThatChangesUnderUsIsLetGo(t *testing.T) {
	b := newBench(t, "xxxxx")
	o := b.options("symcc")
	if err := os.MkdirAll(filepath.Join(b.out, "symcc", "queue"), 0o700); err != nil {
		t.Fatal(err)
	}
	in := newInputs(o.Out, "main", "symcc", b.maze)
	if err := in.scan(); err != nil {
		t.Fatal(err)
	}
	if err := in.measure(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := in.best(time.Now(), 1)[0]
	b.seed(0, "xxx")
	if _, err := readInput(c.input); err == nil || !strings.Contains(err.Error(), "changed") {
		t.Errorf("reading the trimmed input: %v", err)
	}
	if err := os.Remove(c.input.Path); err != nil {
		t.Fatal(err)
	}
	b.seed(1, "gone")
	if err := in.scan(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(b.out, "main", "queue", "id:000001,orig:seed")); err != nil {
		t.Fatal(err)
	}
	if err := in.measure(t.Context()); err != nil || in.skipped != 1 {
		t.Errorf("measuring a vanished input: %v, %d skipped", err, in.skipped)
	}
}

func TestCampaignWhoseShowmapFailsStopsAtTheBaseline(t *testing.T) {
	b := newBench(t, "xxxxx")
	b.maze.err = afl.ErrShowmap
	o := b.options("symcc")
	j := b.start(o)
	j.wait(b, o, campaign.ExitNoInput)
	contains(t, j.text.text(), "no input of AFL instance main can be measured: afl-showmap failed")
}

// Each file and directory that is written at the end or now and then is tried before any work is done.
func TestOutputsThatCannotBeWrittenStopTheCampaignAtItsStart(t *testing.T) {
	for name, set := range map[string]func(o *Options, bad string){
		"--stats-json": func(o *Options, bad string) { o.StatsJSON = bad },
		"--event-log":  func(o *Options, bad string) { o.EventLog = bad },
		"--save-all":   func(o *Options, bad string) { o.SaveAll = bad },
	} {
		for _, bad := range []string{"file/below", "dir"} {
			if name == "--save-all" && bad == "dir" {
				continue
			}
			b := newBench(t, "xxxxx")
			if err := errors.Join(os.WriteFile(filepath.Join(b.out, "file"), nil, 0o600), os.Mkdir(filepath.Join(b.out, "dir"), 0o700)); err != nil {
				t.Fatal(err)
			}
			o := b.options("symcc")
			set(o, filepath.Join(b.out, bad))
			j := b.start(o)
			<-j.done
			text := j.text.text()
			if out := j.out[coordinator]; out.Code != campaign.ExitCantCreate || !out.Orderly || !strings.Contains(out.Reason, filepath.Join(b.out, bad[:3])) || len(b.solver.runs) != 0 {
				t.Errorf("%s %s: %+v, %d runs", name, bad, out, len(b.solver.runs))
			}
			if n := strings.Count(text, b.out); n == 0 || strings.Count(text, "\n") != 2 { // the sentence, and the line of the worker shutdown
				t.Errorf("%s %s: told\n%s", name, bad, text)
			}
			if left, err := filepath.Glob(filepath.Join(b.out, "*.tmp")); err != nil || len(left) > 0 {
				t.Errorf("%s %s: left %v, %v", name, bad, left, err)
			}
		}
	}
}

func TestRanksWithOtherSettingsAreRefused(t *testing.T) {
	b := newBench(t, "xxxxx")
	o := b.options("symcc")
	var text console
	m := NewMaster(o, b.env(&text), 2)
	other := *o
	other.Timeout = time.Hour
	w := NewWorker(&other, b.env(&text), 1)
	hello := w.Step(t.Context(), time.Now(), campaign.Tick{}).Send[0]
	m.Step(t.Context(), time.Now(), hello)
	if m.phase != stopping || m.code != campaign.ExitUsage {
		t.Errorf("phase %v, code %d", m.phase, m.code)
	}
	contains(t, m.reason, "rank 1 was started with other settings")
	if err := m.site.close(); err != nil {
		t.Fatal(err)
	}
}

func TestOneRankIsNotEnough(t *testing.T) {
	out := Run(t.Context(), Rank{Transport: campaign.NewNetwork(1, 1, 0).Endpoint(0)})
	if out.Code != campaign.ExitUnavailable || !strings.Contains(out.Reason, "at least 2 ranks") {
		t.Errorf("outcome %+v", out)
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func TestItemIdentityIsTheContentNotTheName(t *testing.T) {
	if itemID(afl.Sum{1}) == itemID(afl.Sum{2}) {
		t.Error("two contents are one item")
	}
	it := func(path string, targets ...uint64) lease.Record {
		sum := lease.ID{1}
		return lease.Record{ID: itemID(afl.Sum(sum)), Payload: encode(item{Path: path, Schema: schemaItem, SHA256: sum.String(), Targets: targets})}
	}
	for _, rec := range []lease.Record{it("main/queue/id:000000"), it("symcc/queue/id:000007", 1, 2)} {
		if _, _, err := decodeItem(rec); err != nil {
			t.Errorf("one content under another name is another item: %v", err)
		}
	}
	if _, _, err := decodeItem(it("../outside")); err == nil {
		t.Error("a path outside AFL's directory is accepted")
	}
	// A vector of the reference: the SHA-256 of a payload's canonical JSON.
	id := lease.SumID(encode(map[string]any{"target_branch": 0, "path": "seed"}))
	if id.String() != "767d15ae26e5cff9e122406a178fecf9ddc199b5d7be60ae508c16fb62d84b98" {
		t.Errorf("canonical form gives %s", id)
	}
}

// Without lease tables there is no memory of what was analysed: a restarted coordinator runs its inputs again, and publishes nothing twice.
func TestRestartWithoutLeasesRunsAgainAndPublishesNothingTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t, "xxxxx")
	o := b.options("symcc")
	o.Leases, o.TargetLeases = false, false
	b.start(o).wait(b, o, campaign.ExitOK)
	before, ran := b.published("symcc", afl.Queue), b.solver.runs["xxxxx"]
	s := b.start(o).wait(b, o, campaign.ExitOK)
	b.check(o)
	if after := b.published("symcc", afl.Queue); !slices.Equal(after, before) || len(after) != len(secret) {
		t.Errorf("published %q, then %q", before, after)
	}
	if b.solver.runs["xxxxx"] != ran+1 || s.Published+s.Crashes+s.Hangs != 0 {
		t.Errorf("%d runs, then %d; %d+%d+%d published again", ran, b.solver.runs["xxxxx"], s.Published, s.Crashes, s.Hangs)
	}
}
