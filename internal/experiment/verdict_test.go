package experiment

import (
	"strings"
	"testing"
)

func number(x float64) *float64 { return &x }

func decideOne(t *testing.T, c Claim, host Suitability, metrics ...Metric) Verdict {
	t.Helper()
	c.ID, c.Status = "M1", Checked
	got, err := Decide(&Spec{Name: "x", Claims: []Claim{c}}, &Metrics{Metrics: metrics}, host)
	if err != nil {
		t.Fatal(err)
	}
	return got[0]
}

func TestVerdictFollowsTheWholeInterval(t *testing.T) {
	band := &Band{Low: number(1), High: number(2)}
	for _, tc := range []struct {
		low, value, high float64
		want             Result
	}{
		{1, 1.5, 2, Pass}, {1.1, 1.2, 1.3, Pass},
		{0.9, 1.5, 1.6, Inconclusive}, {1.5, 1.8, 2.1, Inconclusive}, {0.5, 1.5, 3, Inconclusive},
		{0.1, 0.2, 0.3, Fail}, {2.1, 2.2, 2.3, Fail},
	} {
		v := decideOne(t, Claim{Metric: "m", Band: band}, Suitable, Metric{Name: "m", Value: tc.value, Low: tc.low, High: tc.high})
		if v.Verdict != tc.want {
			t.Errorf("[%v, %v] gave %s, want %s", tc.low, tc.high, v.Verdict, tc.want)
		}
	}
}

func TestExactCountPassesOnlyWhenEqual(t *testing.T) {
	for value, want := range map[float64]Result{63: Fail, 64: Pass, 65: Fail} {
		if v := decideOne(t, Claim{Metric: "m", Band: &Band{Exact: number(64)}}, Noisy, Exact("m", value, "", "f")); v.Verdict != want {
			t.Errorf("%v gave %s", value, v.Verdict)
		}
	}
}

var speedup = Claim{Metric: "m", Band: &Band{Low: number(1)}, Control: "aa"}

// The A/A comparison put in the place of the measurement must never pass: nothing was sped up.
func TestControlSwappedInForTheBatchDoesNotPass(t *testing.T) {
	aa := Metric{Value: 1.001, Low: 0.996, High: 1.005}
	m, control := aa, aa
	m.Name, control.Name = "m", "aa"
	if v := decideOne(t, speedup, Suitable, m, control); v.Verdict != Inconclusive {
		t.Errorf("verdict %s", v.Verdict)
	}
	m.Low = 1.0005 // a lucky interval above 1 is still no effect next to the control
	if v := decideOne(t, speedup, Suitable, m, control); v.Verdict != Inconclusive {
		t.Errorf("verdict %s of a lucky interval", v.Verdict)
	}
}

func TestWideControlForcesInconclusive(t *testing.T) {
	m := Metric{Name: "m", Value: 1.9, Low: 1.8, High: 2}
	if v := decideOne(t, speedup, Suitable, m, Metric{Name: "aa", Value: 1, Low: 0.99, High: 1.02}); v.Verdict != Pass {
		t.Errorf("narrow control gave %s: %s", v.Verdict, v.Reason)
	}
	v := decideOne(t, speedup, Suitable, m, Metric{Name: "aa", Value: 1, Low: 0.7, High: 1.3})
	if v.Verdict != Inconclusive || !strings.Contains(v.Reason, "control") {
		t.Errorf("wide control gave %s: %s", v.Verdict, v.Reason)
	}
}

// "At most half as much again" tells 1 and 1.5 apart, whatever lies between; a control that can't is too wide.
func TestControlOfAnOpenBandIsComparedWithTheDistanceToItsEnd(t *testing.T) {
	bound := Claim{Metric: "m", Band: &Band{High: number(1.5)}, Control: "aa"}
	for _, tc := range []struct {
		value, width float64
		want         Result
	}{{1.02, 0.06, Pass}, {1.02, 0.2, Inconclusive}, {1.4, 0.06, Pass}, {1.4, 0.2, Inconclusive}} {
		m := Metric{Name: "m", Value: tc.value, Low: tc.value - 0.04, High: tc.value + 0.04}
		v := decideOne(t, bound, Suitable, m, Metric{Name: "aa", Value: 1, Low: 1 - tc.width, High: 1 + tc.width})
		if v.Verdict != tc.want {
			t.Errorf("%v with a control of +-%v gave %s: %s", tc.value, tc.width, v.Verdict, v.Reason)
		}
	}
}

func TestHostTurnsTimedFailIntoInconclusiveAndNothingIntoPass(t *testing.T) {
	aa := Metric{Name: "aa", Value: 1, Low: 0.99, High: 1.01}
	slow := Metric{Name: "m", Value: 0.5, Low: 0.45, High: 0.55}
	fast := Metric{Name: "m", Value: 2, Low: 1.9, High: 2.1}
	for _, tc := range []struct {
		m    Metric
		host Suitability
		want Result
	}{
		{slow, Suitable, Fail}, {slow, Noisy, Inconclusive}, {slow, Unsuitable, Inconclusive},
		{fast, Suitable, Pass}, {fast, Noisy, Pass}, {fast, Unsuitable, Inconclusive},
	} {
		if v := decideOne(t, speedup, tc.host, tc.m, aa); v.Verdict != tc.want {
			t.Errorf("%v on a %s host gave %s, want %s", tc.m.Value, tc.host, v.Verdict, tc.want)
		}
	}
}

func TestTooFewSamplesDecideNothing(t *testing.T) {
	c := Claim{Metric: "m", Band: &Band{Low: number(1)}, MinN: 20}
	if v := decideOne(t, c, Suitable, Metric{Name: "m", Value: 2, Low: 1.9, High: 2.1, N: 7}); v.Verdict != Inconclusive {
		t.Errorf("7 samples gave %s", v.Verdict)
	}
}

func TestMissingMetricIsAnErrorAndNoVerdict(t *testing.T) {
	spec := &Spec{Name: "x", Claims: []Claim{{ID: "M1", Status: Checked, Metric: "m", Band: &Band{Low: number(1)}}}}
	if got, err := Decide(spec, &Metrics{}, Suitable); err == nil || got != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestWorstOfNothingIsNotPass(t *testing.T) {
	if Worst(nil) == Pass {
		t.Error("no verdicts at all counted as PASS")
	}
	if got := Worst([]Verdict{{Verdict: Inconclusive}, {Verdict: Fail}, {Verdict: Pass}}); got != Fail {
		t.Errorf("worst is %s", got)
	}
}
