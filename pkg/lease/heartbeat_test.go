package lease

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
)

// claimMany claims n items and returns their tokens, and their IDs in batch order.
func (f *fixture) claimMany(t *Table, n int) (map[ID]Token, []ID) {
	f.Helper()
	held := map[ID]Token{}
	for i := range n {
		held[itemID(i)] = f.claim(t, itemID(i), "a")
	}
	ids := slices.SortedFunc(maps.Keys(held), func(a, b ID) int {
		if x, y := a.shard(4), b.shard(4); x != y {
			return x - y
		}
		return compareIDs(a, b)
	})
	return held, ids
}

// beyond.md row 1, GC-2, G5: whatever happens to one record, the others are renewed and durable, and each injected error surfaces.
func TestOneBadRecordDoesNotStarveTheOthers(t *testing.T) {
	faults := map[string]faultfs.Rule{
		"open":   {Op: vfs.OpOpen, Base: "*.json", Err: syscall.EIO},
		"read":   {Op: vfs.OpRead, Base: "*.json", Err: syscall.EIO},
		"lock":   {Op: vfs.OpLock, Err: syscall.ENOLCK},
		"create": {Op: vfs.OpOpen, Base: "*.tmp", Err: syscall.ENOSPC},
		"write":  {Op: vfs.OpWrite, Err: syscall.ENOSPC},
		"short":  {Op: vfs.OpWrite, Short: 10},
		"sync":   {Op: vfs.OpSync, Err: syscall.EIO},
		"close":  {Op: vfs.OpClose, Base: "*.tmp", Err: syscall.EDQUOT},
		"rename": {Op: vfs.OpRename, Err: syscall.EROFS},
	}
	for name, rule := range faults {
		for _, nth := range []int{1, 4, 16} { // first, middle, last
			f := newFixture(t)
			table := f.open()
			held, ids := f.claimMany(table, 16)
			f.clock.set(15)
			f.trace.Reset()
			rule.Nth = nth
			f.fault.Inject(rule)
			b, err := table.HeartbeatMany(bg, held)
			var be *BatchError
			if !errors.As(err, &be) || f.fault.Injected() != 1 || len(be.Failed) != 1 || len(be.Durable) != 15 || be.Unknown != nil || be.Lost != nil {
				t.Fatalf("%s %d: %v, %+v", name, nth, err, be)
			}
			if rule.Err != nil && !errors.Is(err, rule.Err) {
				t.Errorf("%s: %v does not match its cause", name, err)
			}
			if errors.Is(err, groupcommit.ErrUnknown) || b.Renewed != nil || b.DirectorySyncs != 0 {
				t.Errorf("%s: %v, %+v", name, err, b)
			}
			if !slices.IsSortedFunc(be.Durable, func(x, y ID) int { return slices.Index(ids, x) - slices.Index(ids, y) }) {
				t.Errorf("%s: not sorted by shard and ID", name)
			}
			for id := range held {
				want := seconds(15)
				if be.Failed[id] != nil {
					want = seconds(10)
				}
				if got := f.updated(id); !got.Equal(want) {
					t.Errorf("%s: %s updated at %v, want %v", name, id, got, want)
				}
			}
			f.fault.Clear()
			_, err = table.HeartbeatMany(bg, held) // the same process goes on (LE-16, GC-9)
			f.must(err)
		}
	}
}

// beyond.md row 5, G6: each failed barrier fails its own records only, and every barrier is tried.
func TestAFailedBarrierFailsItsShardOnly(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	held, ids := f.claimMany(table, 16)
	f.trace.Reset()
	f.fault.Inject(faultfs.Rule{Op: vfs.OpSyncDir, Base: "001", Err: syscall.EIO, Sticky: true})
	f.fault.Inject(faultfs.Rule{Op: vfs.OpRead, Base: ids[0].String() + ".json", Err: syscall.ESTALE, Sticky: true})
	_, err := table.HeartbeatMany(bg, held)
	f.want(err, syscall.EIO, syscall.ESTALE, groupcommit.ErrUnknown) // both errors, none hides the other
	var be *BatchError
	errors.As(err, &be)
	for _, id := range ids[1:] {
		list := be.Durable
		if id.shard(4) == 1 {
			list = be.Unknown
		}
		if !slices.Contains(list, id) {
			t.Errorf("%s of shard %d is in the wrong list", id, id.shard(4))
		}
	}
	if len(be.Durable)+len(be.Unknown)+len(be.Failed) != len(held) {
		t.Errorf("%+v", be)
	}
	st := table.Stats()
	if st.Failures != 1 || st.Batches != 0 || st.Renewals != 0 || st.DirectorySyncs != 0 {
		t.Errorf("a failed batch was counted as a success: %+v", st)
	}
}

// LE-9, FS-23: a rename that was done in spite of its error is perhaps renewed; the next beat knows its own record.
func TestARenameThatWasDoneInSpiteOfItsErrorIsUnknown(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	tok := f.claim(table, firstOfShard0, "a")
	f.clock.set(15)
	f.fault.Inject(faultfs.Rule{Op: vfs.OpRename, Err: syscall.EIO, After: true})
	err := table.Heartbeat(bg, firstOfShard0, tok)
	f.want(err, syscall.EIO, groupcommit.ErrUnknown)
	if got := f.updated(firstOfShard0); !got.Equal(seconds(15)) {
		t.Errorf("updated at %v", got)
	}
	f.must(table.Heartbeat(bg, firstOfShard0, tok))
}

// LK-7, beyond.md row 1: a busy lock is a failure of its record, waited for once for the whole batch, after all others were renewed.
func TestBusyLocksFailTheirRecordsWithinOneTimeout(t *testing.T) {
	f := newFixture(t)
	f.opts.LockTimeout = 100 * time.Millisecond
	table := f.open()
	held, ids := f.claimMany(table, 16)
	for _, id := range ids[:8] {
		l, err := table.s.lock(bg, id, time.Time{})
		f.must(err)
		defer l.Close()
	}
	start := time.Now()
	_, err := table.HeartbeatMany(bg, held)
	f.want(err, ErrLocked)
	var be *BatchError
	if errors.As(err, &be); len(be.Failed) != 8 || len(be.Durable) != 8 {
		t.Errorf("%+v", be)
	}
	if took := time.Since(start); took > 4*f.opts.LockTimeout { // 8 waits would take 8 timeouts
		t.Errorf("took %v", took)
	}
}

func TestARecordThatIsBusyForAMomentIsRenewed(t *testing.T) {
	f := newFixture(t)
	f.opts.LockTimeout = time.Minute
	table := f.open()
	held, ids := f.claimMany(table, 4)
	l, err := table.s.lock(bg, ids[0], time.Time{})
	f.must(err)
	f.fault.Inject(faultfs.Rule{Op: vfs.OpRename, Nth: 3, Hook: func(*vfs.Call) { l.Close() }}) // all the others are done
	b, err := table.HeartbeatMany(bg, held)
	f.must(err)
	if !slices.Equal(b.Renewed, ids) {
		t.Errorf("%+v", b)
	}
}

// GC-7: a batch cut short by its context tells what was done, and runs the barriers of that.
func TestACancelledBatchTellsTheTruth(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	held, ids := f.claimMany(table, 16)
	f.clock.set(15)
	f.trace.Reset()
	ctx, cancel := context.WithCancel(bg)
	f.fault.Inject(faultfs.Rule{Op: vfs.OpRename, Nth: 5, Hook: func(*vfs.Call) { cancel() }})
	_, err := table.HeartbeatMany(ctx, held)
	f.want(err, context.Canceled)
	var be *BatchError
	errors.As(err, &be)
	if !slices.Equal(be.Durable, ids[:5]) || len(be.Failed) != 11 {
		t.Errorf("%d durable, %d failed", len(be.Durable), len(be.Failed))
	}
	if len(f.dirSyncs()) == 0 {
		t.Error("no barrier was run")
	}
	for i, id := range ids {
		if got := f.updated(id); got.Equal(seconds(15)) != (i < 5) {
			t.Errorf("record %d updated at %v", i, got)
		}
	}
}

// G7: nothing to renew causes no access at all, and a missing record is lost.
func TestStaleTokensCostNothing(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	b, err := table.HeartbeatMany(bg, nil)
	f.must(err)
	b2, err := table.HeartbeatMany(bg, map[ID]Token{firstOfShard0: {}})
	f.must(err)
	if b.Lost != nil || !slices.Equal(b2.Lost, []ID{firstOfShard0}) || len(f.trace.Events()) > 0 {
		t.Errorf("%+v, %+v, %d accesses", b, b2, len(f.trace.Events()))
	}
	f.want(table.Heartbeat(bg, firstOfShard0, Token{Fence: 1}), ErrLost)
	if f.writes() > 0 {
		t.Error("a heartbeat of no record wrote something")
	}
}

// LE-18: a heartbeat that comes after a take-over leaves the new holder's record byte for byte.
func TestALateHeartbeatLeavesTheNewHoldersRecordAlone(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	old := f.claim(table, firstOfShard0, "a")
	f.clock.set(20)
	f.claim(table, firstOfShard0, "b")
	before := f.bytes(firstOfShard0)
	f.trace.Reset()
	f.want(table.Heartbeat(bg, firstOfShard0, old), ErrLost)
	if string(before) != string(f.bytes(firstOfShard0)) || f.writes() > 0 {
		t.Error("the record was touched")
	}
}

// The scalar heartbeat is a batch of one, operation for operation; the trace also shows that renewals look up no directory twice.
func TestScalarAndBatchedHeartbeatsAreOnePath(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	tok := f.claim(table, firstOfShard0, "a")
	f.trace.Reset()
	f.must(table.Heartbeat(bg, firstOfShard0, tok))
	scalar := f.trace.String()
	f.trace.Reset()
	_, err := table.HeartbeatMany(bg, map[ID]Token{firstOfShard0: tok})
	f.must(err)
	if got := f.trace.String(); got != scalar {
		t.Errorf("scalar:\n%sbatch:\n%s", scalar, got)
	}
	f.trace.Mark("renewed")
	f.must(f.trace.Check("renewed")) // FS-1
	st := table.Stats()
	if st.Batches != 2 || st.Renewals != 2 || st.DirectorySyncs != 2 || st.FileSyncs != 2 {
		t.Errorf("%d batches, %d renewals, %d directory syncs, %d file syncs", st.Batches, st.Renewals, st.DirectorySyncs, st.FileSyncs)
	}
}

// GC-5: Close ends waiting, and says so.
func TestCloseEndsWaitingAndLaterCalls(t *testing.T) {
	f := newFixture(t)
	f.opts.LockTimeout = time.Hour
	table := f.open()
	held, ids := f.claimMany(table, 8)
	for _, id := range ids {
		l, err := table.s.lock(bg, id, time.Time{})
		f.must(err)
		defer l.Close()
	}
	done := make(chan error)
	for _, id := range ids {
		go func() { done <- table.Heartbeat(bg, id, held[id]) }()
	}
	f.must(table.Close())
	f.must(table.Close())
	for range ids {
		select {
		case err := <-done:
			f.want(err, fs.ErrClosed)
		case <-time.After(time.Minute):
			t.Fatal("a call waits for a closed table")
		}
	}
	f.want(second(table.Claim(bg, firstOfShard0, nil, Holder{})), fs.ErrClosed)
	f.want(second(table.HeartbeatMany(bg, held)), fs.ErrClosed)
	for _, err := range table.Records(bg) {
		f.want(err, fs.ErrClosed)
	}
}
