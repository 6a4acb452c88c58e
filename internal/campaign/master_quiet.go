package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// quiescence is how the masters agree that the campaign is over (reference behaviour 6.10). Rank 0 asks when all have said that they are idle; each looks
// again at the disk before it answers; all leave together or none.
type quiescence struct {
	sequence   uint64
	saidIdle   bool
	nextStatus time.Time
	peers      []peerStatus // by master rank
	idle       bool
	idleSince  time.Time
	round      *round // rank 0: the question that is open
	frozen     string // others: the token they have answered "idle" to; no discovery until the decision
	frozenAt   time.Time
	nextLook   time.Time // after a look that found work: not again at once
}

type peerStatus struct {
	sequence uint64
	idle     bool
	seen     time.Time
	heard    bool
}

type round struct {
	token      string
	committing bool
	answered   []bool
	missing    int
	deadline   time.Time
}

// suspended tells that discovery must wait for the decision.
func (q *quiescence) suspended() bool { return q.round != nil || q.frozen != "" }

// heardFromAll tells whether every other master has said that it has started.
func (q *quiescence) heardFromAll(self int) bool {
	for rank, p := range q.peers {
		if rank != self && !p.heard {
			return false
		}
	}
	return true
}

// idle is what a master can say without looking at the disk.
func (m *Master) idle() bool {
	if !m.started || len(m.backlog)+len(m.pending)+len(m.unclaimed) > 0 {
		return false
	}
	for _, w := range m.workers {
		if w.active != nil {
			return false
		}
	}
	return true
}

// refresh looks at everything again and decides from the records whether there is work left: leases and commits of anybody count.
func (m *Master) refresh(ctx context.Context) (idle bool, err error) {
	if err := m.scanInputs(ctx); err != nil {
		return false, err
	}
	if err := m.scan(ctx); err != nil {
		return false, err
	}
	for len(m.backlog) > 0 {
		next := m.backlog[0]
		m.backlog = m.backlog[1:]
		if err := next(ctx); err != nil {
			return false, err
		}
	}
	if !m.idle() {
		return false, nil
	}
	counts, err := m.table.Counts(ctx)
	if err != nil {
		return false, fmt.Errorf("work records: %w", err)
	}
	if counts.Corrupt > 0 {
		return false, fmt.Errorf("%d work records in %s are corrupt; run shardlease leases list to see which", counts.Corrupt, m.epoch.Dir())
	}
	return counts.Leased == 0 && counts.Committing == 0, nil
}

func (m *Master) advanceQuiescence(ctx context.Context) {
	if !m.started {
		return
	}
	idle := m.idle()
	if idle != m.quiet.idle {
		m.quiet.idle, m.quiet.idleSince = idle, m.now
	}
	if m.roles.Masters == 1 {
		m.idleDeadline(ctx)
		return
	}
	m.sayStatus(idle)
	if m.rank == 0 {
		m.leadQuiescence(ctx)
	} else if m.quiet.frozen != "" && m.now.Sub(m.quiet.frozenAt) > m.patience() {
		m.fail(fmt.Errorf("master 0 has not decided on quiescence for %s", m.patience()))
	}
}

// patience is how long a master may be silent: the shutdown grace, but no less than a second, since an answer takes a look at the disk.
func (m *Master) patience() time.Duration { return max(m.opts.ShutdownGrace, time.Second) }

// idleDeadline ends a campaign with one master.
func (m *Master) idleDeadline(ctx context.Context) {
	if !m.quiet.idle {
		return
	}
	if !m.announced {
		m.announced = true
		fmt.Fprintln(m.env.Stdout, "[Master] Waiting for inputs...")
	}
	waited := m.now.Sub(m.quiet.idleSince)
	if waited < m.opts.MaxIdle || m.now.Before(m.quiet.nextLook) {
		return
	}
	if m.look(ctx) {
		fmt.Fprintf(m.env.Stdout, "[Master] No more inputs after %.3fs (limit %s). Shutting down.\n", waited.Seconds(), seconds(m.opts.MaxIdle))
		m.stop(stopComplete, "")
	}
}

// look refreshes; errors are control failures.
func (m *Master) look(ctx context.Context) bool {
	idle, err := m.refresh(ctx)
	if err != nil {
		m.fail(err)
		return false
	}
	if !idle {
		m.quiet.nextLook = m.now.Add(m.opts.ScanInterval)
	}
	return idle
}

func (m *Master) sayStatus(idle bool) {
	q := &m.quiet
	if q.sequence > 0 && idle == q.saidIdle && m.now.Before(q.nextStatus) {
		return
	}
	q.sequence++
	q.saidIdle, q.nextStatus = idle, m.now.Add(m.opts.StatusInterval())
	m.sendPeers(TagStatus, statusMsg{Schema: schemaStatus, Rank: m.rank, Sequence: q.sequence, Idle: idle})
}

// leadQuiescence is rank 0's part.
func (m *Master) leadQuiescence(ctx context.Context) {
	q := &m.quiet
	if q.round != nil {
		if !m.now.Before(q.round.deadline) {
			m.fail(fmt.Errorf("%d master(s) have not answered the quiescence question for %s", q.round.missing, m.patience()))
		}
		return
	}
	all := q.idle
	for rank, p := range q.peers {
		if rank != 0 && (!p.heard || !p.idle || m.now.Sub(p.seen) > m.opts.statusFresh()) {
			all = false
		}
	}
	if !all {
		q.idleSince = m.now
		return
	}
	if m.now.Sub(q.idleSince) < m.opts.MaxIdle || m.now.Before(q.nextLook) || !m.look(ctx) {
		return
	}
	token, err := RandomHex(m.env.Rand, 32)
	if err != nil {
		m.fail(err)
		return
	}
	q.round = &round{token: token, deadline: m.now.Add(m.patience())}
	m.ask(TagProbe, schemaProbe, false)
}

// ask sends the round's question to all and waits for answers.
func (m *Master) ask(tag int, schema string, committing bool) {
	r := m.quiet.round
	r.committing, r.answered, r.missing = committing, make([]bool, m.roles.Masters), m.roles.Masters-1
	m.sendPeers(tag, probeMsg{Schema: schema, ProbeToken: r.token})
}

func (m *Master) receiveQuiescence(ctx context.Context, msg Message) error {
	switch msg.Tag {
	case TagStatus:
		s, err := decodeMsg(msg.Data, controlLimit, func(s statusMsg) string { return s.Schema }, schemaStatus)
		p := &m.quiet.peers[msg.From]
		if err != nil || s.Rank != msg.From || s.Sequence <= p.sequence {
			return errors.Join(err, errors.New("status"))
		}
		*p = peerStatus{sequence: s.Sequence, idle: s.Idle, seen: m.now, heard: true}
		return nil
	case TagProbe:
		return m.answerProbe(ctx, msg)
	case TagQuiesce:
		return m.obeyDecision(msg)
	case TagProbeReply:
		r, err := decodeMsg(msg.Data, controlLimit, func(r probeReplyMsg) string { return r.Schema }, schemaProbeReply)
		if err != nil {
			return err
		}
		return m.collect(msg.From, r.Rank, r.ProbeToken, false, r.Idle)
	case TagQuiesceAck:
		r, err := decodeMsg(msg.Data, controlLimit, func(r commitAckMsg) string { return r.Schema }, schemaCommitAck)
		if err != nil {
			return err
		}
		return m.collect(msg.From, r.Rank, r.ProbeToken, true, r.Committed)
	}
	return fmt.Errorf("tag %d", msg.Tag)
}

// answerProbe is the other masters' part: look again, then promise to find nothing new until the decision.
func (m *Master) answerProbe(ctx context.Context, msg Message) error {
	p, err := decodeMsg(msg.Data, controlLimit, func(p probeMsg) string { return p.Schema }, schemaProbe)
	if err != nil || msg.From != 0 || m.phase != running || !IsHex(p.ProbeToken, 64) {
		return errors.Join(err, errors.New("probe"))
	}
	idle := m.started && m.look(ctx)
	if idle {
		m.quiet.frozen, m.quiet.frozenAt = p.ProbeToken, m.now
	}
	m.send(0, TagProbeReply, probeReplyMsg{Schema: schemaProbeReply, Rank: m.rank, ProbeToken: p.ProbeToken, Idle: idle})
	return nil
}

// obeyDecision handles ABORT and COMMIT.
func (m *Master) obeyDecision(msg Message) error {
	p, err := DecodeStrict[probeMsg](msg.Data, controlLimit)
	if err != nil || msg.From != 0 {
		return errors.Join(err, errors.New("decision"))
	}
	switch p.Schema {
	case schemaAbort:
		if m.quiet.frozen == p.ProbeToken {
			m.quiet.frozen = ""
		}
		return nil
	case schemaCommit:
		if m.phase != running {
			return errors.New("commit outside of the running phase")
		}
		ok := m.quiet.frozen == p.ProbeToken && m.idle()
		m.send(0, TagQuiesceAck, commitAckMsg{Schema: schemaCommitAck, Rank: m.rank, ProbeToken: p.ProbeToken, Committed: ok})
		if ok {
			m.stop(stopComplete, "")
		} else {
			m.fail(errors.New("found work after having agreed to quiescence"))
		}
		return nil
	}
	return fmt.Errorf("decision schema %q", p.Schema)
}

// collect takes one answer; the last one decides.
func (m *Master) collect(from, rank int, token string, committing, yes bool) error {
	r := m.quiet.round
	if r == nil || m.phase != running || from != rank || token != r.token || committing != r.committing || r.answered[rank] {
		return errors.New("answer to no open question")
	}
	if !yes && committing {
		m.fail(fmt.Errorf("master %d refused the quiescence commit", from))
		return nil
	}
	r.answered[rank] = true
	r.missing--
	switch waited := m.now.Sub(m.quiet.idleSince); {
	case !yes || !committing && !m.idle():
		m.sendPeers(TagQuiesce, probeMsg{Schema: schemaAbort, ProbeToken: r.token})
		m.quiet.round, m.quiet.idleSince = nil, m.now
	case r.missing > 0:
	case committing:
		fmt.Fprintln(m.env.Stdout, "[Master] Global quiescence committed by all masters.")
		m.stop(stopComplete, "")
	default:
		fmt.Fprintf(m.env.Stdout, "[Master] Global quiescence commit proposed after %.3fs (limit %s).\n", waited.Seconds(), seconds(m.opts.MaxIdle))
		m.ask(TagQuiesce, schemaCommit, true)
	}
	return nil
}
