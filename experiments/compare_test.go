package experiments

import (
	"slices"
	"testing"

	"shardlease/internal/experiment"
)

func TestComparisonMarksWhatChangedAndWhatOnlyOneRunHas(t *testing.T) {
	verdict := func(claim string, result experiment.Result) experiment.Verdict {
		return experiment.Verdict{Experiment: "e", Claim: claim, Verdict: result}
	}
	a := []experiment.Verdict{verdict("M1", experiment.Pass), verdict("M2", experiment.Pass), verdict("M3", experiment.Inconclusive)}
	b := []experiment.Verdict{verdict("M2", experiment.Fail), verdict("M1", experiment.Pass), verdict("M4", experiment.Pass)}
	rows, changed := comparison(a, b)
	var got []string
	for _, row := range rows[1:] {
		got = append(got, row[0]+" "+row[3]+" "+row[6]+" "+row[7])
	}
	want := []string{"M1 PASS PASS ", "M2 PASS FAIL CHANGED", "M3 INCONCLUSIVE - only in A", "M4 - PASS only in B"}
	if changed != 1 || !slices.Equal(got, want) {
		t.Errorf("%d changed, rows %q", changed, got)
	}
}
