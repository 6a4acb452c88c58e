package report

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"shardlease/internal/evidence"
	"shardlease/internal/experiment"
)

// run is a sealed run in memory.
type run struct {
	dir      string
	id       evidence.Identity
	specs    []*experiment.Spec
	verdicts []experiment.Verdict
	metrics  map[string]*experiment.Metrics // by experiment; those that broke have none
	files    map[string]any                 // JSON files read so far
}

// open reads a run after checking its sums: a report of damaged evidence would be worse than none.
func open(dir string) (*run, error) {
	if _, err := evidence.Check(dir); err != nil {
		return nil, err
	}
	r := &run{dir: dir, metrics: map[string]*experiment.Metrics{}, files: map[string]any{}}
	var err error
	if r.id, err = evidence.Info(dir); err != nil {
		return nil, err
	}
	if err := experiment.ReadJSON(filepath.Join(dir, evidence.ClaimsFile), &r.specs); err != nil {
		return nil, err
	}
	if err := experiment.ReadJSON(filepath.Join(dir, evidence.VerdictsFile), &r.verdicts); err != nil {
		return nil, err
	}
	for _, s := range r.specs {
		m, err := experiment.ReadMetrics(filepath.Join(dir, s.Name))
		if err == nil {
			r.metrics[s.Name] = m
		} else if !os.IsNotExist(err) {
			return nil, err
		}
	}
	return r, nil
}

// has reports whether the experiment is part of the run.
func (r *run) has(name string) bool {
	return slices.ContainsFunc(r.specs, func(s *experiment.Spec) bool { return s.Name == name })
}

// metric finds "experiment.metric".
func (r *run) metric(key string) (experiment.Metric, string, error) {
	name, metric, ok := strings.Cut(key, ".")
	if !ok {
		return experiment.Metric{}, "", fmt.Errorf("%q is not of the form experiment.metric", key)
	}
	m := r.metrics[name]
	switch {
	case !r.has(name):
		return experiment.Metric{}, "", fmt.Errorf("%q: the run has no experiment %s", key, name)
	case m == nil:
		return experiment.Metric{}, "", fmt.Errorf("%q: experiment %s did not finish in this run", key, name)
	}
	v, ok := m.Get(metric)
	if !ok {
		return experiment.Metric{}, "", fmt.Errorf("%q: experiment %s has no such metric%s", key, name, nearest(metric, m))
	}
	return v, name + "/" + v.Samples, nil
}

// nearest suggests a metric that begins alike.
func nearest(name string, m *experiment.Metrics) string {
	var list []string
	first, _, _ := strings.Cut(name, ".")
	for _, v := range m.Metrics {
		if strings.HasPrefix(v.Name, first) {
			list = append(list, v.Name)
		}
	}
	if len(list) == 0 {
		return ""
	}
	return "; there are " + strings.Join(list[:min(len(list), 12)], ", ")
}

func (r *run) claim(id string) (experiment.Claim, error) {
	for _, s := range r.specs {
		for _, c := range s.Claims {
			if c.ID == id {
				return c, nil
			}
		}
	}
	return experiment.Claim{}, fmt.Errorf("the run has no claim %q", id)
}

func (r *run) verdict(id string) (experiment.Verdict, error) {
	for _, v := range r.verdicts {
		if v.Claim == id {
			return v, nil
		}
	}
	return experiment.Verdict{}, fmt.Errorf("the run has no verdict on claim %q", id)
}

// lookup finds a value of any JSON file of the run by a dotted path; parts of it may be indices.
func (r *run) lookup(file, path string) (any, error) {
	v, ok := r.files[file]
	if !ok {
		if !filepath.IsLocal(file) {
			return nil, fmt.Errorf("%q is not a file of the run", file)
		}
		data, err := os.ReadFile(filepath.Join(r.dir, file))
		if err == nil {
			err = json.Unmarshal(data, &v)
		}
		if err != nil {
			return nil, err
		}
		r.files[file] = v
	}
	for part := range strings.SplitSeq(path, ".") {
		var next any
		switch at := v.(type) {
		case map[string]any:
			next, ok = at[part]
		case []any:
			i := -1
			_, err := fmt.Sscanf(part, "%d", &i)
			if ok = err == nil && i >= 0 && i < len(at); ok {
				next = at[i]
			}
		default:
			ok = false
		}
		if !ok {
			return nil, fmt.Errorf("%s holds no %q (%q is missing)", file, path, part)
		}
		v = next
	}
	return v, nil
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
