package experiment

import (
	"fmt"
	"math"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/perf/benchmath"
)

// Confidence is the level asked for; the level reached, which is a little higher, goes with each metric.
const Confidence = 0.95

// MinSamples is the least number of samples that has a finite interval at the level asked for.
const MinSamples = 6

// minBeyond is how many samples must lie beyond a percentile before it is given.
const minBeyond = 10

// Median gives the sample median with its exact order-statistic interval. Nothing is assumed about the distribution and
// no value is dropped as an outlier.
func Median(name string, samples []float64, unit, file string) (Metric, error) {
	if len(samples) < MinSamples {
		return Metric{}, fmt.Errorf("%s: %d samples give no interval; at least %d are needed", name, len(samples), MinSamples)
	}
	// NewSample sorts what it is given.
	sample := benchmath.NewSample(slices.Clone(samples), &benchmath.DefaultThresholds)
	s := benchmath.AssumeNothing.Summary(sample, Confidence)
	m := Metric{Name: name, Value: s.Center, Low: s.Lo, High: s.Hi, N: len(samples), Unit: unit, Confidence: s.Confidence, Samples: file}
	for _, w := range s.Warnings {
		m.Warnings = append(m.Warnings, w.Error())
	}
	return m, nil
}

// Ratio estimates a[i]/b[i] over paired rounds: the exponential of the median of the log-ratios, with its interval.
// Pairing removes what drifts more slowly than a round. The Hodges-Lehmann estimate is computed beside it and a
// disagreement is a warning.
func Ratio(name string, a, b []float64, file string) (Metric, error) {
	if len(a) != len(b) {
		return Metric{}, fmt.Errorf("%s: %d and %d samples are not pairs", name, len(a), len(b))
	}
	logs := make([]float64, len(a))
	for i := range a {
		if !positive(a[i]) || !positive(b[i]) {
			return Metric{}, fmt.Errorf("%s: round %d has a time that is not positive: %v, %v", name, i, a[i], b[i])
		}
		logs[i] = math.Log(a[i] / b[i])
	}
	m, err := Median(name, logs, "x", file)
	if err != nil {
		return Metric{}, err
	}
	hl := HodgesLehmann(logs)
	if hl.Value < m.Low || hl.Value > m.High {
		m.Warnings = append(m.Warnings, fmt.Sprintf("the Hodges-Lehmann estimate %.4f lies outside the interval of the median", math.Exp(hl.Value)))
	}
	m.Value, m.Low, m.High = math.Exp(m.Value), math.Exp(m.Low), math.Exp(m.High)
	return m, nil
}

// HodgesLehmann gives the median of all pairwise means with the interval of the signed-rank test, by its normal
// approximation.
func HodgesLehmann(x []float64) Metric {
	n := len(x)
	walsh := make([]float64, 0, n*(n+1)/2)
	for i := range x {
		for j := i; j < n; j++ {
			walsh = append(walsh, (x[i]+x[j])/2)
		}
	}
	slices.Sort(walsh)
	total := len(walsh)
	middle := (walsh[(total-1)/2] + walsh[total/2]) / 2
	nf := float64(n)
	const z = 1.959963984540054
	cut := int(math.Floor(nf*(nf+1)/4 - z*math.Sqrt(nf*(nf+1)*(2*nf+1)/24)))
	cut = max(cut, 0)
	return Metric{Value: middle, Low: walsh[cut], High: walsh[total-1-cut], N: n, Confidence: Confidence}
}

// Percentiles gives those of 50, 95 and 99 that enough samples lie beyond. Values are nanoseconds; the histogram keeps
// three significant digits. They are descriptive: one pooled distribution, no interval, so Low and High equal Value.
func Percentiles(prefix string, nanoseconds []int64, file string) ([]Metric, error) {
	h := hdrhistogram.New(1, int64(3600e9), 3)
	for _, v := range nanoseconds {
		if err := h.RecordValue(max(v, 1)); err != nil {
			return nil, fmt.Errorf("%s: %w", prefix, err)
		}
	}
	var out []Metric
	for _, p := range []float64{50, 95, 99} {
		if float64(len(nanoseconds))*(100-p)/100 < minBeyond {
			continue
		}
		m := Exact(fmt.Sprintf("%s.p%.0f", prefix, p), float64(h.ValueAtQuantile(p))/1e6, "ms", file)
		m.N = len(nanoseconds)
		out = append(out, m)
	}
	return out, nil
}
