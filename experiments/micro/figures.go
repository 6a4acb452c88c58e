package micro

import (
	"fmt"
	"slices"

	"shardlease/experiments/micro/raw"
	"shardlease/internal/experiment"
	"shardlease/internal/figures"
)

// Figures draws the experiment's figures from the raw files of dir.
func Figures(dir string) ([]figures.Figure, error) {
	s, err := load(dir)
	if err != nil {
		return nil, err
	}
	metrics, err := New().Reduce(dir)
	if err != nil {
		return nil, err
	}
	var all []figures.Figure
	for _, draw := range []func(*experiment.Metrics) (figures.Figure, error){
		s.syncsFigure, s.roundsFigure, s.mediansFigure, s.modelFigure, s.latencyFigure,
	} {
		f, err := draw(metrics)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

func shards(n int) string {
	if n == 1 {
		return "1 active shard"
	}
	return fmt.Sprintf("%d active shards", n)
}

// measured finds a metric with its interval.
func measured(m *experiment.Metrics, name string) (float64, *figures.Interval, error) {
	v, ok := m.Get(name)
	if !ok {
		return 0, nil, fmt.Errorf("metric %s is missing", name)
	}
	return v.Value, &figures.Interval{Low: v.Low, High: v.High}, nil
}

func (s *samples) bars(m *experiment.Metrics, suffix string, interval, report bool) ([]figures.Group, error) {
	var groups []figures.Group
	for _, active := range s.Active {
		g := figures.Group{Name: shards(active)}
		for _, side := range []string{raw.Scalar, raw.Batch} {
			v, i, err := measured(m, word[active]+"."+side+suffix)
			if err != nil {
				return nil, err
			}
			if !interval {
				i = nil
			}
			bar := figures.Bar{Name: side, Value: v, Interval: i}
			if report {
				r, err := New().Spec().Reported(word[active] + "." + side + suffix)
				if err != nil {
					return nil, err
				}
				bar.Report = &r
			}
			g.Bars = append(g.Bars, bar)
		}
		groups = append(groups, g)
	}
	return groups, nil
}

func (s *samples) syncsFigure(m *experiment.Metrics) (figures.Figure, error) {
	groups, err := s.bars(m, ".dir_syncs", false, true)
	if err != nil {
		return figures.Figure{}, err
	}
	return figures.Bars(figures.Spec{
		ID: "micro-syncs", Title: fmt.Sprintf("Directory syncs per renewal of %d leases", s.Records),
		Subtitle: "counted in every pass by the traced file system; log scale",
		Caption:  "A batch syncs each touched shard once, however many records lie in it. The counts are exact and equal in all passes.",
	}, figures.Axis{Name: "directory syncs per pass", Log: true}, groups...)
}

func (s *samples) roundsFigure(*experiment.Metrics) (figures.Figure, error) {
	var panels []figures.Panel
	for _, active := range s.Active {
		scalar, batch := s.pairs(active, raw.AB)
		panels = append(panels, figures.Panel{Title: shards(active), Series: []figures.Series{
			figures.RoundSeries(raw.Scalar, " ms", scalar), figures.RoundSeries(raw.Batch, " ms", batch),
		}})
	}
	return figures.Rounds(figures.Spec{
		ID: "micro-rounds", Title: fmt.Sprintf("Renewing %d leases: every round", s.Records),
		Subtitle: fmt.Sprintf("%d interleaved rounds, order flipped at random; dashed: median", s.Rounds),
		Caption:  "Both sides of a round ran straight after each other, so that drift of the machine meets both. Nothing was dropped as an outlier.",
	}, figures.Axis{Name: "time per pass, ms (log scale)", Log: true}, panels...)
}

func (s *samples) mediansFigure(m *experiment.Metrics) (figures.Figure, error) {
	groups, err := s.bars(m, ".ms", true, false)
	if err != nil {
		return figures.Figure{}, err
	}
	return figures.Bars(figures.Spec{
		ID: "micro-medians", Title: fmt.Sprintf("Renewing %d leases: median time per pass", s.Records),
		Subtitle: fmt.Sprintf("%d rounds; whiskers: interval of the median, 95 %% or more", s.Rounds),
		Caption:  "Times belong to this machine and its disk. The whiskers hold the median of each side alone; the speed-up is estimated from pairs and is sharper.",
	}, figures.Axis{Name: "time per pass, ms"}, groups...)
}

// modelFigure draws the model's speed-up over K for the medians of F, R and D over all traced scalar passes.
func (s *samples) modelFigure(m *experiment.Metrics) (figures.Figure, error) {
	var rest, dir []float64
	for _, p := range s.passes {
		if p.Side == raw.Scalar {
			d := float64(p.Dir) / float64(p.DirSyncs)
			rest, dir = append(rest, float64(p.Wall)/float64(p.Records)-d), append(dir, d)
		}
	}
	if len(dir) == 0 {
		return figures.Figure{}, fmt.Errorf("no traced scalar pass to fit the model to")
	}
	fr, d, n := middle(rest), middle(dir), float64(s.Records)
	model := figures.Series{Name: "model", Kind: figures.Line, Color: figures.Grey}
	for k := 1; k <= min(s.Records, s.Shards); k++ {
		model.Points = append(model.Points, figures.Point{X: float64(k), Y: n * (fr + d) / (n*fr + float64(k)*d)})
	}
	ours := figures.Series{Name: "measured here", Color: figures.Blue}
	theirs := figures.Series{Name: "the report", Report: true}
	for _, active := range s.Active {
		v, i, err := measured(m, word[active]+".speedup")
		if err != nil {
			return figures.Figure{}, err
		}
		ours.Points = append(ours.Points, figures.Point{X: float64(active), Y: v, Interval: i})
		r, err := New().Spec().Reported(word[active] + ".speedup")
		if err != nil {
			return figures.Figure{}, err
		}
		theirs.Points = append(theirs.Points, figures.Point{X: float64(active), Y: r})
	}
	return figures.XY(figures.Spec{
		ID: "micro-model", Title: "Speed-up of the batch: cost model against measurement",
		Subtitle: fmt.Sprintf("line: N(F+R+D) / (N(F+R)+KD) with F+R = %s ms, D = %s ms, N = %d", figures.Digits(fr/1e6), figures.Digits(d/1e6), s.Records),
		Caption:  "The line is drawn from syncs timed one by one, the points from whole passes: they are independent measurements. The report's points belong to its disk, where a directory sync cost as much as all the rest of a renewal.",
	}, figures.SideBySide, figures.Panel{
		X: figures.Axis{Name: "shards touched by the batch, K", Log: true}, Y: figures.Axis{Name: "speed-up, scalar time / batch time", Zero: true},
		Series: []figures.Series{model, ours, theirs},
	})
}

func (s *samples) latencyFigure(*experiment.Metrics) (figures.Figure, error) {
	var list []figures.Sample
	for _, kind := range []string{"file", "dir"} {
		for _, side := range []string{raw.Scalar, raw.Batch} {
			sample := figures.Sample{Name: map[string]string{"file": "file sync", "dir": "directory sync"}[kind] + ", " + side}
			for _, y := range s.syncs {
				if y.Kind == kind && y.Side == side {
					sample.Values = append(sample.Values, float64(y.Took)/1e6)
				}
			}
			list = append(list, sample)
		}
	}
	return figures.Distribution(figures.Spec{
		ID: "micro-latency", Title: "Latency of single syncs", Subtitle: "traced passes of both distributions; every value, log scale",
		Caption: "The model takes a file sync and a directory sync to cost the same on both sides; the curves show how far that holds.",
	}, figures.Axis{Name: "latency of one sync, ms", Log: true}, list...)
}

func middle(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
