package groupcommit

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

func TestTheMemoryForSparesIsBounded(t *testing.T) {
	var s spares
	for i := range maxKnown + 100 {
		s.put(fmt.Sprint(i), pair{live: mark{stamp: uint64(i), size: 512}})
	}
	if len(s.known) != maxKnown {
		t.Errorf("%d records, want %d", len(s.known), maxKnown)
	}
	last := fmt.Sprint(maxKnown + 99)
	if p := s.take(last); p.live.stamp != maxKnown+99 {
		t.Errorf("the last one is not known: %+v", p)
	}
	if p := s.take(last); p != (pair{}) {
		t.Errorf("known twice: %+v", p)
	}
}

// A stamp says which content it is, whatever the content, and no other file has one by chance.
func TestStampsNameContents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 0, 2000).Draw(t, "data")
		size := rapid.IntRange(0, 4000).Draw(t, "size")
		padded, m := pad(nil, data, size)
		if markOf(padded) != m || m.size != len(padded) || m.size < size || !bytes.HasPrefix(padded, data) {
			t.Fatalf("%+v of %d bytes, read as %+v", m, len(padded), markOf(padded))
		}
		if len(data)+stampLen > size && len(padded)-len(data) > MaxPadding {
			t.Fatalf("%d bytes of padding", len(padded)-len(data))
		}
		if again, other := pad(nil, data, size); other == m || bytes.Equal(again, padded) {
			t.Fatal("the same stamp twice")
		}
		cut := rapid.IntRange(0, len(padded)-1).Draw(t, "cut")
		if markOf(padded[:cut]) == m || markOf(append(padded, ' ')) == m {
			t.Fatal("a shorter or longer file has the same mark")
		}
	})
	for _, none := range []string{"", "\n", "record\n", string(make([]byte, 100))} {
		if markOf([]byte(none)) != (mark{}) {
			t.Errorf("%q has a mark", none)
		}
	}
}
