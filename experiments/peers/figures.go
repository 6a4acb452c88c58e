package peers

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"shardlease/internal/experiment"
	"shardlease/internal/figures"
	"shardlease/internal/timing"
)

// Figures draws the experiment's figures from the raw files of dir.
func Figures(dir string) ([]figures.Figure, error) {
	runs, err := timing.ReadAll(dir, "n*k*.jsonl")
	if err != nil {
		return nil, err
	}
	metrics, err := New().Reduce(dir)
	if err != nil {
		return nil, err
	}
	var all []figures.Figure
	for _, r := range runs {
		if r.Samples[0].Records == 64 && r.Samples[0].Active == 1 {
			f, err := ranking(r, metrics)
			if err != nil {
				return nil, err
			}
			all = append(all, f)
		}
	}
	if f, err := bySize(runs); err != nil {
		return nil, err
	} else if f != nil {
		all = append(all, *f)
	}
	return all, nil
}

// ranking shows all systems with their intervals, fastest first.
func ranking(r *timing.Run, m *experiment.Metrics) (figures.Figure, error) {
	var rows []figures.ForestRow
	for _, s := range r.Systems() {
		if timing.Label[s] == "" {
			continue // the control
		}
		v, ok := m.Get("n64k1." + timing.MetricName(s) + ".ms")
		if !ok {
			return figures.Figure{}, fmt.Errorf("no median of %s", s)
		}
		rows = append(rows, figures.ForestRow{Label: timing.Label[s], Value: v.Value, Interval: &figures.Interval{Low: v.Low, High: v.High}})
	}
	slices.SortFunc(rows, func(a, b figures.ForestRow) int {
		if a.Value < b.Value {
			return -1
		}
		return 1
	})
	return figures.Forest(figures.Spec{
		ID: "peers-64", Title: "Making 64 lease renewals durable",
		Subtitle: fmt.Sprintf("median of %d interleaved rounds with its interval; log scale", len(r.Times(r.Systems()[0]))),
		Caption:  "All systems ran in turn on one file system. What each of them can't do besides is in the table of the report: a database file has one writer process, and only the lease table is open to any process on the directory.",
	}, figures.Axis{Name: "time until all renewals survive a power cut, ms", Log: true}, rows...)
}

// bySize shows the time against the number of leases; nil if there is only one size.
func bySize(runs []*timing.Run) (*figures.Figure, error) {
	fastestAt64 := "" // one of the strategies stands for all, or the picture is full of lines
	for _, r := range runs {
		if r.Samples[0].Records == 64 && r.Samples[0].Active == 1 {
			fastestAt64 = r.Fastest()
		}
	}
	bySystem := map[string]*figures.Series{}
	sizes := map[int]bool{}
	for _, r := range runs {
		n := r.Samples[0].Records
		if sizes[n] {
			continue // another number of shards
		}
		sizes[n] = true
		for _, s := range r.Systems() {
			if timing.Label[s] == "" || s == "limit-no-sync" || strings.HasPrefix(s, timing.Strict) && s != fastestAt64 {
				continue
			}
			m, err := experiment.Median("x", r.Times(s), "ms", r.File)
			if err != nil {
				return nil, err
			}
			if bySystem[s] == nil {
				bySystem[s] = &figures.Series{Name: timing.Label[s], Kind: figures.LineMarks}
			}
			bySystem[s].Points = append(bySystem[s].Points, figures.Point{X: float64(n), Y: m.Value, Interval: &figures.Interval{Low: m.Low, High: m.High}})
		}
	}
	if len(sizes) < 2 {
		return nil, nil
	}
	var series []figures.Series
	for _, s := range slices.Sorted(maps.Keys(bySystem)) {
		slices.SortFunc(bySystem[s].Points, func(a, b figures.Point) int { return int(a.X - b.X) })
		series = append(series, *bySystem[s])
	}
	f, err := figures.XY(figures.Spec{
		ID: "peers-size", Title: "Time against the number of leases", Height: 520,
		Subtitle: "medians with their intervals; both scales logarithmic",
		Caption:  "A beat costs the same for any number of leases in an unchanged set; everything else grows with it.",
	}, figures.SideBySide, figures.Panel{
		X: figures.Axis{Name: "leases renewed", Log: true}, Y: figures.Axis{Name: "time until durable, ms", Log: true}, Series: series,
	})
	return &f, err
}
