package experiment

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ResultsFile holds what Reduce computed. It is derived: verify computes it again from the raw files beside it.
const ResultsFile = "results.json"

// Metric is one number, computed from raw samples.
type Metric struct {
	Name       string   `json:"name"`
	Value      float64  `json:"value"`
	Low        float64  `json:"low"` // of the confidence interval; equal to Value for an exact count
	High       float64  `json:"high"`
	N          int      `json:"n"` // samples behind it
	Unit       string   `json:"unit,omitempty"`
	Confidence float64  `json:"confidence,omitempty"` // level really reached; 0 for an exact count
	Samples    string   `json:"samples"`              // raw file, relative to the experiment's folder
	Warnings   []string `json:"warnings,omitempty"`
}

// Exact is a count or an identity: no interval.
func Exact(name string, value float64, unit, samples string) Metric {
	return Metric{Name: name, Value: value, Low: value, High: value, N: 1, Unit: unit, Samples: samples}
}

// Bool is Exact with 1 for true.
func Bool(name string, holds bool, samples string) Metric {
	value := 0.0
	if holds {
		value = 1
	}
	return Exact(name, value, "", samples)
}

// Metrics is the content of ResultsFile.
type Metrics struct {
	Experiment string   `json:"experiment"`
	Metrics    []Metric `json:"metrics"` // sorted by name
	Warnings   []string `json:"warnings,omitempty"`
}

// Get finds a metric by name.
func (m *Metrics) Get(name string) (Metric, bool) {
	for _, metric := range m.Metrics {
		if metric.Name == name {
			return metric, true
		}
	}
	return Metric{}, false
}

// Finish sorts the metrics and refuses names given twice and values that are not finite: both would make a verdict
// depend on luck. Ends of an interval may not be infinite either; too few samples are the caller's to report.
func (m *Metrics) Finish() error {
	slices.SortFunc(m.Metrics, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	for i, metric := range m.Metrics {
		switch {
		case !metricName.MatchString(metric.Name):
			return fmt.Errorf("metric %q is not a dotted lower-case name", metric.Name)
		case i > 0 && m.Metrics[i-1].Name == metric.Name:
			return fmt.Errorf("metric %s is computed twice", metric.Name)
		case !finite(metric.Value) || !finite(metric.Low) || !finite(metric.High):
			return fmt.Errorf("metric %s is not finite: %v [%v, %v]", metric.Name, metric.Value, metric.Low, metric.High)
		case metric.Low > metric.Value || metric.Value > metric.High:
			return fmt.Errorf("metric %s: value %v lies outside its interval [%v, %v]", metric.Name, metric.Value, metric.Low, metric.High)
		}
	}
	return nil
}

// Encode gives the bytes of ResultsFile.
func (m *Metrics) Encode() ([]byte, error) { return EncodeJSON(m) }

// ReadMetrics reads ResultsFile of an experiment's folder.
func ReadMetrics(dir string) (*Metrics, error) {
	var m Metrics
	if err := ReadJSON(filepath.Join(dir, ResultsFile), &m); err != nil {
		return nil, err
	}
	return &m, nil
}

// EncodeJSON is the one form of JSON in evidence: two spaces, a newline at the end, no HTML escapes.
func EncodeJSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// ReadJSON decodes one file strictly: an unknown field means that this program is not the one that wrote it.
func ReadJSON(name string, v any) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// Number prints a value for people: at most four significant decimals, no exponent for the sizes met here.
func Number(x float64) string {
	if x == float64(int64(x)) {
		return strconv.FormatInt(int64(x), 10)
	}
	return strconv.FormatFloat(x, 'g', 5, 64)
}
