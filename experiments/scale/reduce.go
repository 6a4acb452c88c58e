package scale

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"shardlease/experiments/scale/raw"
	"shardlease/internal/experiment"
)

// samples are all raw files of a run.
type samples struct {
	raw.Plan
	sides  map[string][]raw.Side // by the case's name, in the order of rounds
	totals []raw.Totals
}

func load(dir string) (*samples, error) {
	s := &samples{sides: map[string][]raw.Side{}}
	if err := experiment.ReadJSON(filepath.Join(dir, raw.PlanFile), &s.Plan); err != nil {
		return nil, err
	}
	sides, err := raw.Read(filepath.Join(dir, raw.SidesFile), raw.Side.Check)
	if err != nil {
		return nil, err
	}
	if s.totals, err = raw.Read(filepath.Join(dir, raw.TotalsFile), raw.Totals.Check); err != nil {
		return nil, err
	}
	for _, d := range sides {
		name := raw.Case{Way: d.Way, Records: d.Records, Active: d.Active}.Name()
		s.sides[name] = append(s.sides[name], d)
	}
	for _, c := range s.Cases {
		list := s.sides[c.Name()]
		slices.SortFunc(list, func(a, b raw.Side) int { return a.Round - b.Round })
		if len(list) != c.Rounds {
			return nil, fmt.Errorf("%s: %d rounds of %s, %d were planned", raw.SidesFile, len(list), c.Name(), c.Rounds)
		}
	}
	return s, nil
}

// Reduce computes the metrics. For each case <way>.n<leases>k<shards>, dashes of the way as underscores:
//
//	<case>.ms, <case>.cpu_ms                     median wall and processor time of one pass over all leases
//	<case>.batch_n.p50, .batch_k.p50             N and K of the batches, and
//	<case>.{lock_wait,file_sync,dir_sync}.p50 .. latencies, by the library's own Stats: bucket bounds, at most 12.5 % high
//	<case>.raw.{file_sync,dir_sync}.p50 ..       latencies of a traced case, from single values
//
// and over them:
//
//	counts.exact                        1 if every pass had exactly the syncs that its way is to have
//	stats.agree                         the library's median of syncs over that of the single values, where they differ most
//	batch.fr_ms, batch.d_ms             F+R and D of N(F+R)+KD, fitted in each round
//	batch.fit                           measured over fitted time, at the point where they differ most
//	one_flush.constant_ms, .lease_ns    a beat's constant and what each lease adds, fitted in each round
//	one_flush.fit                       likewise
//	one_flush.flat_n                    10 000 leases over 64, paired rounds
//	one_flush.flat_k                    64 shards over 1, both with 1 024 leases
//	batch.control, one_flush.control    a case over its twin
//
// and what simulated gives.
func (x *Scale) Reduce(dir string) (*experiment.Metrics, error) {
	s, err := load(dir)
	if err != nil {
		return nil, err
	}
	out := &experiment.Metrics{Experiment: "scale"}
	for _, part := range []func() ([]experiment.Metric, error){s.times, s.counted, s.latencies, s.batchModel, s.beatModel, s.ratios, s.simulated} {
		list, err := part()
		if err != nil {
			return nil, err
		}
		out.Metrics = append(out.Metrics, list...)
	}
	return out, out.Finish()
}

func metricName(c raw.Case) string { return strings.ReplaceAll(c.Name(), "-", "_") }

// values are one number of each round of a case.
func (s *samples) values(c raw.Case, f func(raw.Side) float64) []float64 {
	var list []float64
	for _, d := range s.sides[c.Name()] {
		list = append(list, f(d))
	}
	return list
}

func wallMS(d raw.Side) float64 { return float64(d.PassNS) / 1e6 }
func cpuMS(d raw.Side) float64  { return float64(d.CPUNS) / 1e6 }

func (s *samples) times() ([]experiment.Metric, error) {
	var out []experiment.Metric
	for _, c := range s.Cases {
		for suffix, f := range map[string]func(raw.Side) float64{".ms": wallMS, ".cpu_ms": cpuMS} {
			m, err := experiment.Median(metricName(c)+suffix, s.values(c, f), "ms", raw.SidesFile)
			if err != nil {
				return nil, err
			}
			out = append(out, m)
		}
	}
	return out, nil
}

// counted compares the syncs of each pass with what the way promises. Auto's content syncs depend on what it chose.
func (s *samples) counted() ([]experiment.Metric, error) {
	exact, compared := true, 0
	var wrong []string
	for _, c := range s.Cases {
		files, dirs := c.Records, min(c.Records, c.Active)
		switch c.Way {
		case raw.Scalar:
			dirs = c.Records
		case raw.OneFlush, raw.OneFlushAgain:
			files, dirs = 1, 0
		}
		for _, d := range s.sides[c.Name()] {
			compared++
			if c.Way != raw.Auto && d.FileSyncs != files*c.Passes || d.DirSyncs != dirs*c.Passes || d.Renewed != c.Records*c.Passes {
				exact = false
				wrong = append(wrong, fmt.Sprintf("%s, round %d: %d file syncs, %d barriers", c.Name(), d.Round, d.FileSyncs, d.DirSyncs))
			}
		}
	}
	m := experiment.Bool("counts.exact", exact, raw.SidesFile)
	m.N = compared
	if len(wrong) > 0 {
		m.Warnings = wrong[:1]
	}
	return []experiment.Metric{m}, nil
}

// find returns the case, or an error that says what the experiment's file lacks.
func (s *samples) find(way string, records, active int) (raw.Case, error) {
	want := raw.Case{Way: way, Records: records, Active: active}.Name()
	for _, c := range s.Cases {
		if c.Name() == want {
			return c, nil
		}
	}
	return raw.Case{}, fmt.Errorf("%s: no case %s, which a metric needs", raw.PlanFile, want)
}

func (s *samples) ratios() ([]experiment.Metric, error) {
	var out []experiment.Metric
	for _, r := range []struct {
		name       string
		above      string
		aN, aK     int
		below      string
		belowN, bK int
	}{
		{"one_flush.flat_n", raw.OneFlush, 10_000, 64, raw.OneFlush, 64, 64},
		{"one_flush.flat_k", raw.OneFlush, 1024, 64, raw.OneFlush, 1024, 1},
		{"one_flush.control", raw.OneFlushAgain, 64, 64, raw.OneFlush, 64, 64},
		{"batch.control", raw.BatchAgain, 64, 8, raw.Batch, 64, 8},
	} {
		a, err := s.find(r.above, r.aN, r.aK)
		if err != nil {
			return nil, err
		}
		b, err := s.find(r.below, r.belowN, r.bK)
		if err != nil {
			return nil, err
		}
		m, err := experiment.Ratio(r.name, s.values(a, wallMS), s.values(b, wallMS), raw.SidesFile)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// points are the measured times of one way as f makes them.
func (s *samples) points(way string, ms func(list []raw.Side) (float64, bool), f func(c raw.Case, ms float64) point) []point {
	var list []point
	for _, c := range s.Cases {
		if c.Way != way {
			continue
		}
		if v, ok := ms(s.sides[c.Name()]); ok {
			list = append(list, f(c, v))
		}
	}
	return list
}

// inRound takes one round, middleOf the median of all.
func inRound(round int) func([]raw.Side) (float64, bool) {
	return func(list []raw.Side) (float64, bool) {
		if round >= len(list) {
			return 0, false
		}
		return wallMS(list[round]), true
	}
}

func middleOf(list []raw.Side) (float64, bool) {
	var ms []float64
	for _, d := range list {
		ms = append(ms, wallMS(d))
	}
	slices.Sort(ms)
	return (ms[(len(ms)-1)/2] + ms[len(ms)/2]) / 2, true
}

func byLeasesAndShards(c raw.Case, ms float64) point {
	return point{float64(c.Records), float64(min(c.Records, c.Active)), ms}
}

func byConstantAndLeases(c raw.Case, ms float64) point { return point{1, float64(c.Records), ms} }

// model fits a way's plane in each round that all of its cases have, and once to the medians.
func (s *samples) model(way, first, second, fitted string, unit string, scale float64, f func(raw.Case, float64) point) ([]experiment.Metric, error) {
	rounds := math.MaxInt
	for _, c := range s.Cases {
		if c.Way == way {
			rounds = min(rounds, c.Rounds)
		}
	}
	var as, bs []float64
	for round := range rounds {
		a, b := fit(s.points(way, inRound(round), f))
		as, bs = append(as, a), append(bs, b*scale)
	}
	a, err := experiment.Median(first, as, "ms", raw.SidesFile)
	if err != nil {
		return nil, err
	}
	b, err := experiment.Median(second, bs, unit, raw.SidesFile)
	if err != nil {
		return nil, err
	}
	points := s.points(way, middleOf, f)
	ca, cb := fit(points)
	worst := experiment.Exact(fitted, farthest(points, ca, cb), "measured / fitted", raw.SidesFile)
	worst.N = len(points)
	return []experiment.Metric{a, b, worst}, nil
}

func (s *samples) batchModel() ([]experiment.Metric, error) {
	return s.model(raw.Batch, "batch.fr_ms", "batch.d_ms", "batch.fit", "ms", 1, byLeasesAndShards)
}

func (s *samples) beatModel() ([]experiment.Metric, error) {
	return s.model(raw.OneFlush, "one_flush.constant_ms", "one_flush.lease_ns", "one_flush.fit", "ns", 1e6, byConstantAndLeases)
}
