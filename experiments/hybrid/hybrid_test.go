package hybrid

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shardlease/internal/experiment"
	"shardlease/internal/hybrid"
)

func sum(n int) string { return fmt.Sprintf("%064x", n) }

// sound is a small run in which every claim holds: inputs 1 to 4 done, 4 taken over by job one; every input has one child.
func sound() data {
	stats := func(name string) hybrid.Stats {
		s := hybrid.Stats{Owner: "host:" + name, Workers: 2, Acked: 2, Clean: true, HeartbeatCalls: 2, HeartbeatPeriodS: 0.5, Shards: 2}
		s.WorkOK, s.TargetOK = 5, 5
		s.Batches, s.Renewals, s.DirectorySyncs, s.DirectorySyncsAvoided = 2, 5, 3, 2
		return s
	}
	beat := func(at float64, ok uint64, syncs int) hybrid.Event {
		return hybrid.Event{TimeS: 1000 + at, Event: hybrid.EventHeartbeat, Counters: &hybrid.Counters{WorkOK: ok, TargetOK: ok}, DirectorySyncs: syncs}
	}
	life := func(n int, event string, at float64) hybrid.Event {
		return hybrid.Event{TimeS: 1000 + at, Event: event, SHA256: sum(n)}
	}
	l := &armData{Arm: Arm{Name: leased, StartUnixS: 1000, EndS: 5, Versions: []string{},
		Jobs:   []Job{{Name: survivor, Argv: []string{}}, {Name: victim, Argv: []string{}, ExitCode: 137, KilledS: 2}},
		Fuzzer: Fuzzer{Corpus: 9, Imported: 3, Edges: 30}}}
	l.stats = map[string]hybrid.Stats{survivor: stats(survivor)}
	l.events = map[string][]hybrid.Event{
		survivor: {life(1, hybrid.EventClaim, 0.5), beat(1, 2, 1), life(1, hybrid.EventDone, 1.2), beat(1.5, 3, 2), life(4, hybrid.EventRecover, 3), life(4, hybrid.EventDone, 4)},
		victim:   {beat(1.1, 1, 1), life(4, hybrid.EventClaim, 1.5)},
	}
	for n := 1; n <= 4; n++ {
		rec := Record{SHA256: sum(n), Status: "done", Fence: 1, Attempts: 1, Owner: "host:" + survivor, Children: []string{sum(100 + n)}}
		if n == 4 {
			rec.Attempts, rec.Fence, rec.PreviousOwner = 2, 2, "host:"+victim
			l.runs = append(l.runs, Run{SHA256: sum(n), TimeS: 1001.5, PID: 1})
		}
		l.records = append(l.records, rec)
		l.runs = append(l.runs, Run{SHA256: sum(n), TimeS: 1002, PID: 2})
		l.published = append(l.published, Published{Peer: survivor, Kind: "queue", SHA256: sum(100 + n)})
	}
	l.coverage = []Cover{{TimeS: 0, Edges: 3}, {TimeS: 1, Imported: true, Edges: 30}}
	u := &armData{Arm: Arm{Name: unleased, Jobs: []Job{{Name: survivor, Argv: []string{}}}, Versions: []string{}, Fuzzer: Fuzzer{Edges: 20}},
		stats: map[string]hybrid.Stats{survivor: {Clean: true}}, runs: []Run{{SHA256: sum(1)}, {SHA256: sum(1)}}, coverage: l.coverage}
	a := &armData{Arm: Arm{Name: alone, EndS: 5, Jobs: []Job{}, Versions: []string{}, Fuzzer: Fuzzer{Edges: 3}}, coverage: l.coverage[:1]}
	return data{l, u, a}
}

// write is what Run leaves behind.
func (d data) write(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range []*armData{d.leased, d.unleased, d.alone} {
		in := func(name string) string { return filepath.Join(dir, a.Name, name) }
		check(os.MkdirAll(in(""), 0o755))
		put := func(name string, v any) {
			text, err := experiment.EncodeJSON(v)
			check(err)
			check(os.WriteFile(in(name), text, 0o644))
		}
		put(armFile, a.Arm)
		check(writeLines(in(coverageFile), a.coverage))
		check(writeLines(in(recordsFile), a.records))
		check(writeLines(in(publishedFile), a.published))
		check(writeLines(in(runsFile), a.runs))
		for _, job := range a.Jobs {
			check(writeLines(in(job.Name+eventsSuffix), a.events[job.Name]))
			if s, ok := a.stats[job.Name]; ok {
				put(job.Name+statsSuffix, s)
			}
		}
	}
	return dir
}

func decide(t *testing.T, d data) map[string]experiment.Result {
	t.Helper()
	h := New()
	m, err := h.Reduce(d.write(t))
	if err != nil {
		t.Fatal(err)
	}
	verdicts, err := experiment.Decide(h.Spec(), m, experiment.Suitable)
	if err != nil {
		t.Fatal(err)
	}
	results := map[string]experiment.Result{}
	for _, v := range verdicts {
		results[v.Claim] = v.Verdict
	}
	return results
}

func TestSoundRunPassesEveryClaimAndIsDrawn(t *testing.T) {
	d := sound()
	for claim, result := range decide(t, d) {
		if result != experiment.Pass {
			t.Errorf("%s is %s", claim, result)
		}
	}
	figs, err := Figures(d.write(t))
	if err != nil || len(figs) != 4 {
		t.Errorf("%d figures, %v", len(figs), err)
	}
}

// Each checker is shown failing: one planted fault, one claim that notices it.
func TestPlantedFaultsFailTheirClaims(t *testing.T) {
	cases := []struct {
		name, claim string
		plant       func(d *data)
	}{
		{"a second call in one period", "H1", func(d *data) { d.leased.events[victim] = append(d.leased.events[victim], d.leased.events[victim][0]) }},
		{"a call that is not in the log", "H1", func(d *data) { d.leased.events[survivor] = d.leased.events[survivor][:3] }},
		{"avoided is not the difference", "H2", func(d *data) { change(d, func(s *hybrid.Stats) { s.DirectorySyncsAvoided++ }) }},
		{"totals are not the sum of the calls", "H2", func(d *data) { change(d, func(s *hybrid.Stats) { s.Renewals++; s.DirectorySyncs++ }) }},
		{"more syncs than shards", "H2", func(d *data) { change(d, func(s *hybrid.Stats) { s.Shards = 1 }) }},
		{"nothing avoided", "H3", func(d *data) { change(d, func(s *hybrid.Stats) { s.DirectorySyncsAvoided = 0 }) }},
		{"a renewal failed", "H4", func(d *data) { change(d, func(s *hybrid.Stats) { s.TargetFailed = 1 }) }},
		{"nothing imported", "H5", func(d *data) { d.leased.Fuzzer.Imported = 0 }},
		{"no gain", "H6", func(d *data) { d.leased.Fuzzer.Edges = 3 }},
		{"an input ran twice", "H7", func(d *data) { d.leased.runs = append(d.leased.runs, Run{SHA256: sum(1)}) }},
		{"an input ran without a claim", "H7", func(d *data) { d.leased.runs = append(d.leased.runs, Run{SHA256: sum(9)}) }},
		{"the control shows nothing", "H8", func(d *data) { d.unleased.runs = d.unleased.runs[:1] }},
		{"a lease is left", "H9", func(d *data) { d.leased.records[0].Status = "leased" }},
		{"an input was given up for nothing", "H9", func(d *data) { d.leased.records[0].Status = "abandoned" }},
		{"an output is lost", "H10", func(d *data) { d.leased.published = d.leased.published[1:] }},
		{"an output was published without a commit", "H10", func(d *data) { d.leased.records[0].Children = []string{} }},
		{"nothing taken over", "H11", func(d *data) { d.leased.records[3].PreviousOwner = "" }},
		{"a process is left", "H12", func(d *data) { d.alone.LeftProcesses = 1 }},
		{"a worker did not acknowledge", "H12", func(d *data) { change(d, func(s *hybrid.Stats) { s.Acked = 1 }) }},
		{"a job failed", "H12", func(d *data) { d.unleased.Jobs[0].ExitCode = 70 }},
		{"a job left no statistics", "H12", func(d *data) { d.unleased.stats = nil }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := sound()
			c.plant(&d)
			if got := decide(t, d)[c.claim]; got != experiment.Fail {
				t.Errorf("%s is %s", c.claim, got)
			}
		})
	}
}

func change(d *data, f func(*hybrid.Stats)) {
	s := d.leased.stats[survivor]
	f(&s)
	d.leased.stats[survivor] = s
}

// An input that AFL++ trimmed away is given up with that reason; that is no unfinished work.
func TestInputThatIsGoneIsNotUnfinished(t *testing.T) {
	d := sound()
	d.leased.records[0].Status, d.leased.records[0].Children = "abandoned", []string{}
	d.leased.published = d.leased.published[1:]
	d.leased.events[survivor] = append(d.leased.events[survivor], hybrid.Event{Event: hybrid.EventFailed, SHA256: sum(1), Detail: "input-copy-error: changed"})
	if got := decide(t, d); got["H9"] != experiment.Pass || got["H10"] != experiment.Pass {
		t.Errorf("H9 %s, H10 %s", got["H9"], got["H10"])
	}
}

func TestReduceNamesAFileThatIsDamaged(t *testing.T) {
	dir := sound().write(t)
	name := filepath.Join(dir, leased, recordsFile)
	if err := os.WriteFile(name, []byte(`{"sha256":"x"}`+"\n"+`{"sha`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := New().Reduce(dir); err == nil || !strings.Contains(err.Error(), recordsFile+":2") {
		t.Errorf("error %v does not name file and line", err)
	}
}
