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
	"math"
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
	Chosen  map[string]string // system -> the content strategy it has chosen itself
}

// Read reads one file of the bench's output.
func Read(dir, file string) (*Run, error) {
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil, err
	}
	r := &Run{File: file, Skipped: map[string]string{}, Chosen: map[string]string{}}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		var line struct {
			Sample
			Skipped string `json:"skipped"`
			Reason  string `json:"reason"`
			Chose   string `json:"chose"`
			What    string `json:"what"`
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
		if line.Chose != "" {
			r.Chosen[line.Chose] = line.What
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

// The systems that ratios are about, by the names that the bench gives them. Content strategies have a common prefix.
const (
	Scalar    = "scalar"
	Batch     = "batch"
	OneFlush  = "one-flush"
	Again     = "one-flush-again"
	Bare      = "limit-fdatasync"
	Bolt      = "bbolt"
	Strict    = "strict-"
	Automatic = Strict + "auto"
	Usual     = Strict + "spare-wholefs"
	again     = "-again" // at the end of the name of a control
)

// Fastest is the content strategy with the smallest median, Automatic excepted; "" if none was timed.
func (r *Run) Fastest() string {
	best, least := "", math.Inf(1)
	for _, s := range r.Systems() {
		if !strings.HasPrefix(s, Strict) || s == Automatic || strings.HasSuffix(s, again) {
			continue
		}
		times := slices.Sorted(slices.Values(r.Times(s)))
		if m := times[len(times)/2]; m < least {
			best, least = s, m
		}
	}
	return best
}

// Ratios gives, as far as both systems of a ratio were timed:
//
//	<prefix>.<system>.gain              scalar over the system
//	<prefix>.best_strict.gain           scalar over the fastest content strategy
//	<prefix>.best_strict.against_batch  report's batch over the fastest content strategy
//	<prefix>.auto.over_best             Auto over the fastest content strategy
//	<prefix>.auto.over_batch            Auto over the report's batch
//	<prefix>.one_flush.against_bbolt    bbolt over one-flush
//	<prefix>.one_flush.over_bare        one-flush over one bare write and fdatasync
//	<prefix>.control                    one-flush over itself
//	<prefix>.strict.control             a content strategy over itself
func (r *Run) Ratios(prefix string) ([]experiment.Metric, error) {
	ratios := [][3]string{
		{".one_flush.against_bbolt", Bolt, OneFlush}, {".one_flush.over_bare", OneFlush, Bare}, {".control", OneFlush, Again},
		{".auto.over_batch", Automatic, Batch}, {".strict.control", Usual, Usual + again},
	}
	if best := r.Fastest(); best != "" {
		ratios = append(ratios, [3]string{".best_strict.gain", Scalar, best}, [3]string{".best_strict.against_batch", Batch, best},
			[3]string{".auto.over_best", Automatic, best})
	}
	for _, s := range r.Systems() {
		if s != Scalar && !strings.HasSuffix(s, again) {
			ratios = append(ratios, [3]string{"." + MetricName(s) + ".gain", Scalar, s})
		}
	}
	var out []experiment.Metric
	for _, ratio := range ratios {
		m, err := r.Ratio(prefix+ratio[0], ratio[1], ratio[2])
		if errors.Is(err, ErrNotTimed) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// Label is a system's name in figures. The control has none: it is not drawn.
var Label = map[string]string{
	"scalar": "one by one", "batch": "report's batch", "one-flush": "one flush", "limit-fdatasync": "bare write + fdatasync",
	"strict-overlapped": "overlapped", "strict-wholefs": "whole file system", "strict-spare": "spare exchange",
	"strict-spare-overlapped": "spare exchange, overlapped", "strict-spare-wholefs": "spare exchange, one syncfs", "strict-auto": "auto",
	"limit-no-sync": "batch without any sync", "bbolt": "bbolt", "sqlite": "SQLite", "pebble": "Pebble", "postgresql": "PostgreSQL",
}
