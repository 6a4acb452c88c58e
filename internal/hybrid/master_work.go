package hybrid

import (
	"context"
	"errors"
	"fmt"

	"shardlease/internal/campaign"
	"shardlease/internal/hybrid/afl"
	"shardlease/pkg/lease"
)

// receive takes a message. One that can't be accepted is counted; only a bad RESULT costs its sender anything.
func (m *Master) receive(ctx context.Context, msg campaign.Message) {
	var err error
	if msg.From < 1 || msg.From > len(m.workers) {
		err = errors.New("it is no worker")
	} else {
		w := &m.workers[msg.From-1]
		switch msg.Tag {
		case campaign.TagReady:
			err = m.receiveReady(w, msg.Data)
		case campaign.TagResult:
			err = m.receiveResult(ctx, w, msg.Data)
		case campaign.TagStopAck:
			if m.shutdown == nil {
				err = errors.New("acknowledges a STOP that was not sent")
			} else {
				m.shutdown.Ack(w.rank, msg.Data, m.now)
			}
		default:
			err = errors.New("unknown tag")
		}
	}
	if err != nil {
		m.counters.Quarantined++
		m.complain("message", fmt.Errorf("tag %d of rank %d is ignored: %w", msg.Tag, msg.From, err))
	}
}

func (m *Master) receiveReady(w *workerState, data []byte) error {
	r, err := campaign.DecodeStrict[readyMsg](data, messageLimit)
	if err != nil {
		return err
	}
	if r.Settings != m.opts.fingerprint() {
		m.stop(campaign.ExitUsage, fmt.Sprintf("rank %d was started with other settings than rank 0 (give all ranks the same options and environment): %s instead of %s",
			w.rank, r.Settings, m.opts.fingerprint()))
	}
	if r.Schema != schemaReady || r.Rank != w.rank || r.Dispatch != w.dispatch {
		return fmt.Errorf("READY of rank %d after dispatch %q, expected %q", r.Rank, r.Dispatch, w.dispatch)
	}
	w.available = true
	if m.phase == running && m.baseline && len(m.inputs.best(m.now, 1)) == 0 {
		m.nextScan = m.now // idle: look at once
	}
	return nil
}

// candidatesPerStep bounds the refused reservations of one step.
const candidatesPerStep = 32

// dispatch gives each free worker the best item that can be had.
func (m *Master) dispatch(ctx context.Context) {
	var candidates []*candidate
	for i := range m.workers {
		w := &m.workers[i]
		if !w.available || w.quarantined || w.job != nil {
			continue
		}
		if candidates == nil {
			candidates = m.inputs.best(m.now, candidatesPerStep)
		}
		for len(candidates) > 0 && w.job == nil {
			m.try(ctx, w, candidates[0])
			candidates = candidates[1:]
		}
	}
}

// try reserves and sends one item, or puts it off.
func (m *Master) try(ctx context.Context, w *workerState, c *candidate) {
	it, err := m.inputs.payload(c)
	if err != nil {
		c.state = finished
		m.complain("dispatch", err)
		return
	}
	r, err := m.site.own.reserve(ctx, it, itemID(c.input.Sum), w.rank)
	later := m.now.Add(max(scanInterval, m.opts.HeartbeatInterval()))
	switch {
	case err == nil:
		m.send(w, c, it, r)
	case errors.Is(err, lease.ErrDone):
		c.state = finished
		m.counters.DoneElsewhere++
	case errors.Is(err, errTargetsBusy):
		c.notBefore = later
		m.counters.TargetConflicts++
	case errors.Is(err, errElsewhere):
		c.notBefore = later
		m.counters.HeldElsewhere++
	default:
		c.notBefore = later
		m.counters.StorageErrors++
		m.complain("reserve", err)
	}
}

func (m *Master) send(w *workerState, c *candidate, it item, r reservation) {
	w.sequence++
	w.dispatch = dispatchToken(m.epoch, w.rank, w.sequence)
	w.available = false
	w.job = &job{candidate: c, reservation: r}
	coverage := m.inputs.coverage
	delta, err := coverage.Since(w.version).MarshalBinary()
	if err != nil {
		panic(fmt.Sprintf("hybrid: coverage is not in order: %v", err)) // Since lists the edges by number
	}
	msg := workMsg{Schema: schemaWork, Instance: m.site.inst, Dispatch: w.dispatch, ID: r.lease.ID.String(), Fence: r.lease.Token.Fence,
		Path: it.Path, SHA256: it.SHA256, Base: w.version, Version: coverage.Version(), Delta: delta}
	w.version = coverage.Version()
	m.out.Send = append(m.out.Send, campaign.Message{To: w.rank, Tag: campaign.TagWork, Data: encode(msg)})
	event := EventClaim
	if r.tookOver {
		event = EventRecover
		m.counters.Recovered++
	}
	c.state, c.recovered = active, false
	m.counters.Dispatched++
	m.site.log.add(Event{Event: event, SHA256: it.SHA256, Fence: r.lease.Token.Fence, Worker: w.rank})
}

// receiveResult settles one dispatch: reject, give up, or commit.
func (m *Master) receiveResult(ctx context.Context, w *workerState, data []byte) error {
	if w.job == nil {
		return errors.New("RESULT of a worker that has nothing to do")
	}
	j := w.job
	w.job = nil
	if m.shutdown != nil {
		m.shutdown.Drained++
	}
	r, err := decodeResult(data)
	if err == nil && r.Dispatch != w.dispatch {
		err = fmt.Errorf("it is for dispatch %q, not %q", r.Dispatch, w.dispatch)
	}
	if err == nil && r.Problem == "" {
		err = m.site.publisher.stages(m.opts.Name).Check(w.rank, r.StagingID, sums(r.Outputs))
	}
	if err != nil {
		m.reject(ctx, w, j, err)
		return nil
	}
	if r.Problem != "" {
		m.failed(ctx, w, j, r)
		return nil
	}
	m.commit(ctx, w, j, r)
	return nil
}

func sums(outputs []outputMsg) []string {
	list := make([]string, len(outputs))
	for i, out := range outputs {
		list[i] = out.SHA256
	}
	return list
}

// reject refuses a result that is not what a worker of ours can have sent: the worker gets no more work, the item goes back.
func (m *Master) reject(ctx context.Context, w *workerState, j *job, cause error) {
	m.counters.Rejected++
	w.quarantined = true
	fmt.Fprintf(m.env.Stderr, "[Master] Result of rank %d is rejected and the rank gets no more work: %v\n", w.rank, cause)
	if m.shutdown != nil {
		m.shutdown.ResultErrors = append(m.shutdown.ResultErrors, cause.Error())
	}
	m.giveBack(ctx, j)
	for i := range m.workers {
		if !m.workers[i].quarantined {
			return
		}
	}
	m.stop(campaign.ExitIncomplete, fmt.Sprintf("all workers have sent results that were rejected, the last: %v", cause))
}

// giveBack makes an item claimable by anybody, ourselves included.
func (m *Master) giveBack(ctx context.Context, j *job) {
	j.candidate.state = waiting
	if err := m.site.own.giveUp(ctx, j.reservation); err != nil {
		m.counters.StorageErrors++
		m.complain("give up", err) // it expires
	}
}

// failed handles a run that brought no result. An input that changed is gone; trouble with the storage is not the item's fault; what fails
// on its own account is parked after a few attempts, so that it does not come back for ever.
func (m *Master) failed(ctx context.Context, w *workerState, j *job, r resultMsg) {
	c := j.candidate
	m.counters.Failed++
	m.giveBack(ctx, j)
	text := r.Problem + ": " + r.Detail
	m.site.log.add(Event{Event: EventFailed, SHA256: lease.ID(c.input.Sum).String(), Fence: j.reservation.lease.Token.Fence, Worker: w.rank, Detail: text})
	c.notBefore = m.now.Add(scanInterval)
	switch r.Problem {
	case problemInput:
		if _, err := readInput(c.input); err != nil {
			c.state = finished // what replaced it is found under its own sum
			m.counters.Vanished++
		}
	case problemStage:
		m.counters.StorageErrors++
		m.complain("worker", errors.New(text))
	case problemEnvelope:
		w.version = 0 // send all of the coverage next time
		fallthrough
	default:
		if c.attempts++; c.attempts >= maxAttempts {
			c.state = finished
			m.counters.Parked++
			fmt.Fprintf(m.env.Stderr, "[Master] Input %s is parked after %d attempts: %s\n", c.input.Path, c.attempts, text)
		}
	}
}

// commit decides what is new, publishes that, and settles the item.
func (m *Master) commit(ctx context.Context, w *workerState, j *job, r resultMsg) {
	c, pub := j.candidate, m.site.publisher
	children, maps := m.triage(r.Outputs)
	man := manifest{Children: children, Generated: r.Generated, Peer: m.opts.Name, Rank: w.rank, Schema: schemaManifest,
		Source: sourceNumber(c.input.Path), StagingID: r.StagingID}
	first, err := m.site.own.commit(ctx, j.reservation, man, pub.publish)
	ev := Event{Event: EventDone, SHA256: lease.ID(c.input.Sum).String(), Fence: j.reservation.lease.Token.Fence, Worker: w.rank}
	switch {
	case errors.Is(err, lease.ErrLost):
		m.counters.Stale++
		c.state, c.notBefore = waiting, m.now.Add(scanInterval) // its new holder will make it done
		fmt.Fprintf(m.env.Stderr, "[Master] dropped stale fenced result from worker %d\n", w.rank)
		ev.Event = EventStale
		m.complain("clean up", pub.cleanUp(man))
	case err != nil:
		// Leased and about to expire, or committing and about to be redone; with leases off, tried again from the start.
		m.counters.StorageErrors++
		c.state, c.notBefore = waiting, m.now.Add(scanInterval)
		m.complain("commit", err)
		ev.Event, ev.Detail = EventFailed, err.Error()
	default:
		c.state = finished
		m.account(r, c, maps, children, first)
		ev.Generated, ev.Published = r.Generated, len(children)
		m.complain("clean up", pub.cleanUp(man))
	}
	m.site.log.add(ev)
}

// triage keeps what covers something that neither our coverage nor an earlier output of this result does. Nothing is marked as covered until
// the commit is done: else a commit that fails would hide its discovery from the next attempt.
func (m *Master) triage(outputs []outputMsg) (children []child, maps []afl.Map) {
	kinds := []struct {
		kind    afl.Kind
		covered *afl.Coverage
		found   afl.Coverage
	}{afl.OK: {kind: afl.Queue, covered: m.inputs.coverage}, afl.Hang: {kind: afl.Hangs, covered: &m.hangs}, afl.Crash: {kind: afl.Crashes, covered: &m.crashes}}
	children = []child{}
	for _, out := range outputs {
		var cov afl.Map
		if err := cov.UnmarshalBinary(out.Map); err != nil {
			continue // decodeResult has read it
		}
		k := &kinds[out.Verdict]
		if len(k.found.Add(k.covered.New(cov))) > 0 {
			children = append(children, child{Kind: k.kind, SHA256: out.SHA256})
			maps = append(maps, cov)
		}
	}
	return children, maps
}

// account counts a finished item and marks what it found as covered.
func (m *Master) account(r resultMsg, c *candidate, maps []afl.Map, children []child, first bool) {
	if first {
		m.counters.Completed++
	} else {
		m.counters.CompletedElsewhere++
	}
	m.counters.Generated += r.Generated
	m.counters.Covered += r.Generated - len(children)
	if r.TimedOut {
		m.counters.TimedOut++
	}
	m.inputs.yield.Add(c.input.Origin, len(children) > 0)
	for i, ch := range children {
		sum, err := lease.ParseID(ch.SHA256)
		if err != nil {
			continue // decodeResult has checked it
		}
		switch ch.Kind {
		case afl.Queue:
			m.inputs.own[afl.Sum(sum)] = m.inputs.coverage.Add(maps[i])
		case afl.Crashes:
			m.crashes.Add(maps[i])
		case afl.Hangs:
			m.hangs.Add(maps[i])
		}
	}
}
