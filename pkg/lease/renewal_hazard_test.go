package lease

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
)

// What a session's files and clocks may do wrong.

func TestWhatCantBeReadIsNeverTakenForLapsed(t *testing.T) {
	b := newBeatFixture(t, 1)
	b.beatAt(19)
	b.clock.set(25)
	r, err := b.other.Lookup(itemID(0))
	b.must(err)
	name := b.other.s.beatName(r.session)
	good, err := os.ReadFile(name)
	b.must(err)

	b.other.s.fs.FS = faultfs.New(vfs.OS)
	b.other.s.fs.FS.(*faultfs.FS).Inject(faultfs.Rule{Op: vfs.OpOpen, Base: "*" + beatExt, Err: syscall.EIO})
	err = b.claimByOther(itemID(0))
	if b.want(err, syscall.EIO); errors.Is(err, ErrHeld) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an I/O error became %v", err)
	}
	both := slices.Clone(good)
	both[10]++
	both[slotSpacing+10]++
	b.must(os.WriteFile(name, both, 0o666))
	b.want(b.claimByOther(itemID(0)), errUnreadableBeats)
	if _, err := b.other.Expired(bg, 0); !errors.Is(err, errUnreadableBeats) {
		t.Errorf("Expired: %v", err)
	}
	b.must(os.Remove(name)) // no file: the record's own time, 10, decides
	b.must(b.claimByOther(itemID(0)))
}

func TestAClaimantThatCantChallengeRefuses(t *testing.T) {
	b := newBeatFixture(t, 1)
	b.clock.set(25)
	faulty := faultfs.New(vfs.OS)
	b.other.s.fs.FS = faulty
	faulty.Inject(faultfs.Rule{Op: vfs.OpWrite, Base: "*" + challengesExt, Err: syscall.ENOSPC})
	b.want(b.claimByOther(itemID(0)), syscall.ENOSPC)
	b.must(b.claimByOther(itemID(0))) // the fault is over
}

func TestOnlyTheListedFenceIsAlive(t *testing.T) {
	b := newBeatFixture(t, 1)
	b.beatAt(19)
	r, err := b.other.Lookup(itemID(0))
	b.must(err)
	found, err := readBeats(vfs.OS, b.other.s.beatName(r.session), r.session)
	b.must(err)
	if at, ok := found.last(r.ID, r.Token.Fence); !ok || !at.Equal(seconds(19)) {
		t.Errorf("listed at %v, %v", at, ok)
	}
	if _, ok := found.last(r.ID, r.Token.Fence+1); ok {
		t.Error("another fence is listed")
	}
	if _, ok := found.last(itemID(7), r.Token.Fence); ok {
		t.Error("another ID is listed")
	}
}

func TestABeatFurtherInTheFutureThanTheAllowedSkewIsNotBelieved(t *testing.T) {
	b := newBeatFixture(t, 1)
	b.beatAt(19)
	b.clock.set(8.5) // the record says 10, the beat 19, the skew is 10: the beat would be believed from 9 on
	b.other.s.opts.MaxSkew = time.Second
	b.must(b.claimByOther(itemID(0)))
}

func TestTheBeatCountsFromBeforeItWasWritten(t *testing.T) {
	b := newBeatFixture(t, 1)
	b.beatAt(11)
	b.fault.Inject(faultfs.Rule{Op: vfs.OpDatasync, Hook: func(*vfs.Call) { b.clock.set(21) }}) // a flush of 9 seconds
	b.clock.set(12)
	if _, err := b.holder.HeartbeatMany(bg, b.held); err != nil {
		t.Fatal(err)
	}
	b.clock.set(22)
	b.must(b.claimByOther(itemID(0))) // 12 + 10
}

func TestARenewalThatOutlastsItsTTLIsNotReported(t *testing.T) {
	b := newBeatFixture(t, 1)
	b.beatAt(11)
	b.fault.Inject(faultfs.Rule{Op: vfs.OpDatasync, Hook: func(*vfs.Call) { b.clock.set(23) }})
	b.clock.set(12)
	batch, err := b.holder.HeartbeatMany(bg, b.held)
	if b.must(err); len(batch.Lost) != 1 || len(batch.Renewed) != 0 {
		t.Errorf("batch %+v", batch)
	}
}
