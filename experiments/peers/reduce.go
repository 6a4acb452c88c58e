package peers

import (
	"errors"
	"maps"
	"math"
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
//	<case>.best_strict.gain          scalar over the fastest content strategy
//	<case>.best_strict.against_batch report's batch over the fastest content strategy
//	<case>.auto.over_best            Auto over the fastest content strategy
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
		if best := fastest(r); best != "" {
			ratios = append(ratios, [3]string{".best_strict.gain", "scalar", best}, [3]string{".best_strict.against_batch", "batch", best},
				[3]string{".auto.over_best", auto, best})
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

// The content strategies by the names that the bench gives them.
const (
	strict = "strict-"
	auto   = strict + "auto"
)

// fastest is the content strategy with the smallest median, Auto excepted; "" if none was timed.
func fastest(r *timing.Run) string {
	best, least := "", math.Inf(1)
	for _, s := range r.Systems() {
		if !strings.HasPrefix(s, strict) || s == auto {
			continue
		}
		times := slices.Sorted(slices.Values(r.Times(s)))
		if m := times[len(times)/2]; m < least {
			best, least = s, m
		}
	}
	return best
}
