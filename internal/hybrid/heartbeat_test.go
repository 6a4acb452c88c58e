package hybrid

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"shardlease/internal/campaign"
	"shardlease/pkg/lease"
)

// batchTable has nothing but the batch call and the scalar one, which must not be used beside it.
type batchTable struct {
	t      *testing.T
	calls  []map[lease.ID]lease.Token
	answer func(held map[lease.ID]lease.Token) (lease.HeartbeatBatch, error)
}

func (b *batchTable) HeartbeatMany(_ context.Context, held map[lease.ID]lease.Token) (lease.HeartbeatBatch, error) {
	b.calls = append(b.calls, held)
	return b.answer(held)
}

func (b *batchTable) Heartbeat(context.Context, lease.ID, lease.Token) error {
	b.t.Error("a table with a batch call is asked one by one")
	return nil
}

// scalarTable has no batch call; it answers in turn.
type scalarTable struct{ answers []error }

func (s *scalarTable) Heartbeat(context.Context, lease.ID, lease.Token) error {
	err := s.answers[0]
	s.answers = s.answers[1:]
	return err
}

type targetAnswers struct{ answers []error }

func (t *targetAnswers) HeartbeatGroup(context.Context, []uint64, lease.Token) error {
	err := t.answers[0]
	t.answers = t.answers[1:]
	return err
}

func fakeLease(name string, fence uint64) Lease {
	return Lease{ID: lease.SumID([]byte(name)), Token: lease.Token{Fence: fence}}
}

// Directed test 9 of the report.
func TestSharedHeartbeatUsesOneWorkLeaseBatch(t *testing.T) {
	a, b := fakeLease("work-a", 1), fakeLease("work-b", 2)
	table := &batchTable{t: t, answer: func(map[lease.ID]lease.Token) (lease.HeartbeatBatch, error) {
		return lease.HeartbeatBatch{Renewed: []lease.ID{a.ID}, Lost: []lease.ID{b.ID}, DirectorySyncs: 1}, nil
	}}
	f := HeartbeatFenced(t.Context(), table, map[int]Lease{1: a, 2: b}, nil, nil, nil)
	if want := (Counters{WorkOK: 1, WorkFailed: 1}); f.Counters != want {
		t.Errorf("counters %+v, want %+v", f.Counters, want)
	}
	if len(table.calls) != 1 || len(table.calls[0]) != 2 || table.calls[0][a.ID] != a.Token || table.calls[0][b.ID] != b.Token {
		t.Errorf("calls %v, want one with both leases", table.calls)
	}
	if f.Batch.DirectorySyncs != 1 || f.WorkErr != nil {
		t.Errorf("batch %+v, error %v", f.Batch, f.WorkErr)
	}
}

// F312: one lease's error stops no other, neither among work leases nor among groups, active or pending.
func TestHeartbeatFailuresAreIsolatedWithoutABatchCall(t *testing.T) {
	a, b := fakeLease("a", 1), fakeLease("b", 2)
	work := &scalarTable{answers: []error{syscall.EIO, nil}}
	targets := &targetAnswers{answers: []error{syscall.EIO, lease.ErrLost, nil}}
	f := HeartbeatFenced(t.Context(), work, map[int]Lease{1: a, 2: b}, targets, []Group{{}, {}}, []Group{{}})
	if want := (Counters{WorkOK: 1, WorkFailed: 1, TargetOK: 1, TargetFailed: 2}); f.Counters != want {
		t.Errorf("counters %+v, want %+v", f.Counters, want)
	}
	var batch *lease.BatchError
	if !errors.As(f.WorkErr, &batch) || len(batch.Durable) != 1 || !errors.Is(batch.Failed[a.ID], syscall.EIO) {
		t.Errorf("error %v does not say which lease failed and which was renewed", f.WorkErr)
	}
	if g := f.GroupErrs; len(g) != 3 || !errors.Is(g[0], syscall.EIO) || !errors.Is(g[1], lease.ErrLost) || g[2] != nil {
		t.Errorf("group errors %v", g)
	}
}

// The report's rule (section 5.2): an erroring batch is no success for anybody, and groups go on.
func TestErroringBatchCountsEveryMemberAsFailedAndGroupsGoOn(t *testing.T) {
	a, b := fakeLease("a", 1), fakeLease("b", 2)
	table := &batchTable{t: t, answer: func(map[lease.ID]lease.Token) (lease.HeartbeatBatch, error) {
		return lease.HeartbeatBatch{}, &lease.BatchError{Failed: map[lease.ID]error{a.ID: syscall.EIO}, Durable: []lease.ID{b.ID}}
	}}
	f := HeartbeatFenced(t.Context(), table, map[int]Lease{1: a, 2: b}, &targetAnswers{answers: []error{nil}}, []Group{{}}, nil)
	if want := (Counters{WorkFailed: 2, TargetOK: 1}); f.Counters != want {
		t.Errorf("counters %+v, want %+v", f.Counters, want)
	}
	if !errors.Is(f.WorkErr, syscall.EIO) || f.Batch.Renewed != nil {
		t.Errorf("batch %+v besides error %v", f.Batch, f.WorkErr)
	}
}

func TestNothingHeldMeansNoCall(t *testing.T) {
	table := &batchTable{t: t}
	if f := HeartbeatFenced(t.Context(), table, nil, nil, nil, nil); f.Counters != (Counters{}) || len(table.calls) != 0 {
		t.Errorf("%+v, %d calls", f, len(table.calls))
	}
	if f := HeartbeatFenced(t.Context(), nil, map[int]Lease{1: fakeLease("a", 1)}, nil, []Group{{}}, nil); f.Counters != (Counters{}) {
		t.Errorf("tables that are off are counted: %+v", f.Counters)
	}
}

// Two workers with one lease are one entry of the call and two of the count.
func TestOneLeaseOfTwoWorkersIsRenewedOnceAndCountedTwice(t *testing.T) {
	a := fakeLease("a", 1)
	table := &batchTable{t: t, answer: func(held map[lease.ID]lease.Token) (lease.HeartbeatBatch, error) {
		return lease.HeartbeatBatch{Renewed: []lease.ID{a.ID}, DirectorySyncs: 1}, nil
	}}
	f := HeartbeatFenced(t.Context(), table, map[int]Lease{1: a, 2: a}, nil, nil, nil)
	if f.WorkOK != 2 || len(table.calls[0]) != 1 {
		t.Errorf("work_ok %d, call %v", f.WorkOK, table.calls)
	}
}

// One bad record on disk must not starve the others, although the counters call every member failed: the real table, one damaged record, many
// periods, and a clock that passes the TTL. The good leases never expire.
func TestOneBadRecordDoesNotStarveTheOthers(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	root := filepath.Join(t.TempDir(), "table")
	table, err := lease.Open(root, &lease.Options{Shards: 1, TTL: 10 * time.Second, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	active := map[int]Lease{}
	for worker := range 3 {
		id := lease.SumID([]byte(fmt.Sprint(worker)))
		tok, err := table.Claim(t.Context(), id, nil, lease.Holder{Owner: "a"})
		if err != nil {
			t.Fatal(err)
		}
		active[worker] = Lease{ID: id, Token: tok}
	}
	bad := active[1].ID
	damaged, err := filepath.Glob(filepath.Join(root, "*", bad.String()+".json"))
	if err != nil || len(damaged) != 1 {
		t.Fatalf("record of %s: %v %v", bad, damaged, err)
	}
	if err := os.WriteFile(damaged[0], []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		now = now.Add(4 * time.Second)
		f := HeartbeatFenced(t.Context(), table, active, nil, nil, nil)
		if f.WorkOK != 0 || f.WorkFailed != 3 {
			t.Fatalf("counters %+v: an erroring batch acknowledged somebody", f.Counters)
		}
		var batch *lease.BatchError
		if !errors.As(f.WorkErr, &batch) || len(batch.Durable) != 2 || !errors.Is(batch.Failed[bad], lease.ErrCorrupt) {
			t.Fatalf("error %v, want one corrupt record and two durable renewals", f.WorkErr)
		}
	}
	expired, err := table.Expired(t.Context(), 0)
	if err != nil || len(expired) != 0 {
		t.Errorf("starved: %v, %v", expired, err)
	}
	for _, worker := range []int{0, 2} {
		if err := table.BeginCommit(t.Context(), active[worker].ID, active[worker].Token, []byte(`{}`)); err != nil {
			t.Errorf("worker %d can't commit: %v", worker, err)
		}
	}
}

// An item that is committed while the batch runs is no longer held when its record's turn comes. That is no failed heartbeat.
func TestItemFinishedWhileTheHeartbeatRanDidNotFail(t *testing.T) {
	a, b := fakeLease("a", 1), fakeLease("b", 2)
	var e *entry
	table := &batchTable{t: t, answer: func(map[lease.ID]lease.Token) (lease.HeartbeatBatch, error) {
		e.release(b.ID)
		return lease.HeartbeatBatch{Renewed: []lease.ID{a.ID}, Lost: []lease.ID{b.ID}, DirectorySyncs: 1}, nil
	}}
	e = newEntry(table, &targetAnswers{answers: []error{lease.ErrLost, lease.ErrLost}}, nil)
	e.hold(1, a.ID, &Group{Targets: []uint64{1}})
	e.hold(2, b.ID, &Group{Targets: []uint64{2}})
	batch, err := e.HeartbeatMany(t.Context(), map[lease.ID]lease.Token{a.ID: a.Token, b.ID: b.Token})
	total, calls, _ := e.counters()
	if want := (Counters{WorkOK: 1, TargetFailed: 1}); total != want || calls != 1 || err != nil || len(batch.Lost) != 1 {
		t.Errorf("counters %+v, want %+v; %d calls, batch %+v, %v", total, want, calls, batch, err)
	}
}

// An item may be settled between the lane's snapshot and the entry's look at it. It is not asked for any more, and that is no failure:
// the batch of the others counts, and the sums over the event log stay those of the lane.
func TestItemFinishedJustBeforeTheHeartbeatDidNotFail(t *testing.T) {
	a, b := fakeLease("a", 1), fakeLease("b", 2)
	held := campaign.NewHoldings()
	table := &batchTable{t: t, answer: func(held map[lease.ID]lease.Token) (lease.HeartbeatBatch, error) {
		if _, asked := held[b.ID]; asked {
			t.Error("a settled item is renewed")
		}
		return lease.HeartbeatBatch{Renewed: []lease.ID{a.ID}, DirectorySyncs: 1}, nil
	}}
	e := newEntry(table, nil, nil)
	e.hold(1, a.ID, nil)
	for _, l := range []Lease{a, b} {
		held.Add(l.ID, l.Token) // b's worker has been released already
	}
	lane := campaign.NewLane(e, held, time.Second, time.Now())
	beat := lane.Beat(t.Context())
	if m := lane.Metrics(); beat.Err != nil || m.Failures != 0 || m.Batches != 1 || m.Renewals != 1 {
		t.Errorf("%+v, %+v", beat, m)
	}
	if total, calls, err := e.counters(); total != (Counters{WorkOK: 1}) || calls != 1 || err != nil {
		t.Errorf("counters %+v, %d calls, %v", total, calls, err)
	}
}

// A storage that hangs on the work leases until their time is over must leave the groups time of their own.
func TestHangingWorkBatchLeavesTimeForTheGroups(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	a := fakeLease("a", 1)
	f := HeartbeatFenced(ctx, hangingTable{}, map[int]Lease{1: a}, liveTargets{}, []Group{{}}, nil)
	if want := (Counters{WorkFailed: 1, TargetOK: 1}); f.Counters != want {
		t.Errorf("counters %+v, want %+v: %v", f.Counters, want, f.Err())
	}
}

type hangingTable struct{}

func (hangingTable) Heartbeat(context.Context, lease.ID, lease.Token) error { return nil }
func (hangingTable) HeartbeatMany(ctx context.Context, _ map[lease.ID]lease.Token) (lease.HeartbeatBatch, error) {
	<-ctx.Done()
	return lease.HeartbeatBatch{}, ctx.Err()
}

type liveTargets struct{}

func (liveTargets) HeartbeatGroup(ctx context.Context, _ []uint64, _ lease.Token) error {
	return ctx.Err()
}
