package figures

import (
	"math"
	"slices"
)

// Rounds draws every round of an interleaved comparison as a point, with the median of each variant. Panels (one a scenario) share
// the y range. x is the round number.
func Rounds(s Spec, y Axis, panels ...Panel) (Figure, error) {
	for i := range panels {
		panels[i].X = Axis{Name: "round"}
		panels[i].Y = y
		for k := range panels[i].Series {
			panels[i].Series[k].Kind, panels[i].Series[k].Median = Marks, true
		}
	}
	return XY(s, SideBySide, panels...)
}

// RoundSeries makes the points of Rounds of values in the order measured.
func RoundSeries(name, unit string, values []float64) Series {
	s := Series{Name: name, Unit: unit}
	for i, v := range values {
		s.Points = append(s.Points, Point{X: float64(i + 1), Y: v})
	}
	return s
}

// Sample is a named set of raw values.
type Sample struct {
	Name   string
	Values []float64
}

// Distribution draws the empirical distribution function of each sample: at each value, the share of values up to it. Nothing is
// binned or smoothed; of a sample with more than distributionSteps values only every so-manieth step is drawn, which moves no
// step by more than half a percent.
func Distribution(s Spec, value Axis, samples ...Sample) (Figure, error) {
	p := Panel{X: value, Y: Axis{Name: "share of values, %", Min: new(float64), Max: ptr(100.0)}}
	for _, sample := range samples {
		sorted := slices.Clone(sample.Values)
		slices.Sort(sorted)
		series := Series{Name: sample.Name, Kind: Step}
		every := max(len(sorted)/distributionSteps, 1)
		for i, v := range sorted {
			last := i+1 == len(sorted)
			if !last && (sorted[i+1] == v || len(series.Points) > 0 && (i+1)%every != 0) {
				continue
			}
			if len(series.Points) == 0 {
				series.Points = append(series.Points, Point{X: v, Y: 0})
			}
			series.Points = append(series.Points, Point{X: v, Y: 100 * float64(i+1) / float64(len(sorted))})
		}
		p.Series = append(p.Series, series)
	}
	labelAtMedian(p.Series)
	return XY(s, SideBySide, p)
}

const distributionSteps = 400

// labelAtMedian would collide for curves that all end at 100 %, so the labels carry the medians and XY spreads them.
func labelAtMedian(series []Series) {
	for i := range series {
		for _, pt := range series[i].Points {
			if pt.Y >= 50 {
				series[i].Name += "\nmedian " + Digits(pt.X)
				break
			}
		}
	}
}

func ptr[T any](v T) *T { return &v }

// Finite reports whether v can be drawn, for callers that choose to leave a value out and say so.
func Finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
