package campaign

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"shardlease/pkg/groupcommit"
)

// reportState is the exchange of statistics between the masters.
type reportState struct {
	own      MasterStats
	peers    []*MasterStats // rank 0: by master rank
	acked    bool           // others: rank 0 has everything
	deadline time.Time
}

// advanceStopping stops each worker once it is READY. Results still arrive and are committed; heartbeats go on.
func (m *Master) advanceStopping(context.Context) {
	for i := range m.workers {
		w := &m.workers[i]
		if !w.available || w.active != nil {
			continue
		}
		if data, first := m.shutdown.Stop(i + 1); first {
			m.sendRaw(w.rank, TagStop, data)
		}
	}
	if !m.shutdown.Done(m.now) {
		m.wakeIn(50 * time.Millisecond)
		return
	}
	// What is still queued stays leased in the records: the next run of the epoch takes it over.
	m.held.Clear()
	m.phase = settling
}

// settle waits for a heartbeat batch that is still running.
func (m *Master) settle() {
	if m.lane != nil && !m.lane.Quiet() {
		m.wakeIn(10 * time.Millisecond)
		return
	}
	m.beginReport()
}

// beginReport freezes the counters and prints them, on every way out of a campaign that had begun.
func (m *Master) beginReport() {
	w := m.env.Stdout
	fmt.Fprintln(w, m.shutdown.Line(m.rank))
	if line := m.counters.diagnostics(m.rank); line != "" {
		fmt.Fprintln(w, line)
	}
	own := MasterStats{Rank: m.rank, Workers: len(m.workers), Acked: len(m.workers) - len(m.shutdown.Pending()), Pending: m.shutdown.Pending(),
		Drained: m.shutdown.Drained, Clean: m.shutdown.Clean(), Parked: append([]string{}, m.parked...), Undiscovered: m.undiscovered, Counters: m.counters}
	if m.lane != nil {
		own.HeartbeatMetrics, own.HeartbeatLog = m.lane.Metrics(), m.lane.Log()
		if own.Batches > 0 || own.Failures > 0 {
			fmt.Fprintln(w, own.HeartbeatMetrics.line(m.rank))
		}
	}
	if m.failure != nil {
		own.Failure = m.failure.Error()
	}
	m.report.own = own
	if m.report.peers == nil {
		m.report.peers = make([]*MasterStats, m.roles.Masters)
	}
	m.report.peers[m.rank] = &m.report.own
	m.report.deadline = m.now.Add(m.opts.ShutdownGrace + m.opts.FinalizeGrace)
	m.phase = reporting
	if m.rank != 0 {
		m.send(0, TagStats, statsMsg{Schema: schemaStats, StatsToken: m.run.StatsToken, Stats: own})
	}
}

// receiveReport may come before this master has reached its own end.
func (m *Master) receiveReport(msg Message) error {
	if msg.Tag == TagStatsAck {
		a, err := decodeMsg(msg.Data, controlLimit, func(a statsAckMsg) string { return a.Schema }, schemaStatsAck)
		if err != nil || msg.From != 0 || a.Rank != m.rank || a.StatsToken != m.run.StatsToken || m.phase != reporting {
			return errors.Join(err, errors.New("stats acknowledgement"))
		}
		m.report.acked = true
		return nil
	}
	s, err := decodeMsg(msg.Data, 1<<20, func(s statsMsg) string { return s.Schema }, schemaStats)
	if err != nil || m.rank != 0 || s.StatsToken != m.run.StatsToken || s.Stats.Rank != msg.From {
		return errors.Join(err, errors.New("stats"))
	}
	if m.report.peers == nil {
		m.report.peers = make([]*MasterStats, m.roles.Masters)
	}
	m.report.peers[msg.From] = &s.Stats
	return nil
}

func (m *Master) advanceReport(ctx context.Context) {
	late := !m.now.Before(m.report.deadline)
	if m.rank == 0 {
		missing := 0
		for _, s := range m.report.peers {
			if s == nil {
				missing++
			}
		}
		if missing == 0 || late {
			m.conclude(ctx, missing)
			return
		}
	} else if m.report.acked {
		out := Outcome{Orderly: len(m.shutdown.Pending()) == 0}
		if m.failure != nil || !out.Orderly {
			out.Code, out.Reason = ExitIncomplete, Brief(m.report.own.Failure)
		}
		m.finish(out)
		return
	} else if late {
		m.finish(Outcome{Code: ExitStats, Reason: "rank 0 has not acknowledged the final statistics"})
		return
	}
	m.wakeIn(50 * time.Millisecond)
}

// conclude is rank 0's end: the verdict from records and statistics, and the end of the epoch if all work is done.
func (m *Master) conclude(ctx context.Context, missing int) {
	if m.failure != nil { // perhaps since the report was frozen
		m.report.own.Failure = m.failure.Error()
	}
	final, err := readFinal(ctx, m.table, m.corpus, m.opts.ResultMaxObjects)
	if err != nil {
		fmt.Fprintf(m.env.Stderr, "[Master] Final statistics can't be read from the work records: %s\n", Brief(err.Error()))
	} else {
		final.MastersUsed, final.WorkersUsed = m.roles.Masters, m.roles.WorkerCount()
		final.Throughput = m.rate(final.Generated)
	}
	out := m.verdict(final, missing)
	if out.Code == ExitOK {
		out = m.retire()
	}
	if final != nil {
		final.print(m.env.Stdout, m.roles.Masters)
	}
	if out.Code != ExitOK {
		fmt.Fprintf(m.env.Stderr, "[Master] Campaign ended with exit code %d: %s\n", out.Code, out.Reason)
		if out.Code != ExitRetire {
			fmt.Fprintf(m.env.Stderr, "[Master] The work epoch is kept; run again with -o %s and SYMCC_STANDALONE_WORK_EPOCH=%s to finish\n", m.opts.OutputDir, m.epoch.ID)
		}
	}
	if err := m.writeStats(final, out.Code, out.Reason); err != nil && out.Code == ExitOK {
		out.Code, out.Reason = ExitCantCreate, err.Error()
	}
	for rank, s := range m.report.peers {
		if rank != 0 && s != nil {
			m.send(rank, TagStatsAck, statsAckMsg{Schema: schemaStatsAck, Rank: rank, StatsToken: m.run.StatsToken})
		}
	}
	m.finish(out)
}

// verdict decides the exit code. A campaign is complete only if the records say so.
func (m *Master) verdict(final *Final, missing int) Outcome {
	fail := func(code int, orderly bool, format string, args ...any) Outcome {
		return Outcome{Code: code, Orderly: orderly, Reason: fmt.Sprintf(format, args...)}
	}
	orderly, undiscovered, invalid := missing == 0, false, 0
	var parked []string
	var failure string
	for _, s := range m.report.peers {
		if s == nil {
			continue
		}
		orderly = orderly && len(s.Pending) == 0
		undiscovered = undiscovered || s.Undiscovered
		invalid += s.InvalidResults
		parked = append(parked, s.Parked...)
		if failure == "" {
			failure = s.Failure
		}
		if failure == "" && !s.Clean && s.InvalidResults == 0 {
			failure = fmt.Sprintf("the worker shutdown of master %d was not clean: %d of %d acknowledged", s.Rank, s.Acked, s.Workers)
		}
	}
	switch {
	case failure != "":
		return fail(ExitIncomplete, orderly, "%s", Brief(failure))
	case missing > 0:
		return fail(ExitStats, false, "%d master(s) did not report their final statistics in time", missing)
	case final == nil:
		return fail(ExitIncomplete, orderly, "the work records can't be read")
	case invalid > 0:
		return fail(ExitIncomplete, orderly, "%d worker results were rejected", invalid)
	case len(parked) > 0:
		return fail(ExitIncomplete, orderly, "%d item(s) exceed the budgets, first %s", len(parked), parked[0])
	case final.Unfinished > 0 && m.stopReason == stopComplete:
		return fail(ExitIncomplete, orderly, "quiescence was agreed, but %d of %d objects have no done record", final.Unfinished, final.Objects)
	case final.Unfinished > 0 || undiscovered:
		return fail(ExitUnfinished, orderly, "%s with unfinished work: %d of %d known objects have no done record", m.stopReason, final.Unfinished, final.Objects)
	}
	return Outcome{Orderly: orderly}
}

// retire ends the epoch of a complete campaign.
func (m *Master) retire() Outcome {
	nonce, err := RandomHex(m.env.Rand, 16)
	if err == nil {
		err = errors.Join(m.table.Close(), m.laneFile.Close())
	}
	if err == nil {
		err = m.epoch.Retire(nonce)
	}
	if err == nil && m.temporary {
		err = groupcommit.RemoveAll(m.env.FS, m.opts.OutputDir)
	}
	if err != nil {
		return Outcome{Code: ExitRetire, Orderly: true, Reason: Brief(err.Error())}
	}
	return Outcome{Orderly: true}
}

func (m *Master) writeStats(final *Final, code int, reason string) error {
	if m.opts.StatsJSON == "" {
		return nil
	}
	s := Stats{ExitCode: code, Reason: reason, Epoch: m.run.Epoch, Resumed: m.resumed, OutputDir: m.opts.OutputDir, Processes: m.size(),
		Masters: []MasterStats{}, Final: final}
	if !m.startTime.IsZero() {
		s.WallS = m.now.Sub(m.startTime).Seconds()
	}
	for _, peer := range m.report.peers {
		if peer != nil {
			s.Masters = append(s.Masters, *peer)
		}
	}
	err := groupcommit.MkdirAll(m.env.FS, filepath.Dir(m.opts.StatsJSON), 0o777)
	if err == nil {
		err = WriteStats(m.env.FS, m.opts.StatsJSON, s)
	}
	if err != nil {
		err = fmt.Errorf("statistics file: %w", err)
		fmt.Fprintf(m.env.Stderr, "[Master] %s\n", OneLine(err.Error()))
	}
	return err
}

// finish ends this actor.
func (m *Master) finish(out Outcome) {
	m.held.Clear()
	m.outcome = out
	m.phase = ended
	if m.epoch != nil {
		_ = m.epoch.Close() // the kernel releases the campaign lock with the process in any case
	}
}
