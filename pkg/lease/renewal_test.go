package lease

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
)

// beatFixture is a fixture with a session that holds leases, and a strict table of somebody else on the same root.
type beatFixture struct {
	*fixture
	holder, other *Table
	held          map[ID]Token
}

func newBeatFixture(t *testing.T, n int) *beatFixture {
	f := newFixture(t)
	b := &beatFixture{fixture: f, held: map[ID]Token{}}
	b.holder = b.session()
	var err error
	b.other, err = Open(f.root, &Options{Shards: 4, TTL: 10 * time.Second, Now: f.clock.now})
	f.must(err)
	for i := range n {
		b.held[itemID(i)] = f.claim(b.holder, itemID(i), "holder")
	}
	f.trace.Reset()
	return b
}

func (b *beatFixture) session() *Table {
	b.Helper()
	opts := b.opts
	opts.Renewals = OneFlush
	table, err := Open(b.root, &opts)
	b.must(err)
	b.Cleanup(func() { table.Close() })
	return table
}

func (b *beatFixture) beatAt(seconds float64) HeartbeatBatch {
	b.Helper()
	b.clock.set(seconds)
	batch, err := b.holder.HeartbeatMany(bg, b.held)
	b.must(err)
	return batch
}

func (b *beatFixture) claimByOther(id ID) error {
	_, err := b.other.Claim(bg, id, nil, Holder{Owner: "other"})
	return err
}

// ops lists what has changed the disk since the last Reset.
func (b *beatFixture) ops() string {
	var list []string
	for _, e := range b.trace.Events() {
		switch e.Op {
		case vfs.OpWrite, vfs.OpWriteAt, vfs.OpRename, vfs.OpSync, vfs.OpDatasync, vfs.OpSyncDir, vfs.OpSyncFS:
			list = append(list, string(e.Op))
		}
	}
	return strings.Join(list, " ")
}

func TestAnUnchangedSetCostsOneWriteAndOneFlushForAnyNumberOfRecordsAndShards(t *testing.T) {
	for _, n := range []int{1, 64, 500} {
		b := newBeatFixture(t, n)
		b.beatAt(11) // the list
		b.trace.Reset()
		batch := b.beatAt(12)
		if got := b.ops(); got != "write-at datasync" {
			t.Errorf("%d leases: %s", n, got)
		}
		if len(batch.Renewed) != n || len(batch.Lost) != 0 || batch.DirectorySyncs != 0 {
			t.Errorf("%d leases: renewed %d, lost %d, %d directory syncs", n, len(batch.Renewed), len(batch.Lost), batch.DirectorySyncs)
		}
		if !slices.IsSortedFunc(batch.Renewed, b.holder.s.compare) {
			t.Errorf("%d leases: not sorted by shard, then ID", n)
		}
	}
}

// The same result types and expectations as directed test 2, but with the renewal in the beat file.
func TestABeatRenewsForEverybodyUntilItsOwnTTL(t *testing.T) {
	b := newBeatFixture(t, 3)
	b.beatAt(19)
	b.clock.set(28.999)
	for id := range b.held {
		b.want(b.claimByOther(id), ErrHeld)
	}
	if expired, err := b.other.Expired(bg, 0); err != nil || len(expired) != 0 {
		t.Errorf("expired %v, %v", expired, err)
	}
	b.clock.set(29)
	if c, err := b.other.Counts(bg); err != nil || c.Expired != 3 {
		t.Errorf("counts %+v, %v", c, err)
	}
	for id := range b.held {
		b.must(b.claimByOther(id))
	}
	batch, err := b.holder.HeartbeatMany(bg, b.held)
	if b.must(err); len(batch.Lost) != 3 || !slices.IsSortedFunc(batch.Lost, b.holder.s.compare) {
		t.Errorf("batch %+v", batch)
	}
}

func TestAStaleTokenIsLostByBeatToo(t *testing.T) {
	b := newBeatFixture(t, 2)
	b.beatAt(11)
	stale := itemID(0)
	tok := b.held[stale]
	tok.Nonce[0]++
	b.held[stale] = tok
	before := b.bytes(stale)
	if batch := b.beatAt(12); !slices.Equal(batch.Lost, []ID{stale}) || len(batch.Renewed) != 1 {
		t.Errorf("batch %+v", batch)
	}
	if string(before) != string(b.bytes(stale)) {
		t.Error("the record was changed")
	}
}

func TestAClaimOfALapsedLeaseIsSeenByItsSleepingHolder(t *testing.T) {
	b := newBeatFixture(t, 3)
	b.beatAt(19)
	b.clock.set(30) // the holder slept
	taken := itemID(1)
	b.must(b.claimByOther(taken))
	b.clock.set(25) // its clock lags within what it has promised: only the challenge can tell it
	batch, err := b.holder.HeartbeatMany(bg, b.held)
	if b.must(err); !slices.Equal(batch.Lost, []ID{taken}) || len(batch.Renewed) != 2 {
		t.Errorf("batch %+v", batch)
	}
	if r, err := b.other.Lookup(taken); err != nil || r.Holder.Owner != "other" {
		t.Errorf("record %+v, %v", r, err)
	}
}

func TestAHolderRenewsStrictlyWhatAClaimantChallengedAndDidNotTake(t *testing.T) {
	b := newBeatFixture(t, 2)
	b.beatAt(11)
	r, err := b.other.Lookup(itemID(0))
	b.must(err)
	b.must(challenge(vfs.OS, b.other.s.challengesName(r.session), r.ID, r.Token.Fence)) // a claimant that died after (b)
	b.clock.set(15)
	if batch := b.beatAt(15); len(batch.Renewed) != 2 || batch.DirectorySyncs != 1 {
		t.Errorf("batch %+v", batch)
	}
	if got := b.updated(itemID(0)); !got.Equal(seconds(15)) {
		t.Errorf("the challenged record says %v", got)
	}
	b.trace.Reset()
	b.beatAt(16)
	if got := b.ops(); got != "write-at datasync" {
		t.Errorf("the beat after it: %s", got)
	}
}

func TestAFailedFlushGivesTheFileUpAndRenewsStrictlyInTheSameCall(t *testing.T) {
	b := newBeatFixture(t, 3)
	b.beatAt(11)
	b.fault.Inject(faultfs.Rule{Op: vfs.OpDatasync, Base: "*" + beatExt, Err: syscall.EIO})
	batch := b.beatAt(12)
	if b.fault.Injected() != 1 || len(batch.Renewed) != 3 || batch.DirectorySyncs == 0 {
		t.Fatalf("injected %d, batch %+v", b.fault.Injected(), batch)
	}
	for id := range b.held {
		if got := b.updated(id); !got.Equal(seconds(12)) {
			t.Errorf("record says %v", got)
		}
	}
	b.trace.Reset()
	b.beatAt(13)
	if got := b.ops(); got != "write sync rename syncdir" { // a new file, never a second flush of the old one
		t.Errorf("the beat after it: %s", got)
	}
	b.clock.set(22.5)
	b.want(b.claimByOther(itemID(0)), ErrHeld)
}

func TestABatchThatFailsOnBothPathsIsNoSuccess(t *testing.T) {
	b := newBeatFixture(t, 2)
	b.beatAt(11)
	b.fault.Inject(faultfs.Rule{Op: vfs.OpDatasync, Base: "*" + beatExt, Err: syscall.EIO})
	b.fault.Inject(faultfs.Rule{Op: vfs.OpWrite, Base: itemID(0).String() + "*", Err: syscall.ENOSPC})
	b.clock.set(12)
	batch, err := b.holder.HeartbeatMany(bg, b.held)
	b.want(err, syscall.ENOSPC)
	var be *BatchError
	if !errors.As(err, &be) || len(be.Failed) != 1 || !slices.Equal(be.Durable, []ID{itemID(1)}) || batch.Renewed != nil {
		t.Errorf("batch %+v, error %+v", batch, be)
	}
	b.clock.set(20.5) // the promise of 11 holds
	b.want(b.claimByOther(itemID(0)), ErrHeld)
	if batch := b.beatAt(20.6); len(batch.Renewed) != 2 {
		t.Errorf("once the disk is well: %+v", batch)
	}
}

func TestALeaseThatLeavesTheSetLapsesByItsOwnTime(t *testing.T) {
	b := newBeatFixture(t, 2)
	b.beatAt(15)
	dropped := itemID(0)
	tok := b.held[dropped]
	delete(b.held, dropped)
	b.beatAt(19)
	b.clock.set(24.9)
	b.want(b.claimByOther(dropped), ErrHeld) // promised at 15
	b.clock.set(25)
	b.must(b.claimByOther(dropped))
	b.held[dropped] = tok
	if batch := b.beatAt(26); !slices.Equal(batch.Lost, []ID{dropped}) || len(batch.Renewed) != 1 {
		t.Errorf("batch %+v", batch)
	}
}

func TestAlternatingSubsetsKeepEachOther(t *testing.T) {
	b := newBeatFixture(t, 2)
	one := map[ID]Token{itemID(0): b.held[itemID(0)]}
	two := map[ID]Token{itemID(1): b.held[itemID(1)]}
	for i, set := range []map[ID]Token{one, two, one, two} {
		b.clock.set(float64(15 + i))
		batch, err := b.holder.HeartbeatMany(bg, set)
		if b.must(err); len(batch.Renewed) != 1 {
			t.Fatalf("batch %+v", batch)
		}
	}
	b.clock.set(26.9) // one was renewed at 17, two at 18
	b.want(b.claimByOther(itemID(0)), ErrHeld)
	b.clock.set(27.5)
	b.must(b.claimByOther(itemID(0)))
	b.want(b.claimByOther(itemID(1)), ErrHeld)
}

func TestCommitsOfOthersEndALeaseThatBeats(t *testing.T) {
	b := newBeatFixture(t, 2)
	b.beatAt(11)
	id := itemID(0)
	b.must(b.other.BeginCommit(bg, id, b.held[id], payload(`{}`)))
	if batch := b.beatAt(12); len(batch.Renewed) != 2 {
		t.Errorf("committing: %+v", batch)
	}
	_, err := b.other.Complete(bg, id, b.held[id], publishNothing)
	b.must(err)
	if batch := b.beatAt(13); !slices.Equal(batch.Lost, []ID{id}) || len(batch.Renewed) != 1 {
		t.Errorf("done: %+v", batch)
	}
}

func TestOwnCommitsAbandonsAndClaimsNeedNoChallengeFile(t *testing.T) {
	b := newBeatFixture(t, 3)
	b.beatAt(11)
	b.must(b.holder.Abandon(bg, itemID(0), b.held[itemID(0)]))
	b.must(b.holder.BeginCommit(bg, itemID(1), b.held[itemID(1)], payload(`{}`)))
	if batch := b.beatAt(12); !slices.Equal(batch.Lost, []ID{itemID(0)}) || len(batch.Renewed) != 2 {
		t.Errorf("batch %+v", batch)
	}
	if info, err := os.Stat(b.holder.s.challengesName(b.holder.s.session.id)); err != nil || info.Size() != 0 {
		t.Errorf("challenges: %v, %v", info, err)
	}
}

func TestANewSessionTakesOverATokenAndTheOldOneLearnsOfIt(t *testing.T) {
	b := newBeatFixture(t, 1)
	b.beatAt(19)
	b.clock.set(25)
	restarted := b.session()
	batch, err := restarted.HeartbeatMany(bg, b.held)
	if b.must(err); len(batch.Renewed) != 1 {
		t.Fatalf("the record says 10, the old session's beat 19: %+v", batch)
	}
	b.clock.set(35)
	b.must(b.claimByOther(itemID(0))) // challenges the new session only
	b.clock.set(28)
	if batch, err := b.holder.HeartbeatMany(bg, b.held); err != nil || len(batch.Lost) != 1 {
		t.Errorf("the old session still answers for it: %+v, %v", batch, err)
	}
}

func TestTakeOverFencesASessionThatStillBeats(t *testing.T) {
	b := newBeatFixture(t, 2)
	b.beatAt(11)
	_, err := b.other.TakeOver(bg, itemID(0), nil, Holder{Owner: "other"})
	b.must(err)
	if batch := b.beatAt(12); !slices.Equal(batch.Lost, []ID{itemID(0)}) {
		t.Errorf("batch %+v", batch)
	}
}

func TestAListThatOutgrowsItsAreaMovesToANewFile(t *testing.T) {
	b := newBeatFixture(t, firstCapacity)
	b.beatAt(11)
	for i := range 2 {
		id := itemID(1000 + i)
		b.held[id] = b.claim(b.holder, id, "holder")
	}
	if batch := b.beatAt(12); len(batch.Renewed) != firstCapacity+2 {
		t.Errorf("renewed %d", len(batch.Renewed))
	}
	b.clock.set(21.9)
	b.want(b.claimByOther(itemID(1001)), ErrHeld)
	b.want(b.claimByOther(itemID(0)), ErrHeld)
}

func TestTargetGroupsAndClosedSessionsRefuse(t *testing.T) {
	b := newBeatFixture(t, 1)
	opts := b.opts
	opts.Renewals = OneFlush
	if _, err := OpenTargets(filepath.Join(t.TempDir(), "targets"), &opts); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("targets: %v", err)
	}
	b.must(b.holder.Close())
	if _, err := b.holder.HeartbeatMany(bg, b.held); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestSweepingRemovesOnlyEndedSessionsThatNoRecordNames(t *testing.T) {
	b := newBeatFixture(t, 1)
	b.beatAt(11)
	idle := b.session()
	ended := b.session()
	b.must(ended.Close())
	if n, err := b.other.SweepSessions(bg); n != 1 || err != nil {
		t.Errorf("removed %d, %v: want the one that ended", n, err)
	}
	b.must(b.holder.Close()) // ended too, but a record names it
	if n, err := b.other.SweepSessions(bg); n != 0 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	b.clock.set(20.9)
	b.want(b.claimByOther(itemID(0)), ErrHeld)
	b.clock.set(21)
	b.must(b.claimByOther(itemID(0)))
	if n, err := b.other.SweepSessions(bg); n != 1 || err != nil {
		t.Errorf("removed %d, %v: no record names it now", n, err)
	}
	if _, err := os.Stat(idle.s.beatName(idle.s.session.id)); err != nil {
		t.Errorf("the session in use: %v", err)
	}
}

func TestManyClaimantsAndABeatingHolderNeverBothWin(t *testing.T) {
	b := newBeatFixture(t, 8)
	var wg sync.WaitGroup
	taken := make([]ID, 0, 8)
	var mu sync.Mutex
	for w := range 4 {
		wg.Go(func() {
			for i := range 8 {
				tok, err := b.other.TakeOver(bg, itemID(i), nil, Holder{Owner: fmt.Sprint(w)})
				if err == nil && tok.Fence == 2 {
					mu.Lock()
					taken = append(taken, itemID(i))
					mu.Unlock()
				}
			}
		})
	}
	lost := map[ID]bool{}
	for range 50 {
		batch, err := b.holder.HeartbeatMany(bg, b.held)
		b.must(err)
		for _, id := range batch.Lost {
			lost[id] = true
		}
		for _, id := range batch.Renewed {
			if lost[id] {
				t.Errorf("%s came back", id)
			}
		}
	}
	wg.Wait()
	batch, err := b.holder.HeartbeatMany(bg, b.held)
	b.must(err)
	if len(taken) != 8 || len(batch.Lost) != 8 || len(batch.Renewed) != 0 {
		t.Errorf("taken %d, lost %d, still renewed %d", len(taken), len(batch.Lost), len(batch.Renewed))
	}
}
