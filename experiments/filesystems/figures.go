package filesystems

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"shardlease/internal/experiment"
	"shardlease/internal/figures"
	"shardlease/internal/timing"
)

// Figures draws the experiment's figures from the raw files of dir.
func Figures(dir string) ([]figures.Figure, error) {
	runs, err := timing.ReadAll(dir, "*.jsonl")
	if err != nil {
		return nil, err
	}
	m, err := New().Reduce(dir)
	if err != nil {
		return nil, err
	}
	var disks, slow []*timing.Run
	for _, r := range runs {
		if strings.HasPrefix(r.File, "lat") {
			slow = append(slow, r)
		} else {
			disks = append(disks, r)
		}
	}
	gains, err := bars(m, disks, ".gain", []string{"batch", "strict-overlapped", "strict-wholefs", "strict-spare-wholefs", "strict-auto", "one-flush"})
	if err != nil {
		return nil, err
	}
	first, err := figures.Bars(figures.Spec{
		ID: "filesystems-gain", Title: "Speed-up over renewing 64 leases one by one", Width: 980,
		Subtitle: "paired rounds; whiskers: interval of the median; log scale",
		Caption:  "The report's batch gains little where a file sync costs more than a directory sync. Concurrent syncs help ext4 and XFS and hurt btrfs, which is why Auto measures.",
	}, figures.Axis{Name: "scalar time / time", Log: true}, gains...)
	if err != nil {
		return nil, err
	}
	choice, err := auto(m, disks)
	if err != nil {
		return nil, err
	}
	all := []figures.Figure{first, choice}
	if len(slow) > 0 {
		f, err := latency(m, slow)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

func bars(m *experiment.Metrics, runs []*timing.Run, suffix string, systems []string) ([]figures.Group, error) {
	var groups []figures.Group
	for _, r := range runs {
		name := strings.TrimSuffix(r.File, ".jsonl")
		g := figures.Group{Name: name}
		for _, s := range systems {
			v, ok := m.Get(name + "." + timing.MetricName(s) + suffix)
			if !ok {
				return nil, fmt.Errorf("%s: %s was not timed", name, s)
			}
			g.Bars = append(g.Bars, figures.Bar{Name: timing.Label[s], Value: v.Value, Interval: &figures.Interval{Low: v.Low, High: v.High}})
		}
		groups = append(groups, g)
	}
	return groups, nil
}

// auto compares Auto with the fastest strategy on each file system.
func auto(m *experiment.Metrics, runs []*timing.Run) (figures.Figure, error) {
	var rows []figures.ForestRow
	for _, r := range runs {
		name := strings.TrimSuffix(r.File, ".jsonl")
		for _, of := range []struct{ metric, text string }{{".auto.over_best", "the fastest"}, {".auto.over_batch", "the report's batch"}} {
			v, ok := m.Get(name + of.metric)
			if !ok {
				return figures.Figure{}, fmt.Errorf("%s%s is missing", name, of.metric)
			}
			rows = append(rows, figures.ForestRow{Label: fmt.Sprintf("%s: %s / %s", name, cmp.Or(r.Chosen[timing.Automatic], "auto"), of.text), Value: v.Value,
				Interval: &figures.Interval{Low: v.Low, High: v.High}, Band: &figures.Interval{Low: 0.01, High: 1.2}})
		}
	}
	return figures.Forest(figures.Spec{
		ID: "filesystems-auto", Title: "The strategy that Auto chooses, against the others",
		Subtitle: "ratio of times in paired rounds; grey: the band of the claims",
		Caption:  "A short calibration when the table is opened decides; it must never lose to the report's batch.",
	}, figures.Axis{Name: "time of auto / time of the other", Log: true}, rows...)
}

// latency shows how the report's speed-up comes back where syncs are slow.
func latency(m *experiment.Metrics, runs []*timing.Run) (figures.Figure, error) {
	slices.SortFunc(runs, func(a, b *timing.Run) int { return len(a.File) - len(b.File) }) // lat1, lat5, lat20
	systems := []string{"batch", "strict-spare-wholefs", "one-flush"}
	groups, err := bars(m, runs, ".gain", systems)
	if err != nil {
		return figures.Figure{}, err
	}
	for i := range groups {
		for _, c := range New().Spec().Claims {
			if c.Metric == groups[i].Name+".batch.gain" {
				groups[i].Bars[0].Report = c.Report
			}
		}
		groups[i].Name = strings.TrimPrefix(groups[i].Name, "lat") + " ms a sync"
	}
	return figures.Bars(figures.Spec{
		ID: "filesystems-latency", Title: "Speed-up where every sync takes longer", Width: 860,
		Subtitle: "latency injected into each sync; 64 leases in one shard; log scale",
		Caption:  "When file and directory syncs cost the same, the report's batch halves them and gains nearly 2: its 1.94 is a property of such a store. What needs fewer syncs gains more, the slower they are.",
	}, figures.Axis{Name: "scalar time / time", Log: true}, groups...)
}
