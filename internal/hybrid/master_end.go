package hybrid

import (
	"context"
	"fmt"

	"shardlease/internal/campaign"
)

// stop begins the bounded end, once. The first failure decides the exit code.
func (m *Master) stop(code int, reason string) {
	if m.phase == ended {
		return
	}
	if m.code == campaign.ExitOK && (code != campaign.ExitOK || m.reason == "") {
		m.code, m.reason = code, campaign.OneLine(reason)
	}
	if m.phase == stopping || m.phase == settling {
		return
	}
	m.phase = stopping
	m.shutdown = campaign.NewShutdown(m.epoch, len(m.workers), m.now, m.opts.ShutdownGrace)
	if code == campaign.ExitOK {
		fmt.Fprintf(m.env.Stdout, "[Master] Stopping: %s\n", reason)
	}
}

// awaitWorkers stops each worker once it is READY. Results still arrive and are committed; heartbeats go on.
func (m *Master) awaitWorkers() {
	for i := range m.workers {
		w := &m.workers[i]
		if !w.available || w.job != nil {
			continue
		}
		if data, first := m.shutdown.Stop(w.rank); first {
			m.out.Send = append(m.out.Send, campaign.Message{To: w.rank, Tag: campaign.TagStop, Data: data})
		}
	}
	if !m.shutdown.Done(m.now) {
		m.out.Wake = m.now.Add(pollInterval)
		return
	}
	if m.site != nil {
		m.site.own.held.Clear() // what a silent worker still has expires, and is taken over then
	}
	m.phase = settling
}

// settle waits for a heartbeat that is still running, finishes what can be finished, and reports: on every way out.
func (m *Master) settle(ctx context.Context) {
	if m.lane != nil && !m.lane.Quiet() {
		m.out.Wake = m.now.Add(pollInterval / 5)
		return
	}
	if m.site != nil {
		_, err := m.redo(ctx)
		m.complain("redo", err)
	}
	m.decide()
	m.phase = ended
	if m.site != nil {
		m.site.log.add(Event{Event: EventStop, Detail: m.reason})
		if err := m.site.log.Err(); err != nil && m.outcome.Code == campaign.ExitOK {
			m.outcome.Code, m.reason = campaign.ExitCantCreate, fmt.Sprintf("the event log is incomplete: %v", err)
		}
	}
	s := m.stats()
	if m.opts.StatsJSON != "" {
		if err := s.write(m.env, m.opts.StatsJSON); err != nil && m.outcome.Code == campaign.ExitOK {
			m.outcome.Code, m.reason = campaign.ExitCantCreate, err.Error()
		}
	}
	m.outcome.Reason = m.reason
	if m.outcome.Code != campaign.ExitOK {
		fmt.Fprintf(m.env.Stderr, "[Master] Campaign ended with exit code %d: %s\n", m.outcome.Code, m.reason)
	}
	fmt.Fprintln(m.env.Stdout, m.shutdown.Line(coordinator))
	if m.site != nil {
		s.print(m.env.Stdout)
		m.complain("close", m.site.close())
	}
}

// decide sets the exit code. Orderly means that every worker has acknowledged its end.
func (m *Master) decide() {
	m.outcome = campaign.Outcome{Code: m.code, Orderly: len(m.shutdown.Pending()) == 0}
	if m.code != campaign.ExitOK {
		return
	}
	switch {
	case !m.shutdown.Clean():
		m.reason = fmt.Sprintf("the worker shutdown was not clean: %d of %d acknowledged within %s", len(m.workers)-len(m.shutdown.Pending()), len(m.workers), m.opts.ShutdownGrace)
	case m.counters.Rejected > 0:
		m.reason = fmt.Sprintf("%d worker results were rejected", m.counters.Rejected)
	case m.unsettled > 0:
		m.reason = fmt.Sprintf("%d begun commit(s) could not be finished; the next coordinator on %s finishes them", m.unsettled, m.opts.LeaseDir)
	default:
		return
	}
	m.outcome.Code = campaign.ExitIncomplete
}

// sample prints a progress line and logs the state, every two seconds.
func (m *Master) sample() {
	if m.phase != running || m.now.Before(m.nextSample) {
		return
	}
	m.nextSample = m.now.Add(sampleInterval)
	published := 0
	for _, n := range m.site.publisher.published {
		published += n
	}
	fmt.Fprintf(m.env.Stdout, "[Master] %d generated, %d published, %d analysed, %d busy, %d edges\n",
		m.counters.Generated, published, m.counters.Completed, m.busy(), m.inputs.coverage.Edges())
	m.site.log.add(Event{Event: EventSample, Generated: m.counters.Generated, Published: published, Edges: m.inputs.coverage.Edges(),
		Inputs: len(m.inputs.known), Active: m.busy()})
	if m.lane == nil {
		return
	}
	total, _, trouble := m.site.own.entry.counters()
	if total.WorkFailed > m.beats.WorkFailed || total.TargetFailed > m.beats.TargetFailed {
		fmt.Fprintf(m.env.Stderr, "[Master] shared lease heartbeat failures: %s\n", encode(total))
		m.complain("heartbeat", trouble)
	}
	m.beats = total
}
