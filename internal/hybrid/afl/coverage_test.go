package afl

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func drawMap(t *rapid.T) Map {
	raw := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 0, 0, 1, 2, 4, 8, 128}), 0, 64).Draw(t, "map")
	m, err := sparse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMapsSurviveTheirBinaryForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMap(t)
		data, err := m.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var back Map
		if err := back.UnmarshalBinary(data); err != nil || !slices.Equal(m, back) {
			t.Fatalf("%v came back as %v, %v", m, back, err)
		}
	})
}

func TestMalformedMapsAreRefused(t *testing.T) {
	for _, data := range [][]byte{{1}, {0, 1}, {1, 0}, {0x80}, bytes.Repeat([]byte{0xff}, 12), {0xff, 0xff, 0xff, 0x7f, 1}} {
		var m Map
		if err := m.UnmarshalBinary(data); err == nil {
			t.Errorf("% x was read as %v", data, m)
		}
	}
	for _, m := range []Map{{{Edge: 2, Classes: 1}, {Edge: 1, Classes: 1}}, {{Edge: 1, Classes: 1}, {Edge: 1, Classes: 2}}, {{Edge: 1}}} {
		if data, err := m.MarshalBinary(); err == nil {
			t.Errorf("%v was written as % x", m, data)
		}
	}
}

// A copy that is brought up to date at arbitrary moments agrees with the original, and New agrees with a plain model.
func TestDeltasKeepACopyUpToDate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var original, copied Coverage
		model := map[uint32]byte{}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			m := drawMap(t)
			grew := false
			for _, c := range m {
				grew = grew || c.Classes&^model[c.Edge] != 0
				model[c.Edge] |= c.Classes
			}
			before := original.Version()
			if fresh := original.Add(m); (len(fresh) > 0) != grew || (original.Version() > before) != grew {
				t.Fatalf("adding %v: new %v, version %d -> %d, model grew %v", m, fresh, before, original.Version(), grew)
			}
			if rapid.Bool().Draw(t, "update") {
				copied.Apply(original.Since(copied.Version()), original.Version())
			}
		}
		copied.Apply(original.Since(copied.Version()), original.Version())
		if copied.Edges() != len(model) || original.Edges() != len(model) || !slices.Equal(copied.Since(0), original.Since(0)) {
			t.Fatalf("copy %v, original %v, model %v", copied.Since(0), original.Since(0), model)
		}
		if fresh := copied.New(original.Since(0)); len(fresh) != 0 {
			t.Fatalf("the copy finds %v new", fresh)
		}
	})
}
