package experiment

import (
	"fmt"
	"math"
	"strings"
)

// Result is one of three; there is no fourth for "nearly".
type Result string

const (
	Pass         Result = "PASS"         // the whole interval lies in the band
	Fail         Result = "FAIL"         // the whole interval lies outside
	Inconclusive Result = "INCONCLUSIVE" // it straddles an end, or the measurement can't decide
)

// Suitability is the verdict on the host. It never turns anything into a PASS.
type Suitability string

const (
	Suitable   Suitability = "SUITABLE"
	Noisy      Suitability = "NOISY"      // a FAIL of a timed claim becomes INCONCLUSIVE
	Unsuitable Suitability = "UNSUITABLE" // no timed claim is decided
)

// Verdict is one element of verdicts.json.
type Verdict struct {
	Claim      string   `json:"claim"`
	Experiment string   `json:"experiment"`
	Sentence   string   `json:"sentence"`
	Verdict    Result   `json:"verdict"`
	Value      *float64 `json:"value"`
	Low        *float64 `json:"low"`
	High       *float64 `json:"high"`
	Unit       string   `json:"unit"`
	Report     *float64 `json:"report"`
	Band       Limits   `json:"band"`
	Reason     string   `json:"reason"` // in words, with what to do when INCONCLUSIVE
}

// Limits are the ends of a band; null is open.
type Limits struct {
	Low  *float64 `json:"low"`
	High *float64 `json:"high"`
}

// Decide gives the verdict of each decided claim, in the order of the file. A metric that is missing is an error, not a
// verdict: nothing was measured, so nothing may be said.
func Decide(spec *Spec, m *Metrics, host Suitability) ([]Verdict, error) {
	var out []Verdict
	for _, c := range spec.Claims {
		if !c.Decided() {
			continue
		}
		metric, ok := m.Get(c.Metric)
		if !ok {
			return nil, fmt.Errorf("claim %s: experiment %s computed no metric %s", c.ID, spec.Name, c.Metric)
		}
		v := blank(spec.Name, c)
		v.Value, v.Low, v.High = &metric.Value, &metric.Low, &metric.High
		v.Verdict, v.Reason = compare(*c.Band, metric)
		if c.Control != "" {
			control, ok := m.Get(c.Control)
			if !ok {
				return nil, fmt.Errorf("claim %s: experiment %s computed no control %s", c.ID, spec.Name, c.Control)
			}
			timed(&v, c, metric, control, host)
		}
		if metric.N < c.MinN {
			v.Verdict = Inconclusive
			v.Reason = fmt.Sprintf("%d samples are too few to decide (%d needed)", metric.N, c.MinN)
			if len(metric.Warnings) > 0 {
				v.Reason += ": " + strings.Join(metric.Warnings, "; ")
			}
		}
		out = append(out, v)
	}
	return out, nil
}

// Broken gives INCONCLUSIVE to each decided claim of an experiment that did not finish.
func Broken(spec *Spec, cause error) []Verdict {
	var out []Verdict
	for _, c := range spec.Claims {
		if c.Decided() {
			v := blank(spec.Name, c)
			v.Verdict, v.Reason = Inconclusive, "the experiment did not finish: "+cause.Error()
			out = append(out, v)
		}
	}
	return out
}

func blank(experiment string, c Claim) Verdict {
	v := Verdict{Claim: c.ID, Experiment: experiment, Sentence: c.Sentence, Unit: c.Unit, Report: c.Report}
	low, high := c.Band.Limits()
	if finite(low) {
		v.Band.Low = &low
	}
	if finite(high) {
		v.Band.High = &high
	}
	return v
}

func compare(b Band, m Metric) (Result, string) {
	low, high := b.Limits()
	switch {
	case low <= m.Low && m.High <= high:
		return Pass, "the whole interval lies in the band"
	case m.High < low || high < m.Low:
		return Fail, "the whole interval lies outside the band"
	}
	return Inconclusive, "the interval straddles an end of the band: repeat with more rounds (-rounds=60)"
}

// timed applies the A/A control and the host to a claim about time. The control compares the code with itself, so all
// of its interval must lie nearer to 1 than a third of what the claim tells apart: the effect, or, where the effect itself is
// "no difference", the width of a closed band, or the distance of the value from the one end of an open one. (Demanding that
// the interval contains 1 as well would fail one run in twenty on a perfect machine.)
func timed(v *Verdict, c Claim, m, control Metric, host Suitability) {
	apart := math.Abs(math.Log(m.Value))
	switch low, high := c.Band.Limits(); {
	case finite(low) && low > 0 && finite(high):
		apart = max(apart, math.Log(high/low))
	case finite(low) && low > 0:
		apart = max(apart, math.Abs(math.Log(m.Value/low)))
	case finite(high):
		apart = max(apart, math.Abs(math.Log(m.Value/high)))
	}
	worst := max(math.Abs(math.Log(control.Low)), math.Abs(math.Log(control.High)))
	switch {
	case host == Unsuitable:
		v.Verdict, v.Reason = Inconclusive, "this host is unsuitable for timing: see the doctor target"
	case worst > apart/3:
		v.Verdict = Inconclusive
		v.Reason = fmt.Sprintf("the A/A control is too wide (%.3f .. %.3f) for a value of %.3f and this band: stop other work and repeat",
			control.Low, control.High, m.Value)
	case v.Verdict == Fail && host == Noisy:
		v.Verdict, v.Reason = Inconclusive, "outside the band, but the host is noisy: stop other work and repeat"
	}
}

// Worst is the verdict of a whole list: FAIL before INCONCLUSIVE before PASS. An empty list decides nothing.
func Worst(list []Verdict) Result {
	worst := Pass
	if len(list) == 0 {
		return Inconclusive
	}
	for _, v := range list {
		switch {
		case v.Verdict == Fail:
			return Fail
		case v.Verdict == Inconclusive:
			worst = Inconclusive
		}
	}
	return worst
}
