package lease

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
)

// The directed tests 2 to 7 of the report, with its IDs, times and expectations. Test 1 is in package groupcommit.

// Directed test 2; G3, G4.
func TestHeartbeatManySyncsEachAffectedShardOnce(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	ids := []ID{firstOfShard0, secondOfShard0, onlyOfShard1}
	held := map[ID]Token{}
	for _, id := range ids {
		held[id] = f.claim(table, id, "master")
	}
	f.clock.set(19)
	f.trace.Reset()
	b, err := table.HeartbeatMany(bg, held)
	f.must(err)
	if !slices.Equal(b.Renewed, ids) || len(b.Lost) > 0 || b.DirectorySyncs != 2 {
		t.Errorf("batch is %+v", b)
	}
	if got := f.dirSyncs(); !slices.Equal(got, []string{"000", "001"}) {
		t.Errorf("synced directories %v", got)
	}
	for _, id := range ids {
		if got := f.updated(id); !got.Equal(seconds(19)) {
			t.Errorf("%s updated at %v", id, got)
		}
	}
}

// Directed test 3; G5. Beyond the report, the batch goes on after a failure and says which renewals are durable.
func TestHeartbeatManyFlushesPublishedPrefixAfterLaterFailure(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	held := map[ID]Token{firstOfShard0: f.claim(table, firstOfShard0, "m"), secondOfShard0: f.claim(table, secondOfShard0, "m")}
	f.clock.set(19)
	f.trace.Reset()
	injected := errors.New("injected second-record failure")
	f.fault.Inject(faultfs.Rule{Op: vfs.OpWrite, Base: secondOfShard0.String() + "*", Err: injected})
	b, err := table.HeartbeatMany(bg, held)
	f.want(err, injected)
	var be *BatchError
	if !errors.As(err, &be) || !slices.Equal(be.Durable, []ID{firstOfShard0}) || len(be.Failed) != 1 || !errors.Is(be.Failed[secondOfShard0], injected) {
		t.Errorf("batch error is %+v", be)
	}
	if b.Renewed != nil || b.Lost != nil || b.DirectorySyncs != 0 {
		t.Errorf("a failed batch must be zero: %+v", b)
	}
	if got := f.dirSyncs(); !slices.Equal(got, []string{"000"}) {
		t.Errorf("synced directories %v", got)
	}
	if first, second := f.updated(firstOfShard0), f.updated(secondOfShard0); !first.Equal(seconds(19)) || !second.Equal(seconds(10)) {
		t.Errorf("updated at %v and %v", first, second)
	}
}

// Directed test 4; G6.
func TestHeartbeatManyDirectoryFailureIsNotAcknowledged(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	held := map[ID]Token{firstOfShard0: f.claim(table, firstOfShard0, "m"), secondOfShard0: f.claim(table, secondOfShard0, "m")}
	f.clock.set(19)
	f.trace.Reset()
	barrier := errors.New("directory barrier failed")
	f.fault.Inject(faultfs.Rule{Op: vfs.OpSyncDir, Err: barrier, Sticky: true})
	_, err := table.HeartbeatMany(bg, held)
	f.want(err, barrier, groupcommit.ErrUnknown)
	var be *BatchError
	if !errors.As(err, &be) || !slices.Equal(be.Unknown, []ID{firstOfShard0, secondOfShard0}) || be.Durable != nil || be.Failed != nil {
		t.Errorf("batch error is %+v", be)
	}
	if n := f.fault.Injected(); n != 1 {
		t.Errorf("%d directory syncs were tried, want exactly 1", n)
	}
	f.fault.Clear()
	for id := range held {
		if got := f.updated(id); !got.Equal(seconds(19)) {
			t.Errorf("%s updated at %v", id, got)
		}
	}
}

// Directed test 5; G7.
func TestHeartbeatManyClassifiesStaleTokensWithoutExtraSync(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	held := map[ID]Token{firstOfShard0: f.claim(table, firstOfShard0, "m"), onlyOfShard1: {Fence: 1}} // the right fence, a stale nonce
	f.claim(table, onlyOfShard1, "m")
	before := f.bytes(onlyOfShard1)
	f.clock.set(19)
	f.trace.Reset()
	b, err := table.HeartbeatMany(bg, held)
	f.must(err)
	if !slices.Equal(b.Renewed, []ID{firstOfShard0}) || !slices.Equal(b.Lost, []ID{onlyOfShard1}) || b.DirectorySyncs != 1 {
		t.Errorf("batch is %+v", b)
	}
	if got := f.dirSyncs(); !slices.Equal(got, []string{"000"}) {
		t.Errorf("synced directories %v", got)
	}
	if string(before) != string(f.bytes(onlyOfShard1)) {
		t.Error("the record of the stale token was changed")
	}
}

// Directed test 6; G4, G9. The first-use order of the shards is that of the vectors: 0, 3, 1, 2.
func TestTargetGroupHeartbeatSyncsEachAffectedShardOnce(t *testing.T) {
	f := newFixture(t)
	table := f.openTargets()
	group := []uint64{101, 102, 103, 104, 105, 106, 107, 108}
	tok, err := table.ClaimGroup(bg, group, nil, Holder{Owner: "m"})
	f.must(err)
	f.clock.set(19)
	f.trace.Reset()
	f.must(table.HeartbeatGroup(bg, group, tok))
	if got := f.dirSyncs(); !slices.Equal(got, []string{"000", "003", "001", "002"}) {
		t.Errorf("synced directories %v", got)
	}
	for _, target := range group {
		r, err := table.Lookup(target)
		f.must(err)
		if !r.Updated.Equal(seconds(19)) || r.Token != tok {
			t.Errorf("target %d updated at %v with token %v", target, r.Updated, r.Token)
		}
	}
}

// Directed test 7. A time that is no time is one outside of what a record can hold.
func TestTargetGroupRejectsImpossibleTimeAndCorruptState(t *testing.T) {
	f := newFixture(t)
	table := f.openTargets()
	f.clock.set(-1)
	_, err := table.ClaimGroup(bg, []uint64{101}, nil, Holder{Owner: "a"})
	f.want(err, ErrClock)
	if n := len(f.trace.Events()); n > 0 {
		t.Errorf("%d file accesses before the clock was refused", n)
	}
	f.clock.set(20)
	corrupt := []byte(`{"format":"shardlease-record-v0","token":"corrupt"}`)
	f.plant(TargetID(101), corrupt)
	_, err = table.ClaimGroup(bg, []uint64{101}, nil, Holder{Owner: "b"})
	f.want(err, ErrCorrupt)
	f.want(table.HeartbeatGroup(bg, []uint64{101}, Token{Fence: 1}), ErrCorrupt)
	if string(f.bytes(TargetID(101))) != string(corrupt) {
		t.Error("the corrupt record was overwritten")
	}
}

// Test vectors of the reference.
func TestShardsAndLockOrderFollowTheVectors(t *testing.T) {
	shards := map[ID]int{firstOfShard0: 0, secondOfShard0: 0, onlyOfShard1: 1, TargetID(101): 0, TargetID(102): 3, TargetID(103): 0, TargetID(104): 3,
		TargetID(105): 2, TargetID(106): 1, TargetID(107): 3, TargetID(108): 1, SumID([]byte("f324-heartbeat-child\n")): 2}
	for id, want := range shards {
		if got := id.shard(4); got != want {
			t.Errorf("%s is in shard %d, want %d", id, got, want)
		}
	}
	if got := SumID([]byte("f324-heartbeat-child\n")).String(); got != "1d127fde5c68681f1bfba0c718088ee8b6ee3fde6e9aa6c990783244f1e258b8" {
		t.Errorf("SumID is %s", got)
	}
	s := &store{}
	g, err := s.newGroup([]uint64{101, 102, 103, 104, 105, 106, 107, 108})
	if err != nil {
		t.Fatal(err)
	}
	if want := []uint64{103, 104, 102, 106, 108, 101, 105, 107}; !slices.Equal(g.targets, want) {
		t.Errorf("lock order is %v, want %v", g.targets, want)
	}
	var order []int
	for _, target := range g.targets {
		if s := TargetID(target).shard(4); !slices.Contains(order, s) {
			order = append(order, s)
		}
	}
	if !slices.Equal(order, []int{0, 3, 1, 2}) {
		t.Errorf("first use of the shards is %v", order)
	}
}

// F323: what was claimed survives a failed barrier as a visible record, which nobody was told to hold and which lapses by itself.
func TestClaimSurvivesBarrierFailureAndIsFoundAfterRestart(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	barrier := errors.New("directory barrier failed")
	f.fault.Inject(faultfs.Rule{Op: vfs.OpSyncDir, Err: barrier})
	tok, err := table.Claim(bg, firstOfShard0, payload(`{"n":1}`), Holder{Owner: "a"})
	f.want(err, barrier, groupcommit.ErrUnknown)
	if tok != (Token{}) {
		t.Errorf("a failed claim returned the token %v", tok)
	}
	again := f.open()
	for now, want := range map[float64]int{19: 0, 20: 1} {
		f.clock.set(now)
		expired, err := again.Expired(bg, 0)
		f.must(err)
		if len(expired) != want {
			t.Errorf("%d expired records at %v, want %d", len(expired), now, want)
		}
	}
	f.clock.set(20)
	if tok := f.claim(again, firstOfShard0, "b"); tok.Fence != 2 {
		t.Errorf("the next fence is %d, want it above the one that may exist (GC-4)", tok.Fence)
	}
}

// F312: a failed rename leaves no record and no temp file.
func TestFailedRenameLeavesNoRecordAndNoTempFile(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	injected := errors.New("rename failed")
	f.fault.Inject(faultfs.Rule{Op: vfs.OpRename, Err: injected})
	_, err := table.Claim(bg, firstOfShard0, nil, Holder{})
	f.want(err, injected)
	if errors.Is(err, groupcommit.ErrUnknown) {
		t.Error("a rename that was not done is no unknown outcome")
	}
	left, err := filepath.Glob(filepath.Join(f.root, "0*", "*"))
	f.must(err)
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// F325: what can't be stored is refused before anything is written.
func TestUnserialisablePayloadLeavesNoFile(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	for _, bad := range []string{"", "{", "NaN", `{"a":1} x`} {
		if _, err := table.Claim(bg, firstOfShard0, payload(bad), Holder{}); err == nil {
			t.Errorf("payload %q was accepted", bad)
		}
	}
	if n := len(f.trace.Events()); n > 0 {
		t.Errorf("%d file accesses", n)
	}
}
