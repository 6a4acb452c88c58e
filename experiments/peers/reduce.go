package peers

import (
	"maps"
	"slices"
	"strings"

	"shardlease/internal/experiment"
	"shardlease/internal/timing"
)

// Reduce computes, for each case n<records>k<shards>, what timing.Medians and timing.Ratios give.
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
		ratios, err := r.Ratios(name)
		if err != nil {
			return nil, err
		}
		out.Metrics = append(out.Metrics, ratios...)
		for _, system := range slices.Sorted(maps.Keys(r.Skipped)) {
			out.Warnings = append(out.Warnings, name+": "+system+" did not run: "+r.Skipped[system])
		}
	}
	return out, out.Finish()
}
