package campaign

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"shardlease/pkg/lease"
)

// Beater is the one call that a heartbeat lane makes; *lease.Table has it.
type Beater interface {
	HeartbeatMany(ctx context.Context, held map[lease.ID]lease.Token) (lease.HeartbeatBatch, error)
}

// HeartbeatMetrics are the five of the report and their lateness. Batches, Renewals and DirectorySyncs count batches without any failure only.
type HeartbeatMetrics struct {
	Batches               uint64 `json:"batches"`
	Renewals              uint64 `json:"renewals"`
	DirectorySyncs        uint64 `json:"directory_syncs"`
	DirectorySyncsAvoided uint64 `json:"directory_syncs_avoided"`
	Failures              uint64 `json:"failures"`
	// LateMax is the longest time between the moment a batch was due and its start, in milliseconds.
	LateMax int64 `json:"heartbeat_late_ms_max"`
}

func (m *HeartbeatMetrics) add(o HeartbeatMetrics) {
	m.Batches += o.Batches
	m.Renewals += o.Renewals
	m.DirectorySyncs += o.DirectorySyncs
	m.DirectorySyncsAvoided += o.DirectorySyncsAvoided
	m.Failures += o.Failures
	m.LateMax = max(m.LateMax, o.LateMax)
}

// BeatRecord is one batch in the order of time, for the timeline of a campaign.
type BeatRecord struct {
	At             int64 `json:"at_unix_ms"` // when it began, by the master's wall clock
	Took           int64 `json:"took_ms"`
	Held           int   `json:"held"` // leases it was asked to renew
	Renewals       int   `json:"renewals"`
	DirectorySyncs int   `json:"directory_syncs"`
	Failed         bool  `json:"failed"` // then renewals and syncs are 0
}

// maxBeatLog bounds the timeline; a campaign of days keeps its first hours.
const maxBeatLog = 2048

// Beat is the news of one heartbeat batch.
type Beat struct {
	Lost []lease.ID // leases that this master no longer has, without those it had given up itself while the batch ran
	Err  error      // a failed batch: a control failure
}

// Lane renews all leases of one master with one HeartbeatMany per period. It has its own timer and, in Run, its own goroutine, so that it
// never waits for scans, hashing or shutdown; it goes on until the holdings are empty for good.
//
// The rule for failures is the report's: a failed batch is no success for anybody. It counts as one failure, moves no other counter and is a
// control failure of the campaign, whose leases stay in the records for the next run of the epoch. Only tokens that a *lease.BatchError
// lists as Lost are dropped: another state was read for them. It is never retried blindly, since its writes may have happened; the next
// period renews what is still held.
//
// One exception, since it is no failure of a lease: a record that this master had committed or given up itself by the time the batch
// came to it needs no renewal. If every record that failed is of this kind, the batch is counted as a failure but the campaign goes on.
type Lane struct {
	table    Beater
	held     *Holdings
	interval time.Duration

	clock func() time.Time // nil means that batches are not timed

	mu       sync.Mutex
	metrics  HeartbeatMetrics
	next     time.Time
	busy     bool
	capacity int // 0 before the first measurement
	log      []BeatRecord
}

// NewLane returns a lane whose first batch is due one interval after start.
func NewLane(table Beater, held *Holdings, interval time.Duration, start time.Time) *Lane {
	return &Lane{table: table, held: held, interval: interval, next: start.Add(interval)}
}

// Measure makes the lane time its batches with clock, for Capacity and Log. It is called before the first Step.
func (l *Lane) Measure(clock func() time.Time) { l.clock = clock }

// Capacity is how many leases a batch can renew in half of its time limit, going by the last one, or 0 if that is not known. A
// holder that takes more would lose them all to its own slowness.
func (l *Lane) Capacity() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.capacity
}

// Timeout bounds one batch. A lease that was claimed just after a batch began waits for the end of that batch and of the next, so that two
// limits must be less than the TTL, which is three intervals or more. A shorter limit would end a campaign for a disk that stalled for a
// moment, while all its leases are good.
func (l *Lane) Timeout() time.Duration { return l.interval * 27 / 20 }

// Due is when the next batch is to start.
func (l *Lane) Due() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

// Metrics are the counters so far.
func (l *Lane) Metrics() HeartbeatMetrics {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.metrics
}

// Log is the timeline of the first batches, if the lane times them; see Measure.
func (l *Lane) Log() []BeatRecord {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]BeatRecord{}, l.log...)
}

// timed adds a batch that began at begin and has ended now to the timeline and returns how long it took, or 0 if batches are not timed.
func (l *Lane) timed(begin time.Time, held int, batch lease.HeartbeatBatch, failed bool) time.Duration {
	if l.clock == nil {
		return 0
	}
	took := l.clock().Sub(begin)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.log) < maxBeatLog {
		l.log = append(l.log, BeatRecord{At: begin.UnixMilli(), Took: took.Milliseconds(), Held: held,
			Renewals: len(batch.Renewed), DirectorySyncs: batch.DirectorySyncs, Failed: failed})
	}
	return took
}

// Quiet tells that no batch is running. The counters are final then if nothing is held.
func (l *Lane) Quiet() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.busy
}

// Step runs the batch if it is due. news tells whether the master has to see the Beat.
func (l *Lane) Step(ctx context.Context, now time.Time) (beat Beat, news bool) {
	if !l.begin(now) {
		return Beat{}, false
	}
	defer func() {
		l.mu.Lock()
		l.busy = false
		l.mu.Unlock()
	}()
	beat = l.Beat(ctx)
	return beat, len(beat.Lost) > 0 || beat.Err != nil
}

func (l *Lane) begin(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.next) {
		return false
	}
	l.metrics.LateMax = max(l.metrics.LateMax, now.Sub(l.next).Milliseconds())
	l.next = now.Add(l.interval)
	l.busy = true
	return true
}

// Beat renews everything held now, in one batch. Nothing held means no call and no count.
func (l *Lane) Beat(ctx context.Context) Beat {
	held := l.held.Snapshot()
	if len(held) == 0 {
		return Beat{}
	}
	var begin time.Time
	if l.clock != nil {
		begin = l.clock()
	}
	batch, err := l.table.HeartbeatMany(ctx, held)
	if err == nil {
		err = checkPartition(held, batch)
	}
	if err != nil {
		l.timed(begin, len(held), lease.HeartbeatBatch{}, true)
		return l.failed(held, err)
	}
	took := l.timed(begin, len(held), batch, false)
	l.mu.Lock()
	l.metrics.Batches++
	l.metrics.Renewals += uint64(len(batch.Renewed))
	l.metrics.DirectorySyncs += uint64(batch.DirectorySyncs)
	l.metrics.DirectorySyncsAvoided += uint64(max(0, len(batch.Renewed)-batch.DirectorySyncs))
	if each := took / time.Duration(len(held)); each > 0 {
		l.capacity = max(1, int(l.Timeout()/2/each))
	}
	l.mu.Unlock()
	return Beat{Lost: l.drop(held, batch.Lost)}
}

func (l *Lane) failed(held map[lease.ID]lease.Token, err error) Beat {
	l.mu.Lock()
	l.metrics.Failures++
	l.mu.Unlock()
	var batch *lease.BatchError
	if !errors.As(err, &batch) {
		return Beat{Err: err}
	}
	lost := l.drop(held, batch.Lost)
	for id := range batch.Failed {
		if l.held.Has(id, held[id]) {
			return Beat{Lost: lost, Err: err}
		}
	}
	for _, id := range batch.Unknown {
		if l.held.Has(id, held[id]) {
			return Beat{Lost: lost, Err: err}
		}
	}
	return Beat{Lost: lost}
}

// drop forgets lost leases and returns those that were still held with the token that was lost.
func (l *Lane) drop(held map[lease.ID]lease.Token, lost []lease.ID) []lease.ID {
	var dropped []lease.ID
	for _, id := range lost {
		if tok, ok := held[id]; ok && l.held.Drop(id, tok) {
			dropped = append(dropped, id)
		}
	}
	return dropped
}

// checkPartition refuses a result that doesn't account for each lease exactly once, before any counter moves.
func checkPartition(held map[lease.ID]lease.Token, b lease.HeartbeatBatch) error {
	seen := make(map[lease.ID]bool, len(held))
	for _, ids := range [][]lease.ID{b.Renewed, b.Lost} {
		for _, id := range ids {
			if _, ok := held[id]; !ok || seen[id] {
				return fmt.Errorf("heartbeat result: %s is reported twice or was not asked for", id)
			}
			seen[id] = true
		}
	}
	if len(seen) != len(held) {
		return fmt.Errorf("heartbeat result: %d of %d leases are missing", len(held)-len(seen), len(held))
	}
	if b.DirectorySyncs < 0 || b.DirectorySyncs > len(b.Renewed) {
		return fmt.Errorf("heartbeat result: %d directory syncs for %d renewals", b.DirectorySyncs, len(b.Renewed))
	}
	return nil
}
