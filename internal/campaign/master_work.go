package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/lease"
)

// recoverLimit bounds the records of one recovery scan.
const recoverLimit = 4096

// background does a few tasks of the backlog; when it is empty and the time has come, it queues the next scans.
func (m *Master) background(ctx context.Context) {
	for range tasksPerStep {
		if len(m.backlog) == 0 {
			break
		}
		next := m.backlog[0]
		m.backlog = m.backlog[1:]
		if err := next(ctx); err != nil {
			m.fail(err)
			return
		}
	}
	if err := m.claimWaiting(ctx); err != nil {
		m.fail(err)
		return
	}
	if len(m.backlog) > 0 || !m.started || m.quiet.suspended() {
		return
	}
	if !m.now.Before(m.nextInputs) {
		m.nextInputs = m.now.Add(time.Second)
		if err := m.scanInputs(ctx); err != nil {
			m.fail(err)
			return
		}
	}
	if !m.now.Before(m.nextScan) {
		begin := m.env.Now()
		if err := m.scan(ctx); err != nil {
			m.fail(err)
		}
		// A scan reads every record. However many there are, it takes at most a tenth of the time.
		m.nextScan = m.now.Add(max(m.opts.ScanInterval, 9*m.env.Now().Sub(begin)))
	}
}

// scan queues commits to redo, new public objects and expired leases.
func (m *Master) scan(ctx context.Context) error {
	return errors.Join(m.redoOld(ctx), m.scanCorpus(), m.recoverExpired(ctx))
}

// scanInputs queues new files of the input directory.
func (m *Master) scanInputs(context.Context) error {
	names, err := m.inputs.New()
	if err != nil {
		return fmt.Errorf("input directory: %w", err)
	}
	for _, name := range names {
		m.backlog = append(m.backlog, func(ctx context.Context) error { return m.importFile(ctx, name) })
	}
	return nil
}

// importFile reads one input. Every master reads every input, since only its content tells whose it is.
func (m *Master) importFile(ctx context.Context, name string) error {
	data, err := vfs.ReadFile(m.env.FS, name, m.opts.InputMaxBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // removed since it was listed
	case errors.Is(err, vfs.ErrTooLarge):
		if m.rank == 0 {
			m.counters.SkippedInputs++
			fmt.Fprintf(m.env.Stderr, "[Master] Input %s has more than %d bytes and is not analysed; raise SYMCC_STANDALONE_INPUT_MAX_BYTES\n", name, m.opts.InputMaxBytes)
		}
		return nil
	case err != nil:
		return fmt.Errorf("input: %w", err)
	}
	id := lease.SumID(data)
	if m.origins[id] != "" {
		return nil
	}
	m.origins[id] = Initial
	if WorkOwner(id, m.roles.Masters) != m.rank {
		return nil
	}
	m.known[id] = true
	if err := m.corpus.Add(id, data); err != nil {
		return fmt.Errorf("publish input: %w", err)
	}
	return m.claim(ctx, id, Initial)
}

// scanCorpus queues public objects that other masters have published and that are this master's to analyse.
func (m *Master) scanCorpus() error {
	ids, err := m.corpus.List()
	if err != nil {
		return fmt.Errorf("corpus: %w", err)
	}
	var mine []lease.ID
	for _, id := range ids {
		if m.known[id] {
			continue
		}
		m.known[id] = true
		if WorkOwner(id, m.roles.Masters) == m.rank {
			mine = append(mine, id)
		}
	}
	if err := m.corpus.Settle(mine...); err != nil {
		return fmt.Errorf("corpus: %w", err)
	}
	for _, id := range mine {
		m.backlog = append(m.backlog, func(ctx context.Context) error { return m.adopt(ctx, id) })
	}
	return nil
}

// adopt claims a public object that is this master's.
func (m *Master) adopt(ctx context.Context, id lease.ID) error {
	m.known[id] = true
	if err := m.corpus.Verify(id); err != nil {
		return fmt.Errorf("corpus: %w", err)
	}
	origin := Generated
	if m.origins[id] == Initial {
		origin = Initial
	}
	return m.claim(ctx, id, origin)
}

func (m *Master) holder() lease.Holder { return lease.Holder{Owner: ownerName(m.epoch.ID, m.rank)} }

// room tells whether one more lease can be renewed in time. However slow the disk is, there is room to keep the workers busy.
func (m *Master) room() bool {
	limit := m.lane.Capacity()
	return limit == 0 || m.held.Len() < max(limit, 2*len(m.workers))
}

// claimWaiting leases items that had to wait for room.
func (m *Master) claimWaiting(ctx context.Context) error {
	for n := 0; n < tasksPerStep && len(m.unclaimed) > 0 && m.room(); n++ {
		it := m.unclaimed[0]
		m.unclaimed = m.unclaimed[1:]
		if err := m.claim(ctx, it.id, it.origin); err != nil {
			return err
		}
	}
	return nil
}

// claim leases an item and queues it. Somebody else's lease or a finished item is no error; they are found again by the recovery scan if need
// be. Without room the item waits, in the corpus and without a lease.
func (m *Master) claim(ctx context.Context, id lease.ID, origin string) error {
	if !m.room() {
		m.unclaimed = append(m.unclaimed, item{id: id, origin: origin})
		return nil
	}
	tok, err := m.table.Claim(ctx, id, encodePayload(id, origin), m.holder())
	if notMine(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("claim %s: %w", id, err)
	}
	m.hold(item{id, tok, origin})
	return nil
}

// notMine tells that an item can't be claimed now for a reason that somebody else takes care of. A claim that took longer than its own TTL
// (ErrLost) is recovered like any expired lease.
func notMine(err error) bool {
	return errors.Is(err, lease.ErrHeld) || errors.Is(err, lease.ErrCommitting) || errors.Is(err, lease.ErrDone) || errors.Is(err, lease.ErrLost)
}

func (m *Master) hold(it item) {
	m.held.Add(it.id, it.token)
	m.pending = append(m.pending, it)
	m.announced = false
}

// recoverExpired queues the take-over of leases whose holder has died. All payloads are checked first; with a bad one nothing is taken. It
// waits until every master has said that it has started: in a resumed epoch they may still have leases of the earlier run to take.
func (m *Master) recoverExpired(ctx context.Context) error {
	if !m.quiet.heardFromAll(m.rank) {
		return nil
	}
	records, err := m.table.Expired(ctx, recoverLimit)
	if err != nil {
		return fmt.Errorf("expired leases: %w", err)
	}
	for _, rec := range records {
		if _, err := checkPayload(rec); err != nil {
			return fmt.Errorf("expired leases: %w", err)
		}
	}
	for _, rec := range records {
		if m.held.Has(rec.ID, rec.Token) {
			continue // ours, and the lane is late: renewing it is the lane's business
		}
		m.backlog = append(m.backlog, func(ctx context.Context) error { return m.takeBack(ctx, rec, m.table.Claim) })
	}
	return nil
}

type claimFunc func(ctx context.Context, id lease.ID, payload json.RawMessage, by lease.Holder) (lease.Token, error)

// takeBack claims an item that another holder left, and queues it if its object is there.
func (m *Master) takeBack(ctx context.Context, rec lease.Record, claim claimFunc) error {
	p, err := checkPayload(rec)
	if err != nil {
		return err
	}
	tok, err := claim(ctx, rec.ID, rec.Payload, m.holder())
	if notMine(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("recover %s: %w", rec.ID, err)
	}
	switch err := m.corpus.Verify(rec.ID); {
	case errors.Is(err, fs.ErrNotExist):
		if err := m.table.Abandon(ctx, rec.ID, tok); err != nil {
			return fmt.Errorf("abandon %s: %w", rec.ID, err)
		}
		delete(m.known, rec.ID) // if it comes back, it is new
		return nil
	case err != nil:
		return fmt.Errorf("recover: %w", err)
	}
	if err := m.corpus.Settle(rec.ID); err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	m.counters.Recovered++
	m.known[rec.ID] = true
	m.hold(item{rec.ID, tok, p.Origin})
	return nil
}

// redoAll queues all commits that an earlier run has begun.
func (m *Master) redoAll(ctx context.Context) error {
	records, err := m.table.Committing(ctx, 0)
	if err != nil {
		return fmt.Errorf("commits to redo: %w", err)
	}
	var tasks []task
	for _, rec := range records {
		tasks = append(tasks, func(ctx context.Context) error { return m.redo(ctx, rec) })
	}
	m.backlog = slices.Insert(m.backlog, 0, tasks...)
	return nil
}

// redoOld queues commits that have been going on for longer than a lease: their master has died, or is slow, which does no harm. A younger one is a living
// master's work in progress. A time in the far future is treated as old.
func (m *Master) redoOld(ctx context.Context) error {
	records, err := m.table.Committing(ctx, recoverLimit)
	if err != nil {
		return fmt.Errorf("commits to redo: %w", err)
	}
	for _, rec := range records {
		if age := m.env.Now().Sub(rec.Updated); age >= m.opts.LeaseTTL || age <= -m.opts.LeaseTTL {
			m.backlog = append(m.backlog, func(ctx context.Context) error { return m.redo(ctx, rec) })
		}
	}
	return nil
}

// dispatch gives pending work to available workers, lowest rank first. Near the wall timeout nothing is started that might not end before it.
func (m *Master) dispatch(ctx context.Context) {
	if m.opts.WallTimeout > 0 && m.opts.WallTimeout-m.now.Sub(m.startTime) <= m.opts.Timeout {
		return
	}
	for i := range m.workers {
		w := &m.workers[i]
		if !w.available || w.active != nil || w.quarantined {
			continue
		}
		for len(m.pending) > 0 && w.active == nil {
			it := m.pending[0]
			m.pending = m.pending[1:]
			if !m.held.Has(it.id, it.token) {
				continue // lost meanwhile
			}
			w.available = false
			w.active = &it
			m.send(w.rank, TagWork, workMsg{Schema: schemaWork, Hash: it.id.String(), Fence: it.token.Fence})
		}
	}
}

// purge drops queued items whose lease was lost.
func (m *Master) purge() {
	m.pending = slices.DeleteFunc(m.pending, func(it item) bool { return !m.held.Has(it.id, it.token) })
}
