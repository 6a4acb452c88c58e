package peers

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shardlease/internal/experiment"
)

// rawRun writes a raw file in which each system takes the given milliseconds, with a little noise that is the same for all.
func rawRun(t *testing.T, dir, name string, records, active int, ms map[string]float64) {
	t.Helper()
	var b strings.Builder
	for round := range 30 {
		for s, v := range ms {
			fmt.Fprintf(&b, `{"system":%q,"records":%d,"active_shards":%d,"round":%d,"place":0,"passes":1,"pass_ns":%f}`+"\n",
				s, records, active, round, v*1e6*(1+0.01*float64(round%3)))
		}
	}
	b.WriteString(`{"skipped":"postgresql","reason":"not installed"}` + "\n")
	if err := os.WriteFile(filepath.Join(dir, name), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

func goodRuns(t *testing.T, oneFlush float64) string {
	dir := t.TempDir()
	rawRun(t, dir, "n64k1.jsonl", 64, 1, map[string]float64{
		"scalar": 30, "batch": 18, "one-flush": oneFlush, "one-flush-again": oneFlush, "bbolt": 0.6, "limit-fdatasync": 0.2,
		"strict-wholefs": 6, "strict-spare-wholefs": 2, "strict-spare-wholefs-again": 2, "strict-auto": 2.1,
	})
	rawRun(t, dir, "n10000k64.jsonl", 10000, 64, map[string]float64{"one-flush": oneFlush, "one-flush-again": oneFlush, "limit-fdatasync": 0.3})
	rawTrial(t, dir, shared)
	return dir
}

func rawTrial(t *testing.T, dir string, joins map[string]bool) {
	var b strings.Builder
	for s, yes := range joins {
		fmt.Fprintf(&b, `{"tried":%q,"joins":%t,"keeps":true,"passes":true}`+"\n", s, yes)
	}
	if err := os.WriteFile(filepath.Join(dir, trialFile), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A table that says of a system what it does not do is refuted, and one system too few decides nothing.
func TestTheTrialDecidesTheTable(t *testing.T) {
	dir := goodRuns(t, 0.22)
	other := maps.Clone(shared)
	other["bbolt"] = true
	rawTrial(t, dir, other)
	if got := verdicts(t, dir); got["P9"] != experiment.Fail || got["P10"] != experiment.Pass {
		t.Errorf("bbolt shared: %s, %s", got["P9"], got["P10"])
	}
	delete(other, "bbolt")
	rawTrial(t, dir, other)
	if got := verdicts(t, dir); got["P9"] != experiment.Inconclusive || got["P10"] != experiment.Inconclusive {
		t.Errorf("bbolt absent: %s, %s", got["P9"], got["P10"])
	}
}

func verdicts(t *testing.T, dir string) map[string]experiment.Result {
	t.Helper()
	x := New()
	m, err := x.Reduce(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Warnings) == 0 || !strings.Contains(m.Warnings[0], "postgresql did not run: not installed") {
		t.Errorf("warnings %v", m.Warnings)
	}
	list, err := experiment.Decide(x.Spec(), m, experiment.Suitable)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]experiment.Result{}
	for _, v := range list {
		out[v.Claim] = v.Verdict
	}
	return out
}

func TestClaimsFollowTheRatiosOfOneRun(t *testing.T) {
	for claim, v := range verdicts(t, goodRuns(t, 0.22)) {
		if v != experiment.Pass {
			t.Errorf("%s: %s", claim, v)
		}
	}
}

func TestABeatThatIsAsSlowAsABatchFails(t *testing.T) {
	got := verdicts(t, goodRuns(t, 18))
	for _, claim := range []string{"P1", "P2", "P3", "P4"} {
		if got[claim] != experiment.Fail {
			t.Errorf("%s: %s", claim, got[claim])
		}
	}
}

func TestFiguresDrawWhatWasTimed(t *testing.T) {
	list, err := Figures(goodRuns(t, 0.22))
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || list[0].ID != "peers-64" || list[1].ID != "peers-size" {
		t.Errorf("%d figures", len(list))
	}
}
