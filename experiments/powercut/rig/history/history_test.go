package history

import (
	"encoding/json"
	"testing"

	"shardlease/experiments/powercut/rig/recdisk"
)

func TestOnlyTheAcknowledgedStateAndLaterStartsAreAllowed(t *testing.T) {
	d, err := recdisk.New(recdisk.BlockSize)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.StartLog(recdisk.Faults{})
	claimed, renewed := State{"leased", 1, 1}, State{"leased", 1, 2}
	for _, n := range []Note{
		{N: 1, Sets: map[int]State{7: claimed}}, {N: 1, Acked: true, Sets: map[int]State{7: claimed}},
		{N: 2, Sets: map[int]State{7: renewed}}, {N: 2, Acked: true, Sets: map[int]State{7: renewed}},
	} {
		b, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		d.Mark(string(b))
	}
	r := d.StopLog()
	for pos, want := range []map[State]bool{
		{{}: false, claimed: false}, // nothing has begun: the item isn't known
		{{}: true, claimed: true, renewed: false},
		{{}: false, claimed: true, renewed: false},
		{{}: false, claimed: true, renewed: true},
		{{}: false, claimed: false, renewed: true},
	} {
		items, err := Expect(nil, r, pos)
		if err != nil {
			t.Fatal(err)
		}
		for s, ok := range want {
			a := items[7]
			if got := a != nil && a.Has(s); got != ok {
				t.Errorf("position %d: %v allowed is %v, want %v", pos, s, got, ok)
			}
		}
	}
}

func TestASecondRecordingGoesOnFromWhatTheFirstAllowed(t *testing.T) {
	d, err := recdisk.New(recdisk.BlockSize)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	before := map[int]*Allowed{7: {Acked: State{"leased", 1, 1}, Started: []State{{"leased", 1, 2}}}}
	taken := State{"leased", 2, 3}
	d.StartLog(recdisk.Faults{})
	for _, n := range []Note{{N: 3, Sets: map[int]State{7: taken}}, {N: 3, Acked: true, Sets: map[int]State{7: taken}}} {
		b, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		d.Mark(string(b))
	}
	r := d.StopLog()
	for pos, want := range []bool{true, true, false} { // may the first recording's last start still be found?
		items, err := Expect(before, r, pos)
		if err != nil {
			t.Fatal(err)
		}
		if got := items[7].Has(State{"leased", 1, 2}); got != want {
			t.Errorf("position %d: got %v, want %v", pos, got, want)
		}
	}
	if len(before[7].Started) != 1 {
		t.Error("what was allowed before has changed")
	}
}
