package lease

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
)

// group4 has one member in each of 4 shards.
var group4 = []uint64{103, 104, 105, 106}

var group8 = []uint64{101, 102, 103, 104, 105, 106, 107, 108}

func (f *fixture) claimGroup(t *TargetTable, targets []uint64, owner string) Token {
	f.Helper()
	tok, err := t.ClaimGroup(bg, targets, payload(`{"n":1}`), Holder{Owner: owner})
	f.must(err)
	return tok
}

// files maps the path of each record and temp file to its bytes.
func (f *fixture) files(targets []uint64) map[uint64][]byte {
	f.Helper()
	files := map[uint64][]byte{}
	for _, target := range targets {
		data, err := os.ReadFile(f.file(TargetID(target)))
		if err == nil {
			files[target] = data
		} else if !errors.Is(err, fs.ErrNotExist) {
			f.Fatal(err)
		}
	}
	return files
}

func (f *fixture) unchanged(before map[uint64][]byte, targets []uint64) {
	f.Helper()
	after := f.files(targets)
	for _, target := range targets {
		if !bytes.Equal(before[target], after[target]) {
			f.Errorf("target %d was changed from\n%sto\n%s", target, before[target], after[target])
		}
	}
}

func TestAGroupIsOneToSixtyFourDistinctTargets(t *testing.T) {
	f := newFixture(t)
	table := f.openTargets()
	many := make([]uint64, MaxGroup+1)
	for i := range many {
		many[i] = uint64(1000 + i)
	}
	for _, bad := range [][]uint64{nil, {}, {0}, {101, 0}, {101, 102, 101}, many} {
		f.want(second(table.ClaimGroup(bg, bad, nil, Holder{})), fs.ErrInvalid)
		f.want(table.HeartbeatGroup(bg, bad, Token{Fence: 1}), fs.ErrInvalid)
		f.want(table.ReleaseGroup(bg, bad, Token{Fence: 1}), fs.ErrInvalid)
	}
	f.want(second(table.ClaimGroup(bg, group8, payload("{"), Holder{})), fs.ErrInvalid)
	if n := len(f.trace.Events()); n > 0 {
		t.Errorf("%d accesses", n)
	}
	most := many[:MaxGroup]
	tok := f.claimGroup(table, most, "a")
	slices.Reverse(most) // any order
	f.must(table.HeartbeatGroup(bg, most, tok))
	f.must(table.ReleaseGroup(bg, most, tok))
}

// F325: claim, renewal and release sync each touched shard once; fences never restart, not even by a release.
func TestGroupOperationsSyncEachShardOnce(t *testing.T) {
	f := newFixture(t)
	table := f.openTargets()
	var last Token
	for round := range 3 {
		f.trace.Reset()
		tok := f.claimGroup(table, group8, "a")
		claimed := f.dirSyncs()
		f.trace.Reset()
		f.must(table.ReleaseGroup(bg, group8, tok))
		f.must(f.traceCheck())
		want := []string{"000", "003", "001", "002"}
		if released := f.dirSyncs(); !slices.Equal(claimed, want) || !slices.Equal(released, want) {
			t.Errorf("claim synced %v, release %v", claimed, released)
		}
		if tok.Fence != last.Fence+1 {
			t.Errorf("round %d: fence %d after %d", round, tok.Fence, last.Fence)
		}
		last = tok
		f.must(table.ReleaseGroup(bg, group8, tok)) // repeated
		f.want(table.HeartbeatGroup(bg, group8, tok), ErrLost)
	}
	other := f.claimGroup(table, []uint64{101, 999}, "b") // one with history, one without
	if other.Fence != last.Fence+1 {
		t.Errorf("fence %d", other.Fence)
	}
	r, err := table.Lookup(101)
	f.must(err)
	if r.Attempts != 4 || r.Steals != 0 || r.PreviousOwner != "a" || r.Target != 101 || !slices.Equal(r.Targets, []uint64{999, 101}) && !slices.Equal(r.Targets, []uint64{101, 999}) {
		t.Errorf("%+v", r)
	}
}

func (f *fixture) traceCheck() error {
	f.trace.Mark("acknowledged")
	return f.trace.Check("acknowledged")
}

// One active member keeps the whole group from being claimed, and nothing is written.
func TestAnOverlappingGroupIsHeld(t *testing.T) {
	f := newFixture(t)
	table := f.openTargets()
	tok := f.claimGroup(table, []uint64{101, 102}, "a")
	before := f.files(group8)
	f.trace.Reset()
	f.want(second(table.ClaimGroup(bg, []uint64{102, 103, 104}, nil, Holder{})), ErrHeld)
	if f.unchanged(before, group8); f.writes() > 0 {
		t.Error("a refused claim wrote something")
	}
	f.want(table.HeartbeatGroup(bg, []uint64{101}, tok), fs.ErrInvalid) // a part of the group would get its own expiry (G9)
	f.want(table.HeartbeatGroup(bg, []uint64{101, 102, 103}, tok), ErrLost)
	f.want(table.ReleaseGroup(bg, []uint64{101}, tok), fs.ErrInvalid)
	f.clock.set(19.9)
	f.want(second(table.ClaimGroup(bg, []uint64{102}, nil, Holder{})), ErrHeld)
	f.clock.set(20)
	f.want(table.HeartbeatGroup(bg, []uint64{101, 102}, tok), ErrLost)
	taken := f.claimGroup(table, []uint64{102, 103}, "b")
	f.want(table.ReleaseGroup(bg, []uint64{101, 102}, tok), ErrLost)
	f.must(table.HeartbeatGroup(bg, []uint64{102, 103}, taken))
}

// F325: a foreign token of the last member changes no byte of any.
func TestReleaseWithAForeignLastTokenChangesNoByte(t *testing.T) {
	f := newFixture(t)
	table := f.openTargets()
	tok := f.claimGroup(table, group8, "a")
	s := table.s
	last := TargetID(107)
	r, _, err := s.read(last, nil)
	f.must(err)
	r.Token.Nonce[0] ^= 1
	f.must(writeAll(f.file(last), appendRecord(nil, &r)))
	before := f.files(group8)
	f.trace.Reset()
	f.want(table.ReleaseGroup(bg, group8, tok), ErrLost)
	f.want(table.HeartbeatGroup(bg, group8, tok), ErrLost)
	if f.unchanged(before, group8); f.writes() > 0 {
		t.Error("something was written")
	}
}

// F312, F325: whichever write or barrier of a group operation fails, the old bytes are back before the locks are let go, and the error
// surfaces. Each operation is failed once; then once more done in spite of its error.
func TestAGroupThatFailsIsRolledBackExactly(t *testing.T) {
	ops := map[string]func(*TargetTable, Token) error{
		"claim":     func(t *TargetTable, _ Token) error { return second(t.ClaimGroup(bg, group4, nil, Holder{Owner: "b"})) },
		"heartbeat": func(t *TargetTable, tok Token) error { return t.HeartbeatGroup(bg, group4, tok) },
		"release":   func(t *TargetTable, tok Token) error { return t.ReleaseGroup(bg, group4, tok) },
	}
	for name, op := range ops {
		for _, failed := range []vfs.Op{vfs.OpWrite, vfs.OpSync, vfs.OpRename, vfs.OpSyncDir} {
			for _, after := range []bool{false, true} {
				for _, nth := range []int{1, 2, 4} {
					f := newFixture(t)
					table := f.openTargets()
					tok := f.claimGroup(table, group4[:2], "a")
					if name == "claim" { // two members with a record, two without
						f.must(table.ReleaseGroup(bg, group4[:2], tok))
					} else {
						f.must(table.ReleaseGroup(bg, group4[:2], tok))
						tok = f.claimGroup(table, group4, "a")
					}
					f.clock.set(15)
					before := f.files(group4)
					f.fault.Inject(faultfs.Rule{Op: failed, Nth: nth, Err: syscall.EIO, After: after})
					f.trace.Reset()
					err := op(table, tok)
					f.want(err, syscall.EIO)
					if errors.Is(err, ErrLost) || f.fault.Injected() != 1 {
						t.Errorf("%s, %s %d: %v", name, failed, nth, err)
					}
					f.unchanged(before, group4)
					f.must(f.traceCheck()) // each rename, those of the roll-back too, has its barrier
					f.fault.Clear()
					f.must(op(table, tok))
				}
			}
		}
	}
}

// F325: a failed barrier of a claim costs one more barrier for each shard, not more. (All are tried, so K+K calls instead of the report's K+1.)
func TestRollBackCostsOneMoreBarrierPerShard(t *testing.T) {
	f := newFixture(t)
	table := f.openTargets()
	f.trace.Reset()
	f.fault.Inject(faultfs.Rule{Op: vfs.OpSyncDir, Err: syscall.EIO})
	_, err := table.ClaimGroup(bg, group8, nil, Holder{})
	f.want(err, syscall.EIO, groupcommit.ErrUnknown)
	if n := len(f.dirSyncs()) + f.fault.Injected(); n != 8 {
		t.Errorf("%d barriers were tried, want 4 and 4", n)
	}
	if left := f.files(group8); len(left) > 0 {
		t.Errorf("%d records are left", len(left))
	}
}

// F312: after a failed renewal the group keeps its old common expiry.
func TestAFailedGroupRenewalKeepsTheOldExpiry(t *testing.T) {
	f := newFixture(t)
	table := f.openTargets()
	tok := f.claimGroup(table, []uint64{101, 102}, "a")
	f.clock.set(19)
	f.fault.Inject(faultfs.Rule{Op: vfs.OpWrite, Base: TargetID(101).String() + "*", Err: syscall.EIO}) // the second in lock order
	f.want(table.HeartbeatGroup(bg, []uint64{101, 102}, tok), syscall.EIO)
	for _, target := range []uint64{101, 102} {
		r, err := table.Lookup(target)
		f.must(err)
		if !r.Updated.Equal(seconds(10)) {
			t.Errorf("target %d updated at %v", target, r.Updated)
		}
	}
	if st := table.Stats(); st.Failures != 1 || st.Batches != 0 {
		t.Errorf("%d failures, %d batches", st.Failures, st.Batches)
	}
	f.clock.set(20)
	f.claimGroup(table, []uint64{101, 102}, "b")
}

// A process that dies at any operation of a group operation (all later ones fail, so that it can't roll back) leaves the group whole in its
// old state, whole in its new state, or free; never partly held. checkAfterCrash tells which by what the next holder finds.
func TestAGroupCutShortAnywhereIsRolledBackOrForward(t *testing.T) {
	for _, o := range []struct {
		name string
		do   func(*TargetTable, Token) error
		held bool // the group is held before
	}{
		{"claim", func(t *TargetTable, _ Token) error { return second(t.ClaimGroup(bg, group4, nil, Holder{Owner: "b"})) }, false},
		{"heartbeat", func(t *TargetTable, tok Token) error { return t.HeartbeatGroup(bg, group4, tok) }, true},
		{"release", func(t *TargetTable, tok Token) error { return t.ReleaseGroup(bg, group4, tok) }, true},
	} {
		for nth := 1; ; nth++ {
			f := newFixture(t)
			table := f.openTargets()
			tok := f.claimGroup(table, group4, "a")
			if !o.held {
				f.must(table.ReleaseGroup(bg, group4, tok))
			}
			f.clock.set(15)
			f.fault.Inject(faultfs.Rule{Nth: nth, Sticky: true, Err: syscall.EIO, Match: noUnlock})
			err := o.do(table, tok)
			injected := f.fault.Injected()
			f.fault.Clear()
			if injected == 0 {
				f.must(err)
				break
			}
			f.want(err, syscall.EIO)
			f.checkAfterCrash(o.name, nth, tok, o.held)
		}
	}
}

func (f *fixture) checkAfterCrash(name string, nth int, tok Token, held bool) {
	f.Helper()
	again := f.openTargets()
	written := 0 // members with what the operation wrote
	for _, target := range group4 {
		r, err := again.Lookup(target)
		f.must(err)
		switch name {
		case "claim":
			if r.Token != tok {
				written++
			}
		case "heartbeat":
			if r.Updated.Equal(seconds(15)) {
				written++
			}
		case "release":
			if r.Status == Abandoned {
				written++
			}
		}
	}
	_, err := again.ClaimGroup(bg, []uint64{105, 108}, nil, Holder{Owner: "c"})
	heldNow := errors.Is(err, ErrHeld)
	if err != nil && !heldNow {
		f.Fatal(err)
	}
	want := map[string]bool{
		"claim":     written == len(group4), // rolled back unless complete: then a dead holder has it until it lapses
		"heartbeat": true,                   // the earliest expiry of its members is the group's
		"release":   written == 0,           // rolled forward
	}[name]
	if heldNow != want {
		f.Errorf("%s cut short at operation %d with %d of 4 written: held is %t", name, nth, written, heldNow)
	}
	if name == "heartbeat" && written < len(group4) {
		f.clock.set(20)
		f.want(again.HeartbeatGroup(bg, group4, tok), ErrLost)
		f.must(second(again.ClaimGroup(bg, group4, nil, Holder{Owner: "c"})))
	}
	if !heldNow && held {
		f.want(again.HeartbeatGroup(bg, group4, tok), ErrLost)
	}
}

// A member that can't be read is not free, whoever asks.
func TestAnUnreadableSiblingIsNoReasonToTakeAGroup(t *testing.T) {
	f := newFixture(t)
	table := f.openTargets()
	f.claimGroup(table, []uint64{101, 102}, "a")
	f.fault.Inject(faultfs.Rule{Op: vfs.OpOpen, Base: TargetID(102).String() + ".json", Err: syscall.EIO, Sticky: true})
	_, err := table.ClaimGroup(bg, []uint64{101}, nil, Holder{})
	f.want(err, syscall.EIO)
	f.fault.Clear()
	f.plant(TargetID(102), []byte("{}"))
	f.want(second(table.ClaimGroup(bg, []uint64{101}, nil, Holder{})), ErrHeld)
	f.clock.set(20)
	f.must(second(table.ClaimGroup(bg, []uint64{101}, nil, Holder{})))
}

// Overlapping groups in all orders neither deadlock nor are held twice.
func TestConcurrentOverlappingGroupsHaveOneHolderPerTarget(t *testing.T) {
	f := newFixture(t)
	f.opts.LockTimeout = time.Minute
	table := f.openTargets()
	var mu sync.Mutex
	holder := map[uint64]int{}
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for i := range 5 {
				mine := []uint64{uint64(101 + (w+i)%4), uint64(101 + (w+i+1)%4)}
				tok, err := table.ClaimGroup(bg, mine, nil, Holder{Worker: w})
				if errors.Is(err, ErrHeld) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, target := range mine {
					if holder[target] != 0 {
						t.Errorf("target %d is held by %d and %d", target, holder[target]-1, w)
					}
					holder[target] = w + 1
				}
				mu.Unlock()
				mu.Lock()
				for _, target := range mine {
					holder[target] = 0
				}
				mu.Unlock()
				if err := table.ReleaseGroup(bg, mine, tok); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
