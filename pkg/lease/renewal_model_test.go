package lease_test

import "fmt"

// This file checks the one-flush renewal protocol before any of it is trusted: an exhaustive search over all interleavings of
// one holder and two claimants of one record, with a death, a pause, a failed flush, a power cut and a change of the
// holder's set possible at every step. Renewals in renewal.go is the protocol.
//
// Safety, the one property: when the holder was told "renewed" with the instant t, no claim whose clock reading is earlier than
// t+ttl is ever published, before or after, in spite of any crash. (That is exactly what a strict renewal promises.)

const (
	modelTTL   = 2
	modelClock = 4 // the last instant
	never      = -9
)

// defect removes one part of the protocol, to show that the search finds what it is there for.
type defect int

const (
	sound defect = iota
	noSecondLook
	noChallenge
	noCheckAfterFlush
	checkBeforeWrite
	acknowledgeBeforeFlush
	retryFailedFlush
	overwriteNewerSlot
	dropWithoutItsInstant
	newFileBeforeStrictRenewal
)

func (d defect) String() string {
	return [...]string{"sound", "no second look", "no challenge", "no check after the flush", "check before the write",
		"acknowledge before the flush", "retry of a failed flush", "overwrite of the newer slot",
		"drop from the set without its instant", "new file before the strict renewal"}[d]
}

// mRecord is the record of the one lease; fence 1 is the holder's.
type mRecord struct{ fence, updated int8 }

// mBeat is the newest valid slot of the holder's beat file.
type mBeat struct {
	t     int8 // never: no beat
	lists bool // the member list names (id, fence 1)
}

type mHolder struct {
	pc           int8
	t            int8 // clock reading of the beat under way
	looked, seen int8 // size of the challenge file at the last look; as far as dealt with
	beats        int8 // calls left
	broken       bool // a flush failed: renew strictly until that worked once
	out          bool // the lease is not in its set any more
}

type mClaimant struct {
	pc, clock, tries int8
}

type mState struct {
	now                  int8
	recV, recD           mRecord // visible; durable
	beatV, beatD         mBeat
	challenges           int8
	lock                 int8 // -1 free, 0 holder, 1 and 2 claimants
	h                    mHolder
	c                    [2]mClaimant
	cutsLeft, failedLeft int8
	told                 int8 // ghost: latest instant the holder was told "renewed" with
	claimed              int8 // ghost: clock reading of the published claim over fence 1
}

const (
	hIdle int8 = iota
	hWrite
	hFlush
	hLook
	hTell
	hStrictLock
	hStrictWrite
	hStrictBarrier
	hDropWrite
	hDropFlush
	hEarlyLook
	hDead
)

const (
	cIdle int8 = iota
	cFirstLook
	cChallenge
	cSecondLook
	cPublish
	cBarrier
	cDone
)

type mStep struct {
	what string
	to   mState
}

type mModel struct{ d defect }

func (m mModel) start() mState {
	first := mRecord{fence: 1, updated: 0}
	none := mBeat{t: never}
	return mState{
		recV: first, recD: first, beatV: none, beatD: none, lock: -1, h: mHolder{beats: 2},
		c: [2]mClaimant{{tries: 2}, {tries: 2}}, cutsLeft: 1, failedLeft: 1, told: never, claimed: never,
	}
}

func (s mState) violated() bool {
	return s.told != never && s.claimed != never && s.claimed < s.told+modelTTL
}

func (s mState) beatAlive(clock int8) bool {
	return s.beatV.lists && s.beatV.t != never && clock-s.beatV.t < modelTTL
}

// next lists everything that can happen in s.
func (m mModel) next(s mState) []mStep {
	var steps []mStep
	add := func(what string, to mState) { steps = append(steps, mStep{what, to}) }
	if s.now < modelClock {
		t := s
		t.now++
		add("time passes", t)
	}
	m.holder(s, add)
	for i := range s.c {
		m.claimant(s, i, add)
	}
	if s.h.pc != hDead {
		t := s
		t.h = mHolder{pc: hDead}
		t.unlock(0)
		add("holder dies", t)
	}
	for i := range s.c {
		if s.c[i].pc != cIdle && s.c[i].pc != cDone {
			t := s
			t.c[i] = mClaimant{tries: s.c[i].tries}
			t.unlock(int8(i + 1))
			add(fmt.Sprintf("claimant %d dies", i+1), t)
		}
	}
	if s.cutsLeft > 0 {
		m.powerCut(s, add)
	}
	return steps
}

func (s *mState) unlock(who int8) {
	if s.lock == who {
		s.lock = -1
	}
}

// powerCut ends all processes; of each unflushed write, either state may be found.
func (m mModel) powerCut(s mState, add func(string, mState)) {
	for choice := range 4 {
		t := s
		t.cutsLeft--
		t.h = mHolder{pc: hDead}
		t.c = [2]mClaimant{{tries: max(1, s.c[0].tries)}, {tries: max(1, s.c[1].tries)}}
		t.lock, t.challenges = -1, 0
		if choice&1 == 0 {
			t.recV = s.recD
			if t.recV.fence == 1 {
				t.claimed = never // that claim was never acknowledged and is gone
			}
		}
		if choice&2 == 0 {
			t.beatV = s.beatD
			if m.d == overwriteNewerSlot && s.beatV != s.beatD {
				t.beatV = mBeat{t: never} // the only good slot was torn
			}
		}
		t.recD, t.beatD = t.recV, t.beatV
		add(fmt.Sprintf("power cut (record %+v, beat %+v survive)", t.recV, t.beatV), t)
	}
}

// tell acknowledges a renewal with the instant at to the holder.
func (s *mState) tell(at int8) {
	s.told = max(s.told, at)
	s.h.pc = hIdle
	s.h.t = 0
}

// holder is HeartbeatMany of the one-flush backend.
func (m mModel) holder(s mState, add func(string, mState)) {
	t := s
	switch s.h.pc {
	case hIdle:
		if s.h.beats == 0 || s.h.out {
			return
		}
		t.h.beats--
		t.h.t = s.now
		t.h.pc = hWrite
		switch {
		case s.h.broken:
			t.h.pc = hStrictLock
		case m.d == checkBeforeWrite:
			t.h.pc = hEarlyLook
		}
		add("holder reads the clock", t)
		t.h.pc = hStrictLock
		add("holder renews strictly of its own accord", t)
		t = s
		t.h.beats = 0
		t.h.pc = hDropWrite
		add("holder begins to take the lease out of its set", t)
	case hEarlyLook:
		t.h.looked = s.challenges
		t.h.pc = hWrite
		if s.challenges > s.h.seen {
			t.h.pc = hStrictLock
		}
		add("holder looks at its challenges (too early)", t)
	case hWrite:
		t.beatV = mBeat{t: s.h.t, lists: true}
		t.h.pc = hFlush
		if m.d == acknowledgeBeforeFlush {
			t.tell(s.h.t)
			t.h.pc = hFlush
		}
		add("holder writes the beat", t)
	case hFlush:
		m.holderFlush(s, add)
	case hLook:
		t.h.looked = s.challenges
		t.h.pc = hTell
		if s.challenges > s.h.seen {
			t.h.pc = hStrictLock
		}
		add("holder looks at its challenges", t)
	case hTell:
		t.tell(s.h.t)
		add("holder is told renewed", t)
	case hStrictLock, hStrictWrite, hStrictBarrier:
		m.holderStrict(s, add)
	case hDropWrite:
		t.beatV = mBeat{t: s.told, lists: s.told != never} // the list keeps what was promised
		if m.d == dropWithoutItsInstant {
			t.beatV = mBeat{t: s.now}
		}
		t.h.pc = hDropFlush
		add("holder writes a beat in whose set the lease isn't", t)
	case hDropFlush:
		t.beatD = s.beatV
		t.h.out, t.h.pc = true, hIdle
		add("holder flushes that beat", t)
	}
}

func (m mModel) holderFlush(s mState, add func(string, mState)) {
	t := s
	t.beatD = s.beatV
	t.h.pc = hLook
	if m.d == noCheckAfterFlush || m.d == checkBeforeWrite {
		t.h.pc = hTell
	}
	if m.d == acknowledgeBeforeFlush {
		t.h.pc = hLook
	}
	add("holder flushes the beat", t)
	if s.failedLeft > 0 {
		t := s
		t.failedLeft--
		t.h.broken = true
		t.h.pc = hStrictLock
		switch m.d {
		case retryFailedFlush: // the kernel has dropped the page: the next flush succeeds and keeps nothing
			t.h.broken = false
			t.h.pc = hLook
		case newFileBeforeStrictRenewal:
			t.beatV, t.beatD = mBeat{t: never}, mBeat{t: never}
		}
		add("the flush fails", t)
	}
}

// holderStrict renews under the record's lock: after a challenge, after a failed flush, or of its own accord.
func (m mModel) holderStrict(s mState, add func(string, mState)) {
	t := s
	switch s.h.pc {
	case hStrictLock:
		if s.lock != -1 {
			t.h.pc = hIdle // lock timeout: not renewed, and said so
			add("holder's wait for the lock ends", t)
			return
		}
		t.lock = 0
		t.h.pc = hStrictWrite
		add("holder takes the record's lock", t)
	case hStrictWrite:
		if s.recV.fence != 1 {
			t.unlock(0)
			t.h = mHolder{pc: hDead}
			add("holder finds another fence: lost", t)
			return
		}
		t.h.t = s.now
		t.recV.updated = max(s.recV.updated, t.h.t)
		t.h.pc = hStrictBarrier
		add("holder publishes a strict renewal", t)
	case hStrictBarrier:
		t.recD = s.recV
		t.unlock(0)
		t.h.seen = s.h.looked
		if s.h.broken {
			t.h.broken = false
			t.beatV, t.beatD = mBeat{t: never}, mBeat{t: never} // a new file
		}
		t.tell(s.h.t)
		add("holder's barrier is done: told renewed", t)
	}
}

// claimant is Claim of a leased record, whole under the record's lock.
func (m mModel) claimant(s mState, i int, add func(string, mState)) {
	t, me := s, &s.c[i]
	to := &t.c[i]
	name := fmt.Sprintf("claimant %d ", i+1)
	refuse := func(why string) {
		*to = mClaimant{tries: me.tries}
		t.unlock(int8(i + 1))
		add(name+why, t)
	}
	switch me.pc {
	case cIdle:
		if me.tries == 0 || s.lock != -1 {
			return
		}
		t.lock = int8(i + 1)
		*to = mClaimant{pc: cFirstLook, clock: s.now, tries: me.tries - 1}
		add(name+"takes the lock and reads the clock", t)
	case cFirstLook:
		switch {
		case s.recV.fence != 1:
			refuse("finds it claimed")
		case me.clock-s.recV.updated < modelTTL:
			refuse("finds the record alive")
		case s.beatAlive(me.clock):
			refuse("finds the beat alive")
		default:
			to.pc = cChallenge
			add(name+"finds it lapsed", t)
		}
	case cChallenge:
		if m.d != noChallenge {
			t.challenges++
		}
		to.pc = cSecondLook
		if m.d == noSecondLook {
			to.pc = cPublish
		}
		add(name+"appends a challenge", t)
	case cSecondLook:
		if s.beatAlive(me.clock) {
			refuse("finds the beat alive at the second look")
			return
		}
		to.pc = cPublish
		add(name+"looks again: still lapsed", t)
	case cPublish:
		t.recV = mRecord{fence: 2, updated: me.clock}
		t.claimed = me.clock
		to.pc = cBarrier
		add(name+"publishes its record", t)
	case cBarrier:
		t.recD = s.recV
		t.unlock(int8(i + 1))
		to.pc = cDone
		add(name+"is told claimed", t)
	}
}
