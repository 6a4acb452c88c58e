package peers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"shardlease/internal/experiment"
	"shardlease/internal/timing"
)

// Reduce computes, for each case n<records>k<shards>, what timing.Medians and timing.Ratios give, and of the trial:
//
//	trial.as_stated   systems in which a second process could claim beside the first, or could not, as the report's table says
//	trial.recovered   systems in which a killed holder's lease was kept to its end and then passed on
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
	if err := reduceTrial(dir, out); err != nil {
		return nil, err
	}
	return out, out.Finish()
}

// trialFile holds what the bench's trial prints.
const trialFile = "trial.jsonl"

// tried is one line of it; the bench documents the fields.
type tried struct {
	System string `json:"tried"`
	Joins  bool   `json:"joins"`
	Keeps  bool   `json:"keeps"`
	Passes bool   `json:"passes"`
	Why    string `json:"why"`

	Skipped string `json:"skipped"`
	Reason  string `json:"reason"`
}

// shared are the systems that let a second process in; the report's table says the same.
var shared = map[string]bool{"batch": true, "one-flush": true, "bbolt": false, "sqlite": true, "pebble": false, "postgresql": true}

func reduceTrial(dir string, out *experiment.Metrics) error {
	data, err := os.ReadFile(filepath.Join(dir, trialFile))
	if err != nil {
		return err
	}
	var stated, recovered, n int
	var notes []string
	for dec := json.NewDecoder(bytes.NewReader(data)); dec.More(); {
		var t tried
		if err := dec.Decode(&t); err != nil {
			return fmt.Errorf("%s: %w", trialFile, err)
		}
		if t.Skipped != "" {
			notes = append(notes, t.Skipped+" was not tried: "+t.Reason)
			continue
		}
		want, known := shared[t.System]
		if !known {
			return fmt.Errorf("%s: unknown system %q", trialFile, t.System)
		}
		n++
		if t.Joins == want {
			stated++
		}
		if t.Keeps && t.Passes {
			recovered++
		}
		if t.Why != "" {
			notes = append(notes, t.System+": "+t.Why)
		}
	}
	for name, value := range map[string]int{"trial.as_stated": stated, "trial.recovered": recovered} {
		m := experiment.Exact(name, float64(value), "systems", trialFile)
		m.N, m.Warnings = n, notes
		out.Metrics = append(out.Metrics, m)
	}
	return nil
}
