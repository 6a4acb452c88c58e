package hybrid

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"shardlease/internal/campaign"
	"shardlease/internal/hybrid/afl"
	"shardlease/pkg/groupcommit"
)

// Tally counts what happened to items and outputs.
type Tally struct {
	Dispatched         int `json:"dispatched"`
	Completed          int `json:"completed"`           // results committed by this coordinator
	CompletedElsewhere int `json:"completed_elsewhere"` // begun here, finished by another
	DoneElsewhere      int `json:"done_elsewhere"`      // not dispatched: another has done it
	HeldElsewhere      int `json:"held_elsewhere"`      // put off: another has it
	TargetConflicts    int `json:"target_conflicts"`    // put off: its branch targets are being worked on
	Recovered          int `json:"recovered"`           // dispatched after another's lease had expired
	Unrecoverable      int `json:"unrecoverable"`       // expired, but the input is gone
	Redone             int `json:"redone_commits"`      // begun by another, finished here
	Stale              int `json:"stale_results"`       // the lease was gone when the result came
	LostLeases         int `json:"lost_leases"`
	Failed             int `json:"failed_runs"` // without a result
	Parked             int `json:"parked"`      // failed too often
	Vanished           int `json:"vanished_inputs"`
	Rejected           int `json:"invalid_worker_results"`
	Quarantined        int `json:"quarantined_control"` // messages that were ignored
	TimedOut           int `json:"timed_out"`           // solver runs
	MeasureErrors      int `json:"measure_errors"`
	StorageErrors      int `json:"storage_errors"`
	Troubles           int `json:"troubles"` // lines that said so, repeated ones included
	Generated          int `json:"generated"`
	Covered            int `json:"covered"` // generated, but nothing new
}

// Stats is the content of the --stats-json file.
type Stats struct {
	Schema   string   `json:"schema"`
	ExitCode int      `json:"exit_code"`
	Reason   string   `json:"reason"`
	Out      string   `json:"out"`
	Instance string   `json:"instance"`
	Name     string   `json:"name"`
	Owner    string   `json:"owner"`
	Leases   bool     `json:"leases"`
	Target   []string `json:"target"`
	WallS    float64  `json:"wall_s"`
	Workers  int      `json:"workers"`
	Acked    int      `json:"acked"`
	Clean    bool     `json:"clean"` // the worker shutdown
	Drained  int      `json:"drained_results"`
	Tally
	Unsettled       int    `json:"unsettled_commits"` // begun, not finished: the next coordinator finishes them
	Inputs          int    `json:"inputs"`            // distinct contents seen
	Unmeasurable    int    `json:"unmeasurable"`
	Edges           int    `json:"edges"`
	CoverageVersion uint64 `json:"coverage_version"`
	Published       int    `json:"published"` // into the queue
	Crashes         int    `json:"crashes"`
	Hangs           int    `json:"hangs"`
	// Counters are those of HeartbeatFenced; HeartbeatCalls is the number of its calls, at most one a period.
	Counters
	HeartbeatCalls   uint64  `json:"heartbeat_calls"`
	HeartbeatPeriodS float64 `json:"heartbeat_period_s"`
	Shards           int     `json:"shards"`
	campaign.HeartbeatMetrics
}

const statsSchema = "shardlease-hybrid-stats-v1"

func (m *Master) stats() Stats {
	s := Stats{Schema: statsSchema, ExitCode: m.outcome.Code, Reason: m.reason, Out: m.opts.Out, Instance: m.opts.Instance, Name: m.opts.Name,
		Owner: m.opts.MasterID, Leases: m.opts.Leases, WallS: m.now.Sub(m.startTime).Seconds(), Workers: len(m.workers), Tally: m.counters, Unsettled: m.unsettled}
	if m.shutdown != nil {
		s.Acked, s.Clean, s.Drained = len(m.workers)-len(m.shutdown.Pending()), m.shutdown.Clean(), m.shutdown.Drained
	}
	if m.site == nil {
		return s
	}
	s.Target = m.site.inst.Target
	s.Inputs, s.Unmeasurable = len(m.inputs.known), m.inputs.unmeasurable
	s.Edges, s.CoverageVersion = m.inputs.coverage.Edges(), m.inputs.coverage.Version()
	published := m.site.publisher.published
	s.Published, s.Crashes, s.Hangs = published[afl.Queue], published[afl.Crashes], published[afl.Hangs]
	if m.lane != nil {
		s.HeartbeatPeriodS, s.Shards = m.opts.HeartbeatInterval().Seconds(), m.opts.Shards
		s.HeartbeatMetrics = m.lane.Metrics()
		s.Counters, s.HeartbeatCalls, _ = m.site.own.entry.counters()
	}
	return s
}

func (s *Stats) print(w io.Writer) {
	fmt.Fprintf(w, "[Master] Fenced heartbeats: calls=%d work_ok=%d work_failed=%d target_ok=%d target_failed=%d\n",
		s.HeartbeatCalls, s.WorkOK, s.WorkFailed, s.TargetOK, s.TargetFailed)
	fmt.Fprintf(w, "[Master] Lease heartbeat group commit: batches=%d renewals=%d directory_syncs=%d directory_syncs_avoided=%d failures=%d\n",
		s.Batches, s.Renewals, s.DirectorySyncs, s.DirectorySyncsAvoided, s.Failures)
	fmt.Fprintf(w, "[Master] Work-control diagnostics: stale_results=%d recovered=%d redone_commits=%d lost_leases=%d held_elsewhere=%d done_elsewhere=%d target_conflicts=%d quarantined_control=%d\n",
		s.Stale, s.Recovered, s.Redone, s.LostLeases, s.HeldElsewhere, s.DoneElsewhere, s.TargetConflicts, s.Quarantined)
	fmt.Fprintf(w, "\n[Master] === Final Statistics ===\n")
	fmt.Fprintf(w, "[Master] Inputs seen:          %d\n", s.Inputs)
	fmt.Fprintf(w, "[Master] Inputs analysed:      %d\n", s.Completed)
	fmt.Fprintf(w, "[Master] Test cases generated: %d\n", s.Generated)
	fmt.Fprintf(w, "[Master] Published for AFL:    %d, crashes %d, hangs %d\n", s.Published, s.Crashes, s.Hangs)
	fmt.Fprintf(w, "[Master] Edges covered:        %d\n", s.Edges)
}

// write replaces the file atomically and durably.
func (s *Stats) write(env *Env, name string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		name, err = filepath.Abs(name)
	}
	if err == nil {
		err = groupcommit.WriteFile(env.FS, name, append(data, '\n'), 0o666)
	}
	if err != nil {
		return fmt.Errorf("statistics file: %w", err)
	}
	return nil
}

func printHeader(w io.Writer, o *Options, inst *afl.Instance, workers int) {
	fmt.Fprintf(w, "SymCC MPI Hybrid Execution beside AFL++\n")
	fmt.Fprintf(w, "  Processes:     %d (1 coordinator, %d workers)\n", workers+1, workers)
	fmt.Fprintf(w, "  AFL instance:  %s in %s (process %d)\n", inst.Name, inst.Out, inst.PID)
	fmt.Fprintf(w, "  Target:        %s\n", strings.Join(inst.Target, " "))
	fmt.Fprintf(w, "  Solver:        %s\n", strings.Join(o.Solver, " "))
	fmt.Fprintf(w, "  Our name:      %s\n", o.Name)
	fmt.Fprintf(w, "  Timeout:       %gs per execution\n", o.Timeout.Seconds())
	if o.Leases {
		fmt.Fprintf(w, "  Leases:        %s as %s, %d shards, lease=%gs\n", o.LeaseDir, o.MasterID, o.Shards, o.LeaseTTL.Seconds())
	} else {
		fmt.Fprintf(w, "  Leases:        off (SYMCC_MULTI_MASTER_LEASES=1 turns them on)\n")
	}
}
