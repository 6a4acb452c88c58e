package campaign

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/lease"
)

// Counters are what one master counts in one run. The names are those of the output lines.
type Counters struct {
	Generated          int `json:"generated"`
	Interesting        int `json:"interesting"`
	Analyzed           int `json:"analyzed"`
	StaleResults       int `json:"stale_results"`
	Recovered          int `json:"recovered"`
	ReplayedCommits    int `json:"replayed_commits"`
	LostLeases         int `json:"lost_leases"`
	QuarantinedControl int `json:"quarantined_control"`
	InvalidResults     int `json:"invalid_worker_results"`
	QuarantinedWorkers int `json:"quarantined_workers"`
	SkippedInputs      int `json:"skipped_inputs"` // larger than the input budget
	ExitZero           int `json:"exit_zero"`      // how the analysed targets ended
	ExitNonzero        int `json:"exit_nonzero"`
	Signalled          int `json:"signalled"`
	TimedOut           int `json:"timed_out"`
}

func (c *Counters) add(o Counters) {
	c.Generated += o.Generated
	c.Interesting += o.Interesting
	c.Analyzed += o.Analyzed
	c.StaleResults += o.StaleResults
	c.Recovered += o.Recovered
	c.ReplayedCommits += o.ReplayedCommits
	c.LostLeases += o.LostLeases
	c.QuarantinedControl += o.QuarantinedControl
	c.InvalidResults += o.InvalidResults
	c.QuarantinedWorkers += o.QuarantinedWorkers
	c.SkippedInputs += o.SkippedInputs
	c.ExitZero += o.ExitZero
	c.ExitNonzero += o.ExitNonzero
	c.Signalled += o.Signalled
	c.TimedOut += o.TimedOut
}

// MasterStats is what a master reports at its end.
type MasterStats struct {
	Rank    int      `json:"rank"`
	Workers int      `json:"workers"`
	Acked   int      `json:"acked"`
	Pending []int    `json:"pending"`
	Drained int      `json:"drained_results"`
	Clean   bool     `json:"clean"`  // the worker shutdown
	Parked  []string `json:"parked"` // items that no worker could analyse within the budgets
	// Undiscovered says that the master stopped before it had looked at all inputs and objects.
	Undiscovered bool   `json:"undiscovered"`
	Failure      string `json:"failure"`
	Counters
	HeartbeatMetrics
	HeartbeatLog []BeatRecord `json:"heartbeat_log"` // the first batches of this run
}

// Final are the campaign's results, read from the records when all ranks have stopped. In a resumed epoch they cover the earlier runs too.
type Final struct {
	Observations int         `json:"total_analysis_observations"`
	Generated    int         `json:"total_test_cases_generated"`
	External     int         `json:"external_input_objects"`
	Interesting  int         `json:"new_interesting_test_cases"`
	Throughput   float64     `json:"throughput_tc_per_s"`
	MastersUsed  int         `json:"masters_used"`
	WorkersUsed  int         `json:"workers_used"`
	ByMaster     map[int]int `json:"analysis_by_master"`
	Objects      int         `json:"corpus_objects"`
	Unfinished   int         `json:"unfinished"` // objects without a done record
}

// Stats is the content of the --stats-json file.
type Stats struct {
	Schema    string        `json:"schema"`
	ExitCode  int           `json:"exit_code"`
	Reason    string        `json:"reason"`
	Epoch     string        `json:"epoch"`
	Resumed   bool          `json:"resumed"`
	OutputDir string        `json:"output_dir"`
	Processes int           `json:"processes"`
	WallS     float64       `json:"wall_s"`
	Masters   []MasterStats `json:"masters"` // those that reported
	Total     Total         `json:"total"`
	Final     *Final        `json:"final"` // null if the records could not be read
}

// Total sums the masters.
type Total struct {
	Workers int `json:"workers"`
	Acked   int `json:"acked"`
	Drained int `json:"drained_results"`
	Counters
	HeartbeatMetrics
}

const statsSchema = "shardlease-standalone-stats-v1"

func sumStats(masters []MasterStats) Total {
	var t Total
	for _, m := range masters {
		t.Workers += m.Workers
		t.Acked += m.Acked
		t.Drained += m.Drained
		t.Counters.add(m.Counters)
		t.HeartbeatMetrics.add(m.HeartbeatMetrics)
	}
	return t
}

// ClearStats removes what an earlier run has left under name, so that a campaign that is killed has no statistics. In doing so it finds out, before anything is
// analysed, whether they can be written in the end.
func ClearStats(fsys vfs.FS, name string) error {
	abs, err := filepath.Abs(name)
	if err == nil {
		err = groupcommit.MkdirAll(fsys, filepath.Dir(abs), 0o777)
	}
	if err == nil {
		err = groupcommit.WriteFile(fsys, abs, nil, 0o666)
	}
	if err == nil {
		err = groupcommit.Remove(fsys, abs)
	}
	if err != nil {
		return fmt.Errorf("statistics file: %w", err)
	}
	return nil
}

// WriteStats replaces name atomically and durably.
func WriteStats(fsys vfs.FS, name string, s Stats) error {
	s.Schema = statsSchema
	s.Total = sumStats(s.Masters)
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("statistics: %w", err)
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		return fmt.Errorf("statistics: %w", err)
	}
	return groupcommit.WriteFile(fsys, abs, append(data, '\n'), 0o666)
}

// readFinal decides from the records what the campaign has achieved: the end of a campaign is never inferred from empty queues.
func readFinal(ctx context.Context, table Table, corpus *Corpus, maxObjects int) (*Final, error) {
	f := &Final{ByMaster: map[int]int{}}
	done := map[lease.ID]bool{}
	for rec, err := range table.Records(ctx) {
		if err != nil {
			return nil, err
		}
		p, err := checkPayload(rec)
		if err != nil {
			return nil, err
		}
		if p.Origin == Initial {
			f.External++
		} else {
			f.Interesting++
		}
		if rec.Status != lease.Done {
			continue
		}
		m, err := decodeManifest(rec.Manifest, resultLimit(maxObjects))
		if err != nil {
			return nil, fmt.Errorf("work record %s: %w", rec.ID, err)
		}
		done[rec.ID] = true
		f.Observations++
		f.Generated += m.NumGenerated
		if rank, ok := ownerRank(rec.Holder.Owner); ok {
			f.ByMaster[rank]++
		}
	}
	ids, err := corpus.List()
	if err != nil {
		return nil, err
	}
	f.Objects = len(ids)
	for _, id := range ids {
		if !done[id] {
			f.Unfinished++
		}
	}
	return f, nil
}

func (f *Final) print(w io.Writer, masters int) {
	by := make([]string, masters)
	for rank := range masters {
		by[rank] = fmt.Sprintf("%d=%d", rank, f.ByMaster[rank])
	}
	fmt.Fprintf(w, "\n[Master] === Final Statistics ===\n")
	fmt.Fprintf(w, "[Master] Total analysis observations:      %d\n", f.Observations)
	fmt.Fprintf(w, "[Master] Total test cases generated:  %d\n", f.Generated)
	fmt.Fprintf(w, "[Master] External input objects:      %d\n", f.External)
	fmt.Fprintf(w, "[Master] New interesting test cases:  %d\n", f.Interesting)
	fmt.Fprintf(w, "[Master] Throughput:                  %.1f tc/s\n", f.Throughput)
	fmt.Fprintf(w, "[Master] Masters used:               %d\n", f.MastersUsed)
	fmt.Fprintf(w, "[Master] Workers used:               %d\n", f.WorkersUsed)
	fmt.Fprintf(w, "[Master] Analysis by master:         %s\n", strings.Join(by, ", "))
}

// printHeader shows what is about to run.
func printHeader(w io.Writer, o *Options, roles Roles, size int, epoch string, resumed bool) {
	fmt.Fprintf(w, "SymCC MPI Parallel Concolic Execution\n")
	fmt.Fprintf(w, "  Processes:     %d\n", size)
	if roles.Masters == 1 {
		fmt.Fprintf(w, "  Mode:          single-master (%d workers)\n", roles.WorkerCount())
	} else {
		fmt.Fprintf(w, "  Mode:          multi-master (%d masters, auto-scaled at %d workers/master)\n", roles.Masters, o.WorkersPerMaster)
		for m, workers := range roles.Workers {
			fmt.Fprintf(w, "    Master %d: %d workers\n", m, len(workers))
		}
	}
	kind := "new"
	if resumed {
		kind = "configured recovery"
	}
	fmt.Fprintf(w, "  Shared dir:    %s\n", o.OutputDir)
	fmt.Fprintf(w, "  Input dir:     %s\n", o.InputDir)
	fmt.Fprintf(w, "  Target:        %s\n", strings.Join(o.Target, " "))
	fmt.Fprintf(w, "  Timeout:       %s per execution\n", seconds(o.Timeout))
	fmt.Fprintf(w, "  Work epoch:    %s (%s)\n", epoch, kind)
	if o.WallTimeout > 0 {
		fmt.Fprintf(w, "  Wall timeout:  %s total\n", seconds(o.WallTimeout))
	}
}

// seconds writes a duration as the reference does: 3s, 1.5s.
func seconds(d time.Duration) string { return fmt.Sprintf("%gs", d.Seconds()) }

func (m HeartbeatMetrics) line(rank int) string {
	return fmt.Sprintf("[Master %d] Lease heartbeat group commit: batches=%d renewals=%d directory_syncs=%d directory_syncs_avoided=%d failures=%d",
		rank, m.Batches, m.Renewals, m.DirectorySyncs, m.DirectorySyncsAvoided, m.Failures)
}

// diagnostics is the work-control line, or "" if all its counters are zero.
func (c Counters) diagnostics(rank int) string {
	if c.StaleResults+c.Recovered+c.ReplayedCommits+c.LostLeases+c.QuarantinedControl == 0 {
		return ""
	}
	return fmt.Sprintf("[Master %d] Work-control diagnostics: stale_results=%d recovered=%d replayed_commits=%d lost_leases=%d quarantined_control=%d",
		rank, c.StaleResults, c.Recovered, c.ReplayedCommits, c.LostLeases, c.QuarantinedControl)
}
