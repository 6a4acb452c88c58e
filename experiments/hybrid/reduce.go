package hybrid

import (
	"fmt"
	"path/filepath"
	"strings"

	"shardlease/internal/experiment"
	"shardlease/internal/hybrid"
)

// data is everything recorded.
type data struct{ leased, unleased, alone *armData }

func load(dir string) (d data, err error) {
	for name, into := range map[string]**armData{leased: &d.leased, unleased: &d.unleased, alone: &d.alone} {
		if *into, err = loadArm(dir, name); err != nil {
			return d, err
		}
	}
	return d, nil
}

// Reduce computes the metrics from the raw files of dir.
func (h *Hybrid) Reduce(dir string) (*experiment.Metrics, error) {
	d, err := load(dir)
	if err != nil {
		return nil, err
	}
	m := &experiment.Metrics{Experiment: "hybrid"}
	exact := func(name string, value int, unit, file string) {
		m.Metrics = append(m.Metrics, experiment.Exact(name, float64(value), unit, file))
	}
	in := func(arm, file string) string { return filepath.Join(arm, file) }
	s, ok := d.leased.stats[survivor]
	if !ok {
		return nil, fmt.Errorf("job %s of arm %s has left no statistics", survivor, leased)
	}
	events := in(leased, survivor+eventsSuffix)
	exact("beats.extra_calls", d.leased.extraCalls(s), "calls", events)
	m.Metrics = append(m.Metrics, experiment.Bool("beats.identity", d.leased.identity(s), events))
	exact("beats.avoided", int(s.DirectorySyncsAvoided), "syncs", in(leased, survivor+statsSuffix))
	exact("beats.failed", int(s.WorkFailed+s.TargetFailed+s.Failures), "renewals", in(leased, survivor+statsSuffix))
	exact("beats.calls", int(s.HeartbeatCalls), "calls", in(leased, survivor+statsSuffix))
	exact("beats.renewals", int(s.Renewals), "renewals", in(leased, survivor+statsSuffix))
	exact("beats.late_ms_max", int(s.LateMax), "ms", in(leased, survivor+statsSuffix))
	exact("afl.imported", int(d.leased.Fuzzer.Imported), "inputs", in(leased, armFile))
	if d.alone.Fuzzer.Edges <= 0 {
		return nil, fmt.Errorf("AFL++ reports no edges in arm %s", alone)
	}
	m.Metrics = append(m.Metrics, experiment.Exact("afl.edges_ratio", d.leased.Fuzzer.Edges/d.alone.Fuzzer.Edges, "with / alone", in(leased, armFile)))
	for _, a := range []*armData{d.leased, d.unleased, d.alone} {
		exact(a.Name+".edges", int(a.Fuzzer.Edges), "edges", in(a.Name, armFile))
		exact(a.Name+".inputs", int(a.Fuzzer.Corpus), "inputs", in(a.Name, armFile))
		exact(a.Name+".runs", len(a.runs), "runs", in(a.Name, runsFile))
	}
	exact("leased.double_runs", d.leased.doubleRuns(true), "runs", in(leased, runsFile))
	exact("unleased.double_runs", d.unleased.doubleRuns(false), "runs", in(unleased, runsFile))
	exact("leased.unfinished", d.leased.unfinished(), "records", in(leased, recordsFile))
	exact("leased.misplaced", d.leased.misplaced(), "outputs", in(leased, publishedFile))
	exact("leased.taken_over", d.leased.takenOver(s.Owner), "inputs", in(leased, recordsFile))
	exact("leased.published", len(d.leased.published), "outputs", in(leased, publishedFile))
	clean := d.leased.clean() && d.unleased.clean() && d.alone.clean()
	m.Metrics = append(m.Metrics, experiment.Bool("shutdown.clean", clean, in(leased, armFile)))
	return m, m.Finish()
}

// heartbeats are those of one job, in order.
func (a *armData) heartbeats(job string) (beats []hybrid.Event) {
	for _, ev := range a.events[job] {
		if ev.Event == hybrid.EventHeartbeat && ev.Counters != nil {
			beats = append(beats, ev)
		}
	}
	return beats
}

// extraCalls counts heartbeats that came too early to be another period's, in both jobs, and those of the survivor that were not counted alike
// by the entry, its lane and the event log.
func (a *armData) extraCalls(s hybrid.Stats) int {
	extra := 0
	for _, job := range a.Jobs {
		beats := a.heartbeats(job.Name)
		for i := 1; i < len(beats); i++ {
			if beats[i].TimeS-beats[i-1].TimeS < s.HeartbeatPeriodS/2 {
				extra++
			}
		}
	}
	off := func(n uint64) int { return max(int(n)-int(s.HeartbeatCalls), int(s.HeartbeatCalls)-int(n)) }
	return extra + off(s.Batches+s.Failures) + off(uint64(len(a.heartbeats(survivor))))
}

// identity checks the report's equation for the totals, and that they are the sums of what each heartbeat did.
func (a *armData) identity(s hybrid.Stats) bool {
	var ok, syncs uint64
	for _, ev := range a.heartbeats(survivor) {
		ok += ev.Counters.WorkOK
		syncs += uint64(ev.DirectorySyncs)
		if ev.DirectorySyncs > s.Shards || uint64(ev.DirectorySyncs) > ev.Counters.WorkOK {
			return false
		}
	}
	return s.DirectorySyncsAvoided == s.Renewals-s.DirectorySyncs && ok == s.Renewals && syncs == s.DirectorySyncs && s.Renewals > 0
}

// doubleRuns counts the solver's runs beyond what was allowed: with leases one for each claim of the record, without them one for each input.
func (a *armData) doubleRuns(leases bool) int {
	allowed := map[string]int{}
	for _, rec := range a.records {
		allowed[rec.SHA256] += rec.Attempts
	}
	runs := map[string]int{}
	for _, run := range a.runs {
		runs[run.SHA256]++
	}
	double := 0
	for sum, n := range runs {
		if leases {
			double += max(0, n-allowed[sum])
		} else {
			double += n - 1
		}
	}
	return double
}

// unfinished counts records that are not done. An input that AFL++ has trimmed between scan and run is no more: its record is given up,
// with the reason in the event log, and what it was trimmed to has a record of its own.
func (a *armData) unfinished() (n int) {
	gone := map[string]bool{}
	for _, events := range a.events {
		for _, ev := range events {
			if ev.Event == hybrid.EventFailed && strings.HasPrefix(ev.Detail, "input-copy-error") {
				gone[ev.SHA256] = true
			}
		}
	}
	for _, rec := range a.records {
		if rec.Status != "done" && !(rec.Status == "abandoned" && gone[rec.SHA256]) {
			n++
		}
	}
	return n
}

// misplaced compares what commits have declared with what is published.
func (a *armData) misplaced() (n int) {
	files := map[string]bool{}
	for _, p := range a.published {
		files[p.SHA256] = true
	}
	declared := map[string]bool{}
	for _, rec := range a.records {
		for _, c := range rec.Children {
			declared[c] = true
		}
	}
	for sum := range declared {
		if !files[sum] {
			n++
		}
	}
	for sum := range files {
		if !declared[sum] {
			n++
		}
	}
	return n
}

// takenOver counts records that another held before the owner finished them.
func (a *armData) takenOver(owner string) (n int) {
	for _, rec := range a.records {
		if rec.Status == "done" && rec.Owner == owner && rec.PreviousOwner != "" && rec.PreviousOwner != owner {
			n++
		}
	}
	return n
}

func (a *armData) clean() bool {
	for _, job := range a.Jobs {
		if job.KilledS > 0 {
			continue
		}
		s, ok := a.stats[job.Name]
		if !ok || job.ExitCode != 0 || s.ExitCode != 0 || !s.Clean || s.Acked != s.Workers || s.Unsettled > 0 {
			return false
		}
	}
	return a.LeftProcesses == 0 && a.LeftSegments == 0
}
