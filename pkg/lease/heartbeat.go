package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"time"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
)

// HeartbeatBatch is the result of a batch in which nothing failed: every renewal is durable.
type HeartbeatBatch struct {
	Renewed, Lost  []ID // sorted by shard, then ID
	DirectorySyncs int  // barriers that completed
}

// BatchError reports a batch in which something failed; nobody may take it for a success. The caller still holds what it held, except
// Lost: the other lists are for recovery, and for isolating bad records from good ones. Each ID is in exactly one of them, the slices
// sorted by shard, then ID. It matches the causes.
type BatchError struct {
	Failed  map[ID]error // not renewed; if the error matches groupcommit.ErrUnknown, perhaps renewed
	Unknown []ID         // renewed, but the barrier failed: a power cut may bring back the older time
	Durable []ID         // renewed and under a good barrier
	Lost    []ID         // no longer held, as read

	barriers error
}

func (e *BatchError) Error() string {
	text := fmt.Sprintf("lease: heartbeat batch failed: %d not renewed, %d unknown, %d durable, %d lost",
		len(e.Failed), len(e.Unknown), len(e.Durable), len(e.Lost))
	if causes := e.Unwrap(); len(causes) > 0 {
		text += fmt.Sprintf("; first: %v", causes[0])
	}
	return text
}

// Unwrap returns the errors of the failed records, in the order of their IDs, and those of the barriers.
func (e *BatchError) Unwrap() []error {
	ids := make([]ID, 0, len(e.Failed))
	for id := range e.Failed {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, compareIDs)
	var errs []error
	for _, id := range ids {
		errs = append(errs, e.Failed[id])
	}
	if e.barriers != nil {
		errs = append(errs, e.barriers)
	}
	return errs
}

// Heartbeat renews one lease. It is HeartbeatMany with a batch of one.
func (t *Table) Heartbeat(ctx context.Context, id ID, tok Token) error {
	b, err := t.HeartbeatMany(ctx, map[ID]Token{id: tok})
	if err == nil && len(b.Lost) > 0 {
		return fmt.Errorf("%w: %s", ErrLost, id)
	}
	return err
}

// HeartbeatMany renews the leases of the batch with one barrier per touched shard. The map must not change meanwhile.
//
// In the order of (shard, id) each record is locked, read, checked against its token, written, renamed and unlocked, with some content
// strategies a window of some hundred records at a time; then the barrier of each touched shard is run. Nothing waits for other callers to join. A record that fails (unreadable, corrupt, its lock
// busy to the end, no space) keeps no other from being renewed, and a failed barrier none of another shard. All waiting for locks together is
// bounded by one LockTimeout: busy records are tried again after all the others.
//
// If nothing failed, every renewal is durable when it returns. Otherwise the result is a zero batch and a *BatchError. A stale token
// causes no write and no barrier and is reported as lost, as is a lease that had lapsed, or whose TTL the batch itself has outlasted; a zero
// token is lost without a look. When ctx ends, the records not yet renewed fail with its error and the barriers are still run.
//
// With Options.Renewals OneFlush the records are left alone as long as nothing is amiss; see Renewals.
func (t *Table) HeartbeatMany(ctx context.Context, held map[ID]Token) (HeartbeatBatch, error) {
	if t.s.session != nil && len(held) > 0 {
		return t.beatMany(ctx, held)
	}
	b := &heartbeats{s: t.s, items: make([]heartbeat, 0, len(held))}
	valid := 0
	for id, tok := range held {
		it := heartbeat{id: id, tok: tok, shard: t.s.shard(id)}
		if tok.Fence == 0 {
			it.outcome = lost
		} else {
			valid++
		}
		b.items = append(b.items, it)
	}
	slices.SortFunc(b.items, func(x, y heartbeat) int {
		return cmp.Or(cmp.Compare(x.shard, y.shard), compareIDs(x.id, y.id))
	})
	if valid > 0 {
		if err := t.s.enter(context.WithoutCancel(ctx)); err != nil {
			t.s.stats.failures.Add(1)
			return HeartbeatBatch{}, err
		}
	}
	return b.run(ctx)
}

type outcome uint8

const (
	untried outcome = iota
	renewed
	lost
	failed
)

type heartbeat struct {
	id      ID
	tok     Token
	shard   int
	outcome outcome
	err     error // of failed
	ends    time.Time
	promise told // of renewed
	durable bool // renewed, and under a good barrier
}

// heartbeats is one run of HeartbeatMany.
type heartbeats struct {
	s     *store
	items []heartbeat
	batch *groupcommit.Batch

	*windowBuffers
}

// windowBuffers are those of the present window. They are reused by the next, and by the next HeartbeatMany.
type windowBuffers struct {
	locks   []io.Closer
	keys    []uint64
	records []lockedRecord
	read    [groupcommit.MaxWorkers][]byte
}

// lockedRecord is a record of the window whose lock is held.
type lockedRecord struct {
	it   *heartbeat
	name string // of its file
	data []byte // its new content
}

var windows = sync.Pool{New: func() any { return new(windowBuffers) }}

func (b *heartbeats) run(ctx context.Context) (HeartbeatBatch, error) {
	b.batch = b.s.writer.NewBatch()
	b.windowBuffers = windows.Get().(*windowBuffers)
	defer func() {
		for i := range b.records {
			b.records[i].it = nil // it would keep the whole batch
		}
		windows.Put(b.windowBuffers)
	}()
	deadline := b.s.lockDeadline()
	var flushed groupcommit.Flushed
	var barriers error
	func() {
		defer func() { flushed, barriers = b.batch.Flush() }() // whatever happens, what was renamed gets its barrier (G5)
		b.pass(ctx, b.batch.Window(), time.Time{})
		b.pass(ctx, 1, deadline) // one at a time: whoever waits for a lock must hold none
	}()
	b.outlasted()
	return b.result(flushed, barriers)
}

// pass handles the items not yet settled in windows of size records, whose locks are held at the same time.
func (b *heartbeats) pass(ctx context.Context, size int, deadline time.Time) {
	var window []*heartbeat
	for i := range b.items {
		it := &b.items[i]
		if it.outcome == untried || it.outcome == failed && errors.Is(it.err, ErrLocked) {
			window = append(window, it)
		}
		if len(window) > 0 && (len(window) == size || i == len(b.items)-1) {
			b.renew(ctx, window, deadline)
			window = window[:0]
		}
	}
}

// renew renews the records of one window.
func (b *heartbeats) renew(ctx context.Context, window []*heartbeat, deadline time.Time) {
	b.locks, b.records = b.locks[:0], b.records[:0]
	defer func() {
		for _, l := range b.locks {
			l.Close() // the kernel releases the locks even if this fails
		}
	}()
	if len(window) == 1 {
		b.lockOne(ctx, window[0], deadline)
	} else {
		for len(window) > 0 {
			n := 1
			for n < len(window) && window[n].shard == window[0].shard {
				n++
			}
			b.lockShard(ctx, window[:n])
			window = window[n:]
		}
	}
	errs := b.batch.PublishFunc(len(b.records), func(worker, i int) (groupcommit.Update, error) {
		r := &b.records[i]
		r.it.outcome, r.it.err = b.prepare(ctx, r, &b.read[worker])
		if r.it.outcome != renewed {
			return groupcommit.Update{}, errNotRenewed
		}
		return groupcommit.Update{Name: r.name, Data: r.data, Perm: recordPerm}, nil
	})
	for i, err := range errs {
		if it := b.records[i].it; err != nil && it.outcome == renewed {
			it.outcome = failed
			it.err = fmt.Errorf("lease: write record %s: %w", it.id, err)
		}
	}
}

// errNotRenewed keeps an update from being made; its heartbeat says why.
var errNotRenewed = errors.New("not renewed")

// locked adds it to the window.
func (b *heartbeats) locked(it *heartbeat) {
	n := len(b.records)
	b.records = slices.Grow(b.records, 1)[:n+1] // with the buffers of the window before
	b.records[n].it = it
}

func (b *heartbeats) lockOne(ctx context.Context, it *heartbeat, deadline time.Time) {
	if it.outcome, it.err = begun(ctx, it); it.err != nil {
		return
	}
	l, err := b.s.lock(ctx, it.id, deadline)
	if err != nil {
		it.outcome, it.err = failed, err
		return
	}
	b.locks = append(b.locks, l)
	b.locked(it)
}

// lockShard takes those locks of a shard's records that are free.
func (b *heartbeats) lockShard(ctx context.Context, items []*heartbeat) {
	b.keys = b.keys[:0]
	for _, it := range items {
		b.keys = append(b.keys, it.id.lockKey())
	}
	start := time.Now()
	l, err := b.s.fs.TryLock(b.s.locks[items[0].shard], b.keys...)
	if err == nil {
		b.locks = append(b.locks, l)
	}
	each := time.Since(start) / time.Duration(len(items))
	for i, it := range items {
		b.s.stats.lockWait.add(uint64(each))
		switch {
		case err == nil && l.Held(i):
			b.locked(it)
		case err == nil || errors.Is(err, vfs.ErrLocked):
			it.outcome, it.err = failed, lockError(it.id, ErrLocked)
		default:
			it.outcome, it.err = failed, lockError(it.id, err)
		}
	}
}

func begun(ctx context.Context, it *heartbeat) (outcome, error) {
	if err := ctx.Err(); err != nil {
		return failed, fmt.Errorf("lease: heartbeat of %s not begun: %w", it.id, err)
	}
	return untried, nil
}

// prepare decides about a locked record, and makes up the new content, with which it is renewed if nothing happens to it.
func (b *heartbeats) prepare(ctx context.Context, locked *lockedRecord, buf *[]byte) (outcome, error) {
	it := locked.it
	if o, err := begun(ctx, it); err != nil {
		return o, err
	}
	locked.name = b.s.path(it.id)
	r, read, err := b.s.readFrom(locked.name, it.id, *buf)
	*buf = read
	if errors.Is(err, fs.ErrNotExist) {
		return lost, nil
	}
	if err != nil {
		return failed, err
	}
	now, err := b.s.now()
	if err != nil {
		return failed, err
	}
	if err := b.s.lookAtBeats(&r, now, nil); err != nil {
		return failed, err
	}
	if _, err := next(&r, OpHeartbeat, it.tok, now, b.s.opts.MaxSkew); err != nil {
		return lost, nil
	}
	if err := b.s.adopt(&r); err != nil {
		return failed, err
	}
	r.renew(now)
	data, err := b.s.encode(&r, locked.data[:0], 0)
	if err != nil {
		return failed, err
	}
	it.promise = told{tok: it.tok, at: r.Updated, written: r.Updated, ttl: r.TTL, committing: r.Status == Committing}
	if r.Status == Leased {
		it.ends = r.Updated.Add(r.TTL)
	}
	locked.data = data
	return renewed, nil
}

// outlasted turns renewals that lapsed before their barrier was through into losses. Nobody needs to have taken such a lease, but somebody
// may, and its holder would be refused.
func (b *heartbeats) outlasted() {
	now, err := b.s.now()
	if err != nil {
		return // the next call says so
	}
	for i := range b.items {
		it := &b.items[i]
		if it.outcome == renewed && !it.ends.IsZero() && !now.Before(it.ends) {
			it.outcome = lost
		}
	}
}

func (b *heartbeats) result(flushed groupcommit.Flushed, barriers error) (HeartbeatBatch, error) {
	var ok HeartbeatBatch
	e := &BatchError{barriers: barriers}
	for i := range b.items {
		switch it := &b.items[i]; {
		case it.outcome == lost:
			ok.Lost = append(ok.Lost, it.id)
		case it.outcome == failed:
			if e.Failed == nil {
				e.Failed = make(map[ID]error)
			}
			e.Failed[it.id] = it.err
		case slices.Contains(flushed.Unknown, b.s.dirs[it.shard]):
			e.Unknown = append(e.Unknown, it.id)
		default:
			it.durable = true
			ok.Renewed = append(ok.Renewed, it.id)
		}
	}
	ok.DirectorySyncs = len(flushed.Durable)
	if len(e.Failed) > 0 || barriers != nil {
		e.Lost, e.Durable = ok.Lost, ok.Renewed
		b.s.stats.failures.Add(1)
		return HeartbeatBatch{}, e
	}
	if len(b.items) > 0 {
		b.s.stats.batch(len(ok.Renewed), flushed.ContentSyncs, ok.DirectorySyncs)
	}
	return ok, nil
}
