package figures

import "math"

// Axis describes one axis of the caller's. Name says what is drawn and its unit: "time per batch, ms".
type Axis struct {
	Name string
	Log  bool     // every value must be above zero
	Zero bool     // the range includes zero; not for Log
	Min  *float64 // nil: from the data
	Max  *float64
}

// scale is an axis with its range fixed: values between min and max, ticks every step (times base on a log axis).
type scale struct {
	Axis
	min, max, step float64
	base           float64
	labels         []float64 // log axis: the values that get a tick, where the powers alone would be too few
}

// newScale fits an axis around lo..hi. ticks is about how many there may be.
func newScale(a Axis, lo, hi float64, ticks int) scale {
	if a.Log {
		return logScale(a, lo, hi)
	}
	if a.Zero {
		lo, hi = math.Min(lo, 0), math.Max(hi, 0)
	}
	if a.Min != nil {
		lo = *a.Min
	}
	if a.Max != nil {
		hi = *a.Max
	}
	if hi <= lo { // one value, or none: some room around it
		pad := math.Max(math.Abs(lo)*0.1, 1e-9)
		if lo == 0 {
			pad = 1
		}
		if lo -= pad; a.Zero && lo < 0 {
			lo = 0
		}
		hi += pad
	}
	s := scale{Axis: a}
	s.step, s.min, s.max = tightest(lo, hi, ticks)
	if a.Min != nil {
		s.min = lo
	}
	if a.Max != nil {
		s.max = hi
	}
	return s
}

// logScale uses powers of two for small counts, as shards and records are, and of ten otherwise, with ticks at 1, 2 and 5 where
// there are few powers.
func logScale(a Axis, lo, hi float64) scale {
	if a.Min != nil {
		lo = *a.Min
	}
	if a.Max != nil {
		hi = *a.Max
	}
	s := scale{Axis: a, base: 10, step: 1}
	if lo >= 1 && hi/lo <= 300 {
		s.base = 2
	}
	power := func(v float64) float64 { return math.Log(v) / math.Log(s.base) }
	s.min = math.Pow(s.base, math.Floor(power(lo)+1e-9))
	s.max = math.Pow(s.base, math.Ceil(power(hi)-1e-9))
	if s.max <= s.min {
		s.max = s.min * s.base
	}
	if s.base == 10 && s.max/s.min <= 1001 {
		s.tickBetween(lo, hi)
	}
	return s
}

// tickBetween narrows a log axis to 1, 2, 5 times powers of ten around lo..hi, with a tick at each of them.
func (s *scale) tickBetween(lo, hi float64) {
	var all []float64
	for p := s.min; p < s.max*1.5; p *= 10 {
		all = append(all, p, 2*p, 5*p)
	}
	first, last := 0, len(all)-1
	for first+1 < len(all) && all[first+1] <= lo*(1+1e-9) {
		first++
	}
	for last > first+1 && all[last-1] >= hi*(1-1e-9) {
		last--
	}
	s.labels = all[first : last+1]
	// ECharts drops a label at the very end of a log axis when rounding puts it outside.
	s.min, s.max = s.labels[0]*(1-1e-9), s.labels[len(s.labels)-1]*(1+1e-9)
}

// tightest picks the step of 1, 2, 2.5 or 5 times a power of ten that wastes the least of the axis around lo..hi, with between
// three and about ticks steps.
func tightest(lo, hi float64, ticks int) (step, low, high float64) {
	best := math.Inf(1)
	power := math.Pow(10, math.Floor(math.Log10((hi-lo)/float64(ticks)))-1)
	for range 4 {
		for _, m := range []float64{1, 2, 2.5, 5} {
			st := m * power
			l, h := math.Floor(lo/st+1e-9)*st, math.Ceil(hi/st-1e-9)*st
			n := (h - l) / st
			if n < 2 || n > float64(ticks)+2 {
				continue
			}
			// Little waste first, then about the wanted number of ticks.
			if cost := (h-l)/(hi-lo) + 0.02*math.Abs(n-float64(ticks)); cost < best {
				best, step, low, high = cost, st, l, h
			}
		}
		power *= 10
	}
	if math.IsInf(best, 1) {
		step = niceStep((hi - lo) / float64(ticks))
		low, high = math.Floor(lo/step+1e-9)*step, math.Ceil(hi/step-1e-9)*step
	}
	return step, low, high
}

// padded keeps marks off the ends of an axis of powers of two, where they would lie on the labels of the other axis.
func (s scale) padded() scale {
	if !s.Log || s.base != 2 {
		return s
	}
	for v := s.min; v < s.max*1.5; v *= 2 {
		s.labels = append(s.labels, v)
	}
	pad := math.Pow(s.max/s.min, 0.04)
	s.min, s.max = s.min/pad, s.max*pad
	return s
}

// niceStep rounds up to 1, 2, 2.5 or 5 times a power of ten.
func niceStep(raw float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 2.5, 5} {
		if raw <= m*power*(1+1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// at maps a value to 0..1 along the axis.
func (s scale) at(v float64) float64 {
	if s.Log {
		return math.Log(v/s.min) / math.Log(s.max/s.min)
	}
	return (v - s.min) / (s.max - s.min)
}
