package afl

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func names(inputs []Input) (names []string) {
	for _, in := range inputs {
		names = append(names, filepath.Base(in.Path))
	}
	return names
}

func TestScanFindsEachContentOnceAndOnlyQueueEntries(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	write(t, filepath.Join(first, "id:000000,orig:a"), "one")
	write(t, filepath.Join(first, "id:000001,src:000000,op:havoc,rep:2,+cov"), "two")
	write(t, filepath.Join(first, "id:000002,sync:symcc,src:000004"), "one")
	write(t, filepath.Join(first, "id:000003,empty"), "")
	write(t, filepath.Join(first, ".tmp"), "three")
	write(t, filepath.Join(first, "id:000004,long"), strings.Repeat("x", MaxInput+1))
	write(t, filepath.Join(second, "id:000000,src:000000,op:symcc"), "two")
	if err := os.Mkdir(filepath.Join(first, "id:000005"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := NewScanner(first, second)
	got, err := s.Scan()
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"id:000000,orig:a", "id:000001,src:000000,op:havoc,rep:2,+cov"}; !slices.Equal(names(got), want) {
		t.Fatalf("found %q, want %q", names(got), want)
	}
	if got[0].Sum != sha256.Sum256([]byte("one")) || got[0].Origin != "orig" || got[1].Origin != "havoc" || got[1].Size != 3 {
		t.Errorf("found %+v", got)
	}
	if again, err := s.Scan(); err != nil || len(again) != 0 {
		t.Errorf("second scan found %q, %v", names(again), err)
	}
}

// AFL++ trims an entry by rewriting it under the same name.
func TestScanReadsARewrittenEntryAgain(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "id:000000")
	write(t, name, "long content")
	s := NewScanner(dir)
	if got, err := s.Scan(); err != nil || len(got) != 1 {
		t.Fatalf("%v %v", got, err)
	}
	write(t, name, "short")
	if got, err := s.Scan(); err != nil || len(got) != 1 || got[0].Sum != sha256.Sum256([]byte("short")) {
		t.Errorf("after trimming: %v %v", got, err)
	}
}

func TestScanSkipsAFileThatVanishesAndReportsAMissingQueue(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "id:000000"), "good")
	if err := os.Symlink(filepath.Join(dir, "gone"), filepath.Join(dir, "id:000001")); err != nil {
		t.Fatal(err)
	}
	s := NewScanner(dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "id:000000")); err != nil {
		t.Fatal(err)
	}
	if _, isNew, _ := s.look(dir, entries[0]); isNew {
		t.Error("a file that vanished after it was listed was found")
	}
	if got, err := s.Scan(); err != nil || len(got) != 0 {
		t.Errorf("vanished file: %v, %v", got, err)
	}
	write(t, filepath.Join(dir, "id:000002"), "later")
	s = NewScanner(filepath.Join(dir, "missing"), dir)
	got, err := s.Scan()
	if err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("a missing queue is not reported: %v", err)
	}
	if len(got) != 1 {
		t.Errorf("one bad directory hides the other: %v", got)
	}
}

func TestScoreFollowsTheMarksOfAName(t *testing.T) {
	now := time.Now()
	in := func(name string) Input { return Input{Path: "/q/" + name, Size: 10, Modified: now} }
	order := []Input{
		in("id:000001,+cov,+rare"), in("id:000001,src:0,op:symcc,+cov"), in("id:000001,+cov"), in("id:000001,+rare"),
		in("id:000001,sync:symcc"), in("id:000001"),
		{Path: "/q/id:000001", Size: 1 << 20, Modified: now}, {Path: "/q/id:000001", Size: 1 << 20, Modified: now.Add(-time.Hour)},
	}
	for i := 1; i < len(order); i++ {
		if a, b := Score(order[i-1], now, 0), Score(order[i], now, 0); a <= b {
			t.Errorf("%v scores %v, not above %v with %v", order[i-1], a, order[i], b)
		}
	}
	yield := Yield{}
	yield.Add("havoc", true)
	yield.Add("havoc", false)
	yield.Add("splice", false)
	if yield.Rate("havoc") != 0.5 || yield.Rate("splice") != 0 || yield.Rate("new") != 0 {
		t.Errorf("rates %v %v %v", yield.Rate("havoc"), yield.Rate("splice"), yield.Rate("new"))
	}
	if gain := Score(order[5], now, 1) - Score(order[5], now, 0); gain != 30 {
		t.Errorf("a yield of 1 gives %v points, want 30", gain)
	}
}

func TestTopIsThePrefixOfTheFullOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOf(rapid.Int64Range(0, 5)).Draw(t, "sizes")
		inputs := make([]Input, len(sizes))
		for i, size := range sizes {
			inputs[i] = Input{Size: size, Sum: sha256.Sum256([]byte{byte(i)})}
		}
		score := func(in Input) float64 { return float64(in.Size) }
		all := Top(inputs, len(inputs), score)
		limit := rapid.IntRange(0, len(inputs)).Draw(t, "limit")
		if got := Top(inputs, limit, score); !slices.Equal(got, all[:limit]) {
			t.Fatalf("top %d is %v, full order %v", limit, got, all)
		}
		if !slices.IsSortedFunc(all, func(a, b Input) int { return int(b.Size - a.Size) }) {
			t.Fatalf("not sorted: %v", all)
		}
	})
}
