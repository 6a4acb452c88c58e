package filesystems

import (
	"fmt"
	"strings"

	"shardlease/internal/experiment"
	"shardlease/internal/timing"
)

// Reduce computes, for each file system and each lat<milliseconds>, what timing.Medians and timing.Ratios give, and over the file
// systems:
//
//	worst.auto.over_best            the largest of <file system>.auto.over_best
//	worst.auto.over_batch           the largest of <file system>.auto.over_batch
//	worst.auto.over_best.control    <file system>.strict.control of that file system
//	worst.auto.over_batch.control   likewise
func (x *FileSystems) Reduce(dir string) (*experiment.Metrics, error) {
	runs, err := timing.ReadAll(dir, "*.jsonl")
	if err != nil {
		return nil, err
	}
	out := &experiment.Metrics{Experiment: "filesystems"}
	worst := map[string]experiment.Metric{}
	for _, r := range runs {
		name := strings.TrimSuffix(r.File, ".jsonl")
		medians, err := r.Medians(name)
		if err != nil {
			return nil, err
		}
		ratios, err := r.Ratios(name)
		if err != nil {
			return nil, err
		}
		out.Metrics = append(append(out.Metrics, medians...), ratios...)
		if strings.HasPrefix(name, "lat") {
			continue
		}
		of := map[string]experiment.Metric{}
		for _, m := range ratios {
			of[strings.TrimPrefix(m.Name, name)] = m
		}
		for _, kind := range []string{".auto.over_best", ".auto.over_batch"} {
			m, ok := of[kind]
			if w, had := worst[kind]; ok && (!had || m.Value > w.Value) {
				worst[kind], worst[kind+".control"] = m, of[".strict.control"]
			}
		}
	}
	for kind, m := range worst {
		m.Warnings = append(m.Warnings, fmt.Sprintf("of %s", strings.TrimSuffix(m.Samples, ".jsonl")))
		m.Name = "worst" + kind
		out.Metrics = append(out.Metrics, m)
	}
	return out, out.Finish()
}
