package lease

import (
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
)

// rosterSide is one of two holders that live through the same events.
type rosterSide struct {
	*beatFixture
	all map[ID]Token // every token ever issued to the holder, by ID
}

// act does one event and returns what can be seen of it. With a number that is no event it only beats.
func (s *rosterSide) act(event, item int) (seen string) {
	id := itemID(item)
	switch event {
	case 0:
		tok, err := s.holder.Claim(bg, id, nil, Holder{Owner: "holder"})
		if err != nil {
			return "not claimed"
		}
		s.all[id], s.held[id] = tok, tok
	case 1:
		delete(s.held, id)
	case 2:
		if tok, ok := s.all[id]; ok {
			s.held[id] = tok
		}
	case 3:
		tok := s.all[id]
		tok.Nonce[0]++
		s.held[id] = tok
	case 4:
		if s.claimByOther(id) != nil {
			return "not taken"
		}
	case 5:
		if s.holder.Abandon(bg, id, s.all[id]) != nil {
			return "not abandoned"
		}
	case 6:
		if s.holder.BeginCommit(bg, id, s.all[id], payload("{}")) != nil {
			return "no commit"
		}
	case 7:
		s.fault.Inject(faultfs.Rule{Op: vfs.OpDatasync, Base: "*" + beatExt, Err: syscall.EIO})
	}
	return ""
}

// With or without the roster the same leases are renewed and lost, and the file promises the same.
func TestARepeatedSetIsJudgedLikeAnyOther(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var sides [2]*rosterSide
		for i := range sides {
			sides[i] = &rosterSide{newBeatFixture(t, 3), nil}
			sides[i].all = maps.Clone(sides[i].held)
		}
		now := 10.0
		for range rapid.IntRange(1, 15).Draw(rt, "events") {
			event, item := rapid.IntRange(0, 12).Draw(rt, "event"), rapid.IntRange(0, 4).Draw(rt, "item")
			now += rapid.SampledFrom([]float64{0, 0.5, 3, 9.5, 10, -4, -25}).Draw(rt, "seconds")
			now = max(now, 1)
			sides[1].holder.s.session.roster = roster{}
			var seen [2]string
			var batches [2]HeartbeatBatch
			for i, s := range sides {
				s.clock.set(now)
				seen[i] = s.act(event, item)
				var err error
				if batches[i], err = s.holder.HeartbeatMany(bg, s.held); err != nil {
					rt.Fatal(err)
				}
				for _, id := range batches[i].Lost {
					delete(s.held, id)
				}
			}
			a, b := batches[0], batches[1]
			if seen[0] != seen[1] || !slices.Equal(a.Renewed, b.Renewed) || !slices.Equal(a.Lost, b.Lost) || a.DirectorySyncs != b.DirectorySyncs {
				rt.Fatalf("event %d of %d at %v: %q, %+v with the roster; %q, %+v without", event, item, now, seen[0], a, seen[1], b)
			}
			for i := range 5 {
				x, okX := sides[0].holder.s.session.renewedAt(itemID(i), sides[0].all[itemID(i)].Fence)
				y, okY := sides[1].holder.s.session.renewedAt(itemID(i), sides[1].all[itemID(i)].Fence)
				if okX != okY || !x.Equal(y) {
					rt.Fatalf("item %d was promised %v %v with the roster, %v %v without", i, x, okX, y, okY)
				}
			}
		}
	})
}

func TestASetIsRepeatedOnlyWithTheSameTokens(t *testing.T) {
	b := newBeatFixture(t, 3)
	ss := b.holder.s.session
	repeats := func(at float64) bool { return ss.repeats(b.held, seconds(at)) }
	if repeats(10) {
		t.Error("repeated before the first beat")
	}
	b.beatAt(11)
	for at, want := range map[float64]bool{11: true, 20.9: true, 21: false, 1: true, 0.9: false} { // TTL and allowed skew are 10 s
		if got := repeats(at); got != want {
			t.Errorf("at %v: %v", at, got)
		}
	}
	id, tok := itemID(0), b.held[itemID(0)]
	delete(b.held, id)
	if repeats(12) {
		t.Error("repeated without a lease")
	}
	b.held[itemID(9)] = tok
	if repeats(12) {
		t.Error("repeated with another lease in the place of one")
	}
	delete(b.held, itemID(9))
	tok.Nonce[15]++
	b.held[id] = tok
	if repeats(12) {
		t.Error("repeated with another token")
	}
}

func TestAPromiseMadeBetweenBeatsEndsTheRosterUntilTheNextBeat(t *testing.T) {
	b := newBeatFixture(t, 3)
	ss := b.holder.s.session
	b.beatAt(11)
	b.claim(b.holder, itemID(8), "holder") // not in the set
	if ss.repeats(b.held, seconds(11)) {
		t.Error("the roster has outlived a claim")
	}
	b.beatAt(12)
	if !ss.repeats(b.held, seconds(12)) {
		t.Error("no roster after the beat that followed")
	}
	ss.remember(itemID(0), told{tok: b.held[itemID(0)], at: seconds(15), written: seconds(15), ttl: 10 * time.Second})
	b.beatAt(14) // the clock was set back
	if ss.repeats(b.held, seconds(14)) {
		t.Error("the roster covers a promise later than its beat")
	}
}

// Rule 2: a renewal never shortens a lease, nor does one after the clock was set back.
func TestABeatAfterTheClockWasSetBackShortensNoPromise(t *testing.T) {
	b := newBeatFixture(t, 3)
	b.beatAt(17)
	if batch := b.beatAt(12); len(batch.Renewed) != 3 {
		t.Errorf("batch %+v", batch)
	}
	b.clock.set(26.9)
	b.want(b.claimByOther(itemID(0)), ErrHeld)
	b.clock.set(27)
	b.must(b.claimByOther(itemID(0)))
}

func TestWhatACallerDoesWithItsResultChangesNoLaterOne(t *testing.T) {
	b := newBeatFixture(t, 3)
	b.beatAt(11)
	first := b.beatAt(12)
	want := slices.Clone(first.Renewed)
	clear(first.Renewed)
	if got := b.beatAt(13).Renewed; !slices.Equal(got, want) {
		t.Errorf("renewed %v, want %v", got, want)
	}
}
