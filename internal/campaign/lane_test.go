package campaign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"shardlease/pkg/groupcommit/vfs/crashfs"
	"shardlease/pkg/lease"
)

func id(t testing.TB, first string, fill byte) lease.ID {
	t.Helper()
	text := first
	for len(text) < 64 {
		text += string(fill)
	}
	v, err := lease.ParseID(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// beater answers heartbeats with a function.
type beater func(held map[lease.ID]lease.Token) (lease.HeartbeatBatch, error)

func (b beater) HeartbeatMany(_ context.Context, held map[lease.ID]lease.Token) (lease.HeartbeatBatch, error) {
	return b(held)
}

// Directed test 8 of the reference, section 8, with today's result validation.
func TestTheLaneBatchesHeartbeatsAndTracksFailures(t *testing.T) {
	ctx := context.Background()
	clock := time.Unix(10, 0)
	table, err := lease.Open("/epoch", &lease.Options{Shards: 4, TTL: 10 * time.Second, FS: crashfs.New(), Now: func() time.Time { return clock }})
	if err != nil {
		t.Fatal(err)
	}
	first, second := id(t, "00000000", 'a'), id(t, "00000004", 'b')
	held := NewHoldings()
	for _, item := range []lease.ID{first, second} {
		tok, err := table.Claim(ctx, item, encodePayload(item, Initial), lease.Holder{Owner: ownerName(hashA, 0)})
		if err != nil {
			t.Fatal(err)
		}
		held.Add(item, tok)
	}
	stale := lease.Token{Fence: 99}
	held.Add(second, stale)
	lane := NewLane(table, held, time.Second, clock)
	clock = time.Unix(19, 0)
	if b := lane.Beat(ctx); b.Err != nil || !slices.Equal(b.Lost, []lease.ID{second}) {
		t.Fatalf("%+v", b)
	}
	want := HeartbeatMetrics{Batches: 1, Renewals: 1, DirectorySyncs: 1}
	if got := lane.Metrics(); got != want {
		t.Fatalf("%+v", got)
	}
	if tokens := held.Snapshot(); len(tokens) != 1 || tokens[second] == stale {
		t.Fatalf("%v", tokens)
	}
	before := held.Snapshot()
	for i, bad := range []beater{
		func(map[lease.ID]lease.Token) (lease.HeartbeatBatch, error) {
			return lease.HeartbeatBatch{}, errors.New("injected")
		},
		func(map[lease.ID]lease.Token) (lease.HeartbeatBatch, error) { return lease.HeartbeatBatch{}, nil }, // accounts for nothing
		func(map[lease.ID]lease.Token) (lease.HeartbeatBatch, error) {
			return lease.HeartbeatBatch{Renewed: []lease.ID{first}, Lost: []lease.ID{first}}, nil
		},
		func(map[lease.ID]lease.Token) (lease.HeartbeatBatch, error) {
			return lease.HeartbeatBatch{Renewed: []lease.ID{first, second}}, nil
		},
		func(map[lease.ID]lease.Token) (lease.HeartbeatBatch, error) {
			return lease.HeartbeatBatch{Renewed: []lease.ID{first}, DirectorySyncs: -1}, nil
		},
		func(map[lease.ID]lease.Token) (lease.HeartbeatBatch, error) {
			return lease.HeartbeatBatch{Renewed: []lease.ID{first}, DirectorySyncs: 2}, nil
		},
	} {
		lane.table = bad
		if b := lane.Beat(ctx); b.Err == nil || len(b.Lost) > 0 {
			t.Errorf("case %d: %+v", i, b)
		}
		want.Failures++
		if got := lane.Metrics(); got != want {
			t.Errorf("case %d: counters %+v, want %+v", i, got, want)
		}
		if !maps.Equal(held.Snapshot(), before) {
			t.Errorf("case %d: tokens changed", i)
		}
	}
}

func TestABatchErrorDropsOnlyLostTokensAndIsAControlFailure(t *testing.T) {
	a, b, c := id(t, "00000000", 'a'), id(t, "00000001", 'b'), id(t, "00000002", 'c')
	held := NewHoldings()
	for _, item := range []lease.ID{a, b, c} {
		held.Add(item, lease.Token{Fence: 1})
	}
	lane := NewLane(beater(func(map[lease.ID]lease.Token) (lease.HeartbeatBatch, error) {
		return lease.HeartbeatBatch{}, fmt.Errorf("batch: %w", &lease.BatchError{Failed: map[lease.ID]error{a: errors.New("EIO")}, Durable: []lease.ID{b}, Lost: []lease.ID{c}})
	}), held, time.Second, time.Time{})
	beat := lane.Beat(context.Background())
	if beat.Err == nil || !slices.Equal(beat.Lost, []lease.ID{c}) {
		t.Fatalf("%+v", beat)
	}
	if got := lane.Metrics(); got != (HeartbeatMetrics{Failures: 1}) {
		t.Fatalf("%+v", got)
	}
	if got := held.Snapshot(); len(got) != 2 || !held.Has(a, lease.Token{Fence: 1}) || !held.Has(b, lease.Token{Fence: 1}) {
		t.Fatalf("%v", got)
	}
}

func TestALeaseSettledDuringTheBatchIsNeitherLostNorAFailure(t *testing.T) {
	a, b := id(t, "00000000", 'a'), id(t, "00000001", 'b')
	held := NewHoldings()
	held.Add(a, lease.Token{Fence: 1})
	held.Add(b, lease.Token{Fence: 1})
	answer := func(batch lease.HeartbeatBatch, err error) Beat {
		held.Add(a, lease.Token{Fence: 1})
		lane := NewLane(beater(func(map[lease.ID]lease.Token) (lease.HeartbeatBatch, error) {
			held.Drop(a, lease.Token{Fence: 1}) // committed meanwhile
			return batch, err
		}), held, time.Second, time.Time{})
		return lane.Beat(context.Background())
	}
	if got := answer(lease.HeartbeatBatch{Renewed: []lease.ID{b}, Lost: []lease.ID{a}, DirectorySyncs: 1}, nil); got.Err != nil || len(got.Lost) > 0 {
		t.Errorf("lost: %+v", got)
	}
	if got := answer(lease.HeartbeatBatch{}, &lease.BatchError{Failed: map[lease.ID]error{a: lease.ErrLocked}, Durable: []lease.ID{b}}); got.Err != nil {
		t.Errorf("failed: %+v", got)
	}
	if got := answer(lease.HeartbeatBatch{}, &lease.BatchError{Unknown: []lease.ID{a, b}}); got.Err == nil {
		t.Error("an unknown renewal of a lease that is held is no failure")
	}
}

func TestTheLaneKeepsItsPeriodAndMeasuresLateness(t *testing.T) {
	begin := time.Unix(100, 0)
	calls := 0
	held := NewHoldings()
	lane := NewLane(beater(func(h map[lease.ID]lease.Token) (lease.HeartbeatBatch, error) {
		calls++
		var b lease.HeartbeatBatch
		for item := range h {
			b.Renewed = append(b.Renewed, item)
		}
		b.DirectorySyncs = 1
		return b, nil
	}), held, time.Second, begin)
	ctx := context.Background()
	lane.Step(ctx, begin.Add(time.Second)) // nothing held
	held.Add(id(t, "00000000", 'a'), lease.Token{Fence: 1})
	held.Add(id(t, "00000001", 'a'), lease.Token{Fence: 1})
	lane.Step(ctx, begin.Add(1500*time.Millisecond)) // not due
	lane.Step(ctx, begin.Add(2700*time.Millisecond)) // 700 ms late
	lane.Step(ctx, begin.Add(2800*time.Millisecond)) // not due
	want := HeartbeatMetrics{Batches: 1, Renewals: 2, DirectorySyncs: 1, DirectorySyncsAvoided: 1, LateMax: 700}
	if got := lane.Metrics(); calls != 1 || got != want {
		t.Errorf("%d calls, %+v", calls, got)
	}
	if 2*lane.Timeout() >= 3*lane.interval {
		t.Error("a lease may lapse while it waits for the end of two batches")
	}
}

// partition renews everything, with one directory sync, or fails.
type partition struct{ err error }

func (p *partition) HeartbeatMany(_ context.Context, held map[lease.ID]lease.Token) (lease.HeartbeatBatch, error) {
	b := lease.HeartbeatBatch{DirectorySyncs: 1}
	for id := range held {
		b.Renewed = append(b.Renewed, id)
	}
	return b, p.err
}

func TestALaneKeepsTheTimelineOfItsFirstBatches(t *testing.T) {
	held := NewHoldings()
	held.Add(lease.SumID([]byte("a")), lease.Token{Fence: 1})
	now := time.UnixMilli(1000)
	table := &partition{}
	lane := NewLane(table, held, time.Second, now)
	lane.Measure(func() time.Time { now = now.Add(5 * time.Millisecond); return now })
	lane.Beat(t.Context())
	table.err = errors.New("disk")
	lane.Beat(t.Context())
	log := lane.Log()
	if len(log) != 2 || log[0].Renewals != 1 || log[0].DirectorySyncs != 1 || log[0].Took != 5 || log[0].At != 1005 || log[0].Failed {
		t.Fatalf("timeline %+v", log)
	}
	if bad := log[1]; !bad.Failed || bad.Renewals != 0 || bad.DirectorySyncs != 0 || bad.Held != 1 {
		t.Errorf("failed batch %+v", bad)
	}
	table.err = nil
	for range maxBeatLog {
		lane.Beat(t.Context())
	}
	if n := len(lane.Log()); n != maxBeatLog {
		t.Errorf("%d batches kept", n)
	}
}
