package figures

import (
	"math"
	"testing"
)

// noisy is a fixed, uneven row of values around a centre, the same on every machine.
func noisy(n int, centre, width float64, phase int) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = centre + width*(float64((i*i*7919+phase*104729)%1000)/500-1)
	}
	return v
}

// demos has one figure of each kind, shaped like the experiments' data.
func demos(t testing.TB) []Figure {
	t.Helper()
	var all []Figure
	add := func(f Figure, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	add(Rounds(Spec{ID: "rounds", Title: "Renewing 64 leases: every round", Subtitle: "30 interleaved rounds, order flipped; dashed: median", Caption: "Each point is one round."},
		Axis{Name: "time per batch, ms", Zero: true},
		Panel{Title: "1 shard", Series: []Series{RoundSeries("scalar", " ms", noisy(30, 28, 3, 1)), RoundSeries("batch", " ms", noisy(30, 20, 2, 2))}},
		Panel{Title: "8 shards", Series: []Series{RoundSeries("scalar", " ms", noisy(30, 28.5, 3, 3)), RoundSeries("batch", " ms", noisy(30, 21, 2, 4))}}))
	add(Bars(Spec{ID: "medians", Title: "Renewing 64 leases: median time per batch", Subtitle: "30 rounds; whiskers: 95 % interval of the median"},
		Axis{Name: "time per batch, ms"},
		Group{"1 shard", []Bar{{"scalar", 28.1, &Interval{27.2, 29.4}, nil}, {"batch", 20.3, &Interval{19.9, 20.9}, nil}}},
		Group{"8 shards", []Bar{{"scalar", 28.4, &Interval{27.7, 29.1}, nil}, {"batch", 21.2, &Interval{20.5, 21.9}, nil}}}))
	add(Bars(Spec{ID: "syncs", Title: "Directory syncs for 64 renewals", Subtitle: "counted by the traced file system; log scale"},
		Axis{Name: "directory syncs per batch", Log: true},
		Group{"1 shard", []Bar{{"scalar", 64, nil, ptr(64.0)}, {"batch", 1, nil, ptr(1.0)}}},
		Group{"8 shards", []Bar{{"scalar", 64, nil, ptr(64.0)}, {"batch", 8, nil, ptr(8.0)}}}))
	model := Series{Name: "model", Kind: Line}
	for k := 1.0; k <= 64; k *= 2 {
		model.Points = append(model.Points, Point{X: k, Y: 28 / (18 + 10*k/64)})
	}
	add(XY(Spec{ID: "model", Title: "Cost model against measurement", Subtitle: "line: N(F+R+D) / (N(F+R)+KD); points: median with 95 % interval"}, SideBySide,
		Panel{X: Axis{Name: "shards touched, K", Log: true}, Y: Axis{Name: "speed-up, scalar / batch", Zero: true},
			Series: []Series{model, {Name: "the report", Report: true, Points: []Point{{1, 1.943, nil}, {8, 1.951, nil}}}, {Name: "measured", Kind: Marks, Points: []Point{
				{1, 1.52, &Interval{1.45, 1.6}}, {8, 1.49, &Interval{1.42, 1.53}}, {64, 1.01, &Interval{0.97, 1.05}}}}}}))
	add(Forest(Spec{ID: "claims", Title: "Claims: ours divided by the report's value", Subtitle: "dots with 95 % interval"}, Axis{Name: "ratio to the report's value", Log: true},
		ForestRow{"sync reduction, 1 shard", 1, nil, ptr(1.0), &Interval{1, 1.0001}, "PASS"},
		ForestRow{"speed-up, 1 shard", 0.75, &Interval{0.72, 0.79}, ptr(1.0), &Interval{0.52, math.Inf(1)}, "PASS"},
		ForestRow{"speed-up, 8 shards", 0.55, &Interval{0.49, 0.59}, ptr(1.0), &Interval{0.52, math.Inf(1)}, "INCONCLUSIVE"}))
	steps := func(name string, rate float64) Series {
		s := Series{Name: name, Kind: Step}
		for i := 0; i < 20; i++ {
			s.Points = append(s.Points, Point{X: float64(i) / 3, Y: math.Floor(float64(i) * rate)})
		}
		return s
	}
	add(XY(Spec{ID: "timeline", Title: "Heartbeats of the campaign", Subtitle: "8 processes, 2 masters, 6 workers; cumulative"}, Stacked,
		Panel{Title: "master 0", X: Axis{Name: "time since start, s", Zero: true}, Y: Axis{Name: "count", Zero: true}, Series: []Series{steps("renewals", 3), steps("directory syncs", 1.6)}},
		Panel{Title: "master 1", X: Axis{Name: "time since start, s", Zero: true}, Y: Axis{Name: "count", Zero: true}, Series: []Series{steps("renewals", 2.4), steps("directory syncs", 1.9)}},
		Panel{Title: "workers", X: Axis{Name: "time since start, s", Zero: true}, Y: Axis{Name: "busy workers", Zero: true}, Series: []Series{{Name: "busy", Kind: Step, Points: []Point{{0, 0, nil}, {0.2, 6, nil}, {5, 3, nil}, {6, 0, nil}}}}}))
	add(Lanes(Spec{ID: "lifecycle", Title: "Life of each lease", Subtitle: "bars: state; ticks: durable renewals"}, Axis{Name: "time since start, s", Zero: true}, "renewal",
		Lane{"1d127f", []Span{{0.1, 1.4, "leased"}, {1.4, 1.5, "committing"}}, []float64{0.4, 0.73, 1.06}},
		Lane{"9e8a2f", []Span{{0.1, 1.5, "leased"}, {1.5, 1.58, "committing"}}, []float64{0.4, 0.73, 1.06, 1.4}},
		Lane{"767d15", []Span{{1.5, 2.8, "leased"}, {2.8, 2.9, "committing"}}, []float64{1.73, 2.06, 2.4}}))
	add(Distribution(Spec{ID: "latency", Title: "Latency of a durable renewal", Subtitle: "every value, no binning"}, Axis{Name: "latency, ms", Log: true},
		Sample{"scalar", noisy(300, 0.45, 0.2, 1)}, Sample{"batch", noisy(300, 0.31, 0.15, 3)}))
	return all
}
