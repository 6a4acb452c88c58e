// Package timing reads what the peers bench prints and turns it into metrics. Experiments that run the bench on different file
// systems or sizes share it.
package timing

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"shardlease/internal/experiment"
)

// Sample is one timing of one system in one round; the bench documents the fields.
type Sample struct {
	System  string  `json:"system"`
	Records int     `json:"records"`
	Active  int     `json:"active_shards"`
	Round   int     `json:"round"`
	Place   int     `json:"place"`
	Passes  int     `json:"passes"`
	PassNS  float64 `json:"pass_ns"`
}

// Run is one run of the bench: all systems interleaved, with the same records.
type Run struct {
	File    string
	Samples []Sample
	Skipped map[string]string // system -> reason
}

// Read reads one file of the bench's output.
func Read(dir, file string) (*Run, error) {
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil, err
	}
	r := &Run{File: file, Skipped: map[string]string{}}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		var line struct {
			Sample
			Skipped string `json:"skipped"`
			Reason  string `json:"reason"`
		}
		dec := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&line); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
		if line.Skipped != "" {
			r.Skipped[line.Skipped] = line.Reason
			continue
		}
		if line.PassNS <= 0 || line.System == "" {
			return nil, fmt.Errorf("%s:%d: not a timing: %s", file, n, lines.Text())
		}
		r.Samples = append(r.Samples, line.Sample)
	}
	return r, lines.Err()
}

// ReadAll reads the files of dir that match the pattern, in the order of their names.
func ReadAll(dir, pattern string) ([]*Run, error) {
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no %s in the raw files: %w", pattern, fs.ErrNotExist)
	}
	slices.Sort(names)
	var runs []*Run
	for _, n := range names {
		r, err := Read(dir, filepath.Base(n))
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// Systems lists the systems that were timed, in the order of their names.
func (r *Run) Systems() []string {
	var names []string
	for _, s := range r.Samples {
		if !slices.Contains(names, s.System) {
			names = append(names, s.System)
		}
	}
	slices.Sort(names)
	return names
}

// Times are the milliseconds of a system by round; nil if it was not timed.
func (r *Run) Times(system string) []float64 {
	var own []Sample
	for _, s := range r.Samples {
		if s.System == system {
			own = append(own, s)
		}
	}
	slices.SortFunc(own, func(a, b Sample) int { return a.Round - b.Round })
	var ms []float64
	for _, s := range own {
		ms = append(ms, s.PassNS/1e6)
	}
	return ms
}

// MetricName makes a system's name fit for a metric.
func MetricName(system string) string { return strings.ReplaceAll(system, "-", "_") }

// Medians gives <prefix>.<system>.ms for every system of the run.
func (r *Run) Medians(prefix string) ([]experiment.Metric, error) {
	var out []experiment.Metric
	for _, s := range r.Systems() {
		m, err := experiment.Median(prefix+"."+MetricName(s)+".ms", r.Times(s), "ms", r.File)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// ErrNotTimed says that a ratio can't be formed because one of its systems did not run here.
var ErrNotTimed = errors.New("was not timed")

// Ratio gives the time of a over that of b, paired by round.
func (r *Run) Ratio(name, a, b string) (experiment.Metric, error) {
	for _, s := range []string{a, b} {
		if r.Times(s) == nil {
			return experiment.Metric{}, fmt.Errorf("%s: %s %w: %s", name, s, ErrNotTimed, r.Skipped[s])
		}
	}
	return experiment.Ratio(name, r.Times(a), r.Times(b), r.File)
}
