package diagrams

import (
	"bytes"
	"html"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/lease"
)

const committed = "../../diagrams"

func TestCommittedDiagramsAreThoseOfTheCode(t *testing.T) {
	dir := t.TempDir()
	if err := Draw(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{TraceFile, GroupCommitFile, StatesFile} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(committed, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("diagrams/%s is not what the code gives now; run: go tool mage diagrams", name)
		}
	}
}

func TestEveryTransitionIsDrawn(t *testing.T) {
	svg, err := States(lease.Transitions)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, e := range edges(lease.Transitions) {
		total += len(e.labels)
		for _, l := range e.lines() {
			if !strings.Contains(string(svg), ">"+html.EscapeString(l)+"</text>") {
				t.Errorf("%q is not drawn", l)
			}
		}
	}
	if total != len(lease.Transitions) || strings.Count(string(svg), "marker-end") != len(edges(lease.Transitions)) {
		t.Errorf("%d labels for %d transitions", total, len(lease.Transitions))
	}
}

func TestUnknownStatesAndRoutesAreErrors(t *testing.T) {
	for _, bad := range []lease.Transition{
		{From: lease.Leased, Op: "freeze", To: "frozen"},
		{From: lease.Abandoned, Op: "finish", To: lease.Done},
	} {
		if _, err := States([]lease.Transition{bad}); err == nil {
			t.Errorf("%+v was drawn somewhere", bad)
		}
	}
}

// The drawing's message, checked on the recorded trace itself: barriers per record or per shard, and after a failure too (G4, G5).
func TestRecordedTracesShowWhatTheDrawingSays(t *testing.T) {
	traces, err := Record(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	barriers := func(tr Trace) (list []int) {
		for _, e := range tr.Events {
			if e.Op == vfs.OpSyncDir {
				list = append(list, e.Shard)
			}
		}
		return list
	}
	want := [][]int{{0, 0, 1}, {0, 1}, {0, 1}}
	for i, tr := range traces {
		if got := barriers(tr); !reflect.DeepEqual(got, want[i]) {
			t.Errorf("%s: barriers of shards %v, want %v", tr.Title, got, want[i])
		}
		last := tr.Events[len(tr.Events)-1]
		if tell := map[bool]string{false: acknowledged, true: refused}[i == 2]; last.Text != tell {
			t.Errorf("%s: ends with %+v, want %q", tr.Title, last, tell)
		}
	}
}

func TestDrawingRefusesATraceThatMakesNoSense(t *testing.T) {
	if _, err := GroupCommit(nil); err == nil {
		t.Error("no trace was drawn")
	}
	bad := Trace{Title: "x", Shards: []int{0}, Events: []Event{{Op: vfs.OpUnlock, Record: 1}}}
	if _, err := GroupCommit([]Trace{bad}); err == nil || !strings.Contains(err.Error(), "before it was locked") {
		t.Errorf("an unlock without a lock gave %v", err)
	}
	if _, err := ReadTraces(committed); err != nil {
		t.Error(err)
	}
}
