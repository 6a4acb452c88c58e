package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/lease"
)

// receiveResult settles one assignment: reject, park, or commit (reference behaviour 6.9).
func (m *Master) receiveResult(ctx context.Context, group int, data []byte) error {
	if group == 0 {
		return errors.New("RESULT from a rank that is none of this master's workers")
	}
	w := &m.workers[group-1]
	if w.active == nil {
		return fmt.Errorf("RESULT of worker %d, which has no assignment", group)
	}
	it := *w.active
	w.active = nil
	if m.phase == ended {
		return nil
	}
	if m.shutdown != nil {
		m.shutdown.Drained++
	}
	r, err := decodeResult(data, m.opts.ResultMaxObjects)
	switch {
	case err != nil:
	case r.InputHash != it.id.String() || r.Fence != it.token.Fence:
		err = fmt.Errorf("result is for item %s, fence %d", r.InputHash, r.Fence)
	case r.ProtocolError == ErrInputBudget, r.ProtocolError == ErrResultBudget:
		m.park(ctx, it, r)
		return nil
	case r.ProtocolError != "":
		err = fmt.Errorf("%s: %s", r.ProtocolError, r.Detail)
	default:
		err = m.stages.Check(w.rank, r.StagingID, r.NewHashes)
	}
	if err != nil {
		m.reject(w, it, r, err)
		return nil
	}
	m.commit(ctx, w, it, r)
	return nil
}

// park gives up an item that exceeds the budgets on every worker alike. It stays unfinished in the records and is named at the end.
func (m *Master) park(ctx context.Context, it item, r resultMsg) {
	text := fmt.Sprintf("%s: %s: %s", it.id, r.ProtocolError, r.Detail)
	m.parked = append(m.parked, text)
	fmt.Fprintf(m.env.Stderr, "[Master %d] Item %s is given up; raise SYMCC_STANDALONE_RESULT_MAX_OBJECTS or _MAX_BYTES, or SYMCC_STANDALONE_INPUT_MAX_BYTES\n", m.rank, text)
	if !m.held.Drop(it.id, it.token) {
		m.counters.StaleResults++
		return
	}
	if err := m.table.Abandon(ctx, it.id, it.token); err != nil && !errors.Is(err, lease.ErrLost) {
		m.fail(fmt.Errorf("abandon %s: %w", it.id, err))
	}
}

// reject refuses a result: its worker gets no more work, the item goes back to the front of the queue. The campaign will not end successfully.
func (m *Master) reject(w *workerState, it item, r resultMsg, cause error) {
	m.counters.InvalidResults++
	m.counters.QuarantinedWorkers++
	w.quarantined = true
	fmt.Fprintf(m.env.Stderr, "[Master %d] Result of rank %d for %s is rejected and the rank gets no more work: %s\n", m.rank, w.rank, it.id, OneLine(cause.Error()))
	if m.shutdown != nil {
		m.shutdown.ResultErrors = append(m.shutdown.ResultErrors, cause.Error())
	}
	if IsHex(r.StagingID, 32) {
		if err := m.stages.Remove(w.rank, r.StagingID); err != nil {
			m.fail(fmt.Errorf("remove rejected stage: %w", err))
			return
		}
	}
	if err := m.corpus.Verify(it.id); err != nil {
		m.fail(fmt.Errorf("corpus: %w", err))
		return
	}
	if m.held.Has(it.id, it.token) {
		m.pending = slices.Insert(m.pending, 0, it)
	} else {
		m.counters.StaleResults++
	}
	if !slices.ContainsFunc(m.workers, func(w workerState) bool { return !w.quarantined }) {
		m.fail(fmt.Errorf("all workers of this master have sent results that were rejected, the last for %s: %w", it.id, cause))
	}
}

// commit makes the manifest durable, after which the result will be published whatever happens, then publishes and completes.
func (m *Master) commit(ctx context.Context, w *workerState, it item, r resultMsg) {
	raw := mustMarshal(manifest{Schema: manifestSchema, WorkerGlobalRank: w.rank, StagingID: r.StagingID, Hashes: r.NewHashes, NumGenerated: r.NumGenerated})
	err := m.table.BeginCommit(ctx, it.id, it.token, raw)
	if errors.Is(err, lease.ErrLost) {
		m.counters.StaleResults++
		if m.held.Drop(it.id, it.token) {
			m.counters.LostLeases++
		}
		if err := m.stages.Remove(w.rank, r.StagingID); err != nil {
			m.fail(fmt.Errorf("remove stale stage: %w", err))
		}
		return
	}
	if err != nil {
		m.fail(fmt.Errorf("begin commit of %s: %w", it.id, err))
		return
	}
	// A committing record is never taken over by time, so it needs no heartbeat; and the lane must not wait for its lock.
	m.held.Drop(it.id, it.token)
	first, err := m.finishCommit(ctx, it, raw)
	if err != nil {
		m.fail(fmt.Errorf("commit of %s: %w", it.id, err))
		return
	}
	if !first {
		return // another master has redone it and accounted for it
	}
	m.countExit(r)
	if err := m.keepFailed(it.id, r); err != nil {
		m.fail(err)
	}
}

// finishCommit publishes under the record's lock, completes, and accounts for the result if this call was the one that completed it.
func (m *Master) finishCommit(ctx context.Context, it item, raw json.RawMessage) (first bool, err error) {
	man, err := decodeManifest(raw, resultLimit(m.opts.ResultMaxObjects))
	if err != nil {
		return false, err
	}
	added := 0
	first, err = m.table.Complete(ctx, it.id, it.token, m.stages.publisher(m.corpus, m.opts.ResultMaxObjects, &added))
	if err != nil {
		return false, err
	}
	if err := m.stages.Remove(man.WorkerGlobalRank, man.StagingID); err != nil {
		return false, fmt.Errorf("remove stage: %w", err)
	}
	if !first {
		return false, nil
	}
	m.counters.Analyzed++
	m.counters.Generated += man.NumGenerated
	m.counters.Interesting += added
	if m.phase != running {
		return true, nil // children are found again by the next run
	}
	for _, h := range man.Hashes {
		id, err := lease.ParseID(h)
		if err != nil {
			return true, err
		}
		if m.known[id] || WorkOwner(id, m.roles.Masters) != m.rank {
			continue
		}
		if err := m.adopt(ctx, id); err != nil {
			return true, err
		}
	}
	return true, nil
}

// redo finishes a commit that somebody has begun. A record lock that is taken belongs to a living master at just this work.
func (m *Master) redo(ctx context.Context, rec lease.Record) error {
	if _, err := checkPayload(rec); err != nil {
		return fmt.Errorf("redo: %w", err)
	}
	man, err := decodeManifest(rec.Manifest, resultLimit(m.opts.ResultMaxObjects))
	if err != nil {
		return fmt.Errorf("redo %s: %w", rec.ID, err)
	}
	if err := m.checkPublishable(man); err != nil && !m.doneMeanwhile(ctx, rec.ID) {
		return fmt.Errorf("redo %s: %w", rec.ID, err)
	}
	// Whoever began the commit may have died before it was durable. Published now, its result would be public under a record that a power cut
	// takes back. So it is begun once more.
	first := false
	if err = m.table.BeginCommit(ctx, rec.ID, rec.Token, rec.Manifest); err == nil {
		first, err = m.finishCommit(ctx, item{id: rec.ID, token: rec.Token}, rec.Manifest)
	}
	if errors.Is(err, lease.ErrLocked) || errors.Is(err, lease.ErrDone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("redo %s: %w", rec.ID, err)
	}
	if first {
		m.counters.ReplayedCommits++
	}
	return nil
}

// checkPublishable tells before anything is moved whether every declared object is in the stage or already public.
func (m *Master) checkPublishable(man manifest) error {
	for _, h := range man.Hashes {
		id, err := lease.ParseID(h)
		if err != nil {
			return err
		}
		err = m.corpus.Verify(id)
		if errors.Is(err, fs.ErrNotExist) {
			_, err = readObject(m.env.FS, filepath.Join(m.stages.dir(man.WorkerGlobalRank, man.StagingID), h), id, m.opts.ResultMaxBytes)
		}
		if errors.Is(err, fs.ErrNotExist) { // moved between the two looks
			err = m.corpus.Verify(id)
		}
		if err != nil {
			return fmt.Errorf("declared child %s: %w", h, err)
		}
	}
	return nil
}

// doneMeanwhile tells whether the record has left the committing state since it was listed.
func (m *Master) doneMeanwhile(ctx context.Context, id lease.ID) bool {
	records, err := m.table.Committing(ctx, 0)
	return err == nil && !slices.ContainsFunc(records, func(r lease.Record) bool { return r.ID == id })
}

func (m *Master) countExit(r resultMsg) {
	switch {
	case r.TimedOut:
		m.counters.TimedOut++
	case r.Retcode < 0:
		m.counters.Signalled++
	case r.Retcode > 0:
		m.counters.ExitNonzero++
	default:
		m.counters.ExitZero++
	}
}

// keepFailed copies an input whose target timed out or died of a signal to the -f directory.
func (m *Master) keepFailed(id lease.ID, r resultMsg) error {
	if m.opts.FailedDir == "" || !r.TimedOut && r.Retcode >= 0 {
		return nil
	}
	data, err := m.corpus.Read(id)
	if err == nil {
		err = groupcommit.MkdirAll(m.env.FS, m.opts.FailedDir, 0o777)
	}
	if err == nil {
		err = groupcommit.WriteFile(m.env.FS, filepath.Join(m.opts.FailedDir, id.String()), data, 0o666)
	}
	if err != nil {
		return fmt.Errorf("failed-input directory: %w", err)
	}
	return nil
}
