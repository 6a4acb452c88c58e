package peers

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"shardlease/internal/experiment"
	"shardlease/internal/timing"
)

// Reduce computes, for each case n<records>k<shards>:
//
//	<case>.<system>.ms               median time to make all renewals durable
//	<case>.<system>.gain             scalar over the system, paired rounds
//	<case>.one_flush.against_bbolt   bbolt over one-flush
//	<case>.one_flush.over_bare       one-flush over one bare write and fdatasync
//	<case>.control                   one-flush over itself
//
// as far as both systems of a ratio were timed.
func (x *Peers) Reduce(dir string) (*experiment.Metrics, error) {
	runs, err := timing.ReadAll(dir, "n*k*.jsonl")
	if err != nil {
		return nil, err
	}
	out := &experiment.Metrics{Experiment: "peers"}
	for _, r := range runs {
		name := strings.TrimSuffix(r.File, ".jsonl")
		medians, err := r.Medians(name)
		if err != nil {
			return nil, err
		}
		out.Metrics = append(out.Metrics, medians...)
		ratios := [][3]string{
			{".one_flush.against_bbolt", "bbolt", "one-flush"},
			{".one_flush.over_bare", "one-flush", "limit-fdatasync"},
			{".control", "one-flush", "one-flush-again"},
		}
		for _, s := range r.Systems() {
			if s != "scalar" {
				ratios = append(ratios, [3]string{"." + timing.MetricName(s) + ".gain", "scalar", s})
			}
		}
		for _, ratio := range ratios {
			m, err := r.Ratio(name+ratio[0], ratio[1], ratio[2])
			if errors.Is(err, timing.ErrNotTimed) {
				continue
			}
			if err != nil {
				return nil, err
			}
			out.Metrics = append(out.Metrics, m)
		}
		for _, system := range slices.Sorted(maps.Keys(r.Skipped)) {
			out.Warnings = append(out.Warnings, name+": "+system+" did not run: "+r.Skipped[system])
		}
	}
	return out, out.Finish()
}
