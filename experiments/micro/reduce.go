package micro

import (
	"fmt"
	"path/filepath"
	"slices"

	"shardlease/experiments/micro/raw"
	"shardlease/internal/experiment"
)

// samples are all raw files of a run.
type samples struct {
	raw.Workload
	rounds []raw.Round
	passes []raw.Pass
	syncs  []raw.Sync
	kernel []raw.Kernel
}

func load(dir string) (*samples, error) {
	s := &samples{}
	err := experiment.ReadJSON(filepath.Join(dir, raw.WorkloadFile), &s.Workload)
	if err == nil {
		s.rounds, err = raw.ReadRounds(filepath.Join(dir, raw.RoundsFile))
	}
	if err == nil {
		s.passes, err = raw.ReadPasses(filepath.Join(dir, raw.PassesFile))
	}
	if err == nil {
		s.syncs, err = raw.ReadSyncs(filepath.Join(dir, raw.SyncsFile))
	}
	if err == nil {
		s.kernel, err = raw.ReadKernel(filepath.Join(dir, raw.KernelFile))
	}
	return s, err
}

// word names a scenario in metrics.
var word = map[int]string{1: "one", 8: "eight"}

// Reduce computes the metrics. For each scenario <s> in one, eight (active shards):
//
//	<s>.scalar.dir_syncs, <s>.batch.dir_syncs   per pass; the interval is the least and the most over all passes
//	<s>.reduction                               percent of directory syncs saved
//	<s>.scalar.ms, <s>.batch.ms                 median wall time of a pass
//	<s>.speedup                                 scalar over batch, paired rounds
//	<s>.control                                 batch over batch, paired rounds
//	<s>.f_ms, <s>.r_ms, <s>.d_ms                the cost model's F, R and D, from traced scalar passes
//	<s>.predicted                               speed-up by the model, from F, R, D, N and K
//	<s>.model                                   measured speed-up over the predicted one, paired by round
//	<s>.<side>.<kind>_sync.p50 ...              latency of single syncs
//
// and over both: batch.file_syncs, scalar.file_syncs, kernel.agrees.
func (m *Micro) Reduce(dir string) (*experiment.Metrics, error) {
	s, err := load(dir)
	if err != nil {
		return nil, err
	}
	out := &experiment.Metrics{Experiment: "micro"}
	for _, active := range s.Active {
		name, ok := word[active]
		if !ok {
			return nil, fmt.Errorf("no name for %d active shards", active)
		}
		for _, part := range []func(string, int) ([]experiment.Metric, error){s.counts, s.times, s.model, s.latencies} {
			metrics, err := part(name, active)
			if err != nil {
				return nil, fmt.Errorf("%d active shards: %w", active, err)
			}
			out.Metrics = append(out.Metrics, metrics...)
		}
	}
	for _, side := range []string{raw.Scalar, raw.Batch} {
		fileSyncs, err := perPass(side+".file_syncs", s.passes, func(p raw.Pass) (int, bool) { return p.FileSyncs, p.Side == side })
		if err != nil {
			return nil, err
		}
		out.Metrics = append(out.Metrics, fileSyncs)
	}
	out.Metrics = append(out.Metrics, s.kernelAgrees())
	return out, out.Finish()
}

// perPass is a count that should be the same in every pass; if it is not, its interval says so.
func perPass(name string, passes []raw.Pass, count func(raw.Pass) (int, bool)) (experiment.Metric, error) {
	var counts []int
	for _, p := range passes {
		if n, ok := count(p); ok {
			counts = append(counts, n)
		}
	}
	if len(counts) == 0 {
		return experiment.Metric{}, fmt.Errorf("%s: there is no pass to count in", name)
	}
	slices.Sort(counts)
	m := experiment.Exact(name, float64(counts[len(counts)/2]), "syncs", raw.PassesFile)
	m.Low, m.High, m.N = float64(counts[0]), float64(counts[len(counts)-1]), len(counts)
	return m, nil
}

func (s *samples) counts(name string, active int) ([]experiment.Metric, error) {
	var out []experiment.Metric
	for _, side := range []string{raw.Scalar, raw.Batch} {
		m, err := perPass(name+"."+side+".dir_syncs", s.passes, func(p raw.Pass) (int, bool) {
			return p.DirSyncs, p.Active == active && p.Side == side
		})
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	scalar, batch := out[0], out[1]
	saved := func(batch, scalar float64) float64 { return 100 * (1 - batch/scalar) }
	r := experiment.Exact(name+".reduction", saved(batch.Value, scalar.Value), "%", raw.PassesFile)
	r.Low, r.High, r.N = saved(batch.High, scalar.Low), saved(batch.Low, scalar.High), scalar.N
	return append(out, r), nil
}

// pairs gives both sides of the rounds of one kind, in milliseconds.
func (s *samples) pairs(active int, kind string) (a, b []float64) {
	for _, r := range s.rounds {
		if r.Active == active && r.Kind == kind {
			a, b = append(a, float64(r.A)/1e6), append(b, float64(r.B)/1e6)
		}
	}
	return a, b
}

func (s *samples) times(name string, active int) ([]experiment.Metric, error) {
	scalar, batch := s.pairs(active, raw.AB)
	controlA, controlB := s.pairs(active, raw.AA)
	return collect(
		func() (experiment.Metric, error) {
			return experiment.Median(name+".scalar.ms", scalar, "ms", raw.RoundsFile)
		},
		func() (experiment.Metric, error) {
			return experiment.Median(name+".batch.ms", batch, "ms", raw.RoundsFile)
		},
		func() (experiment.Metric, error) {
			return experiment.Ratio(name+".speedup", scalar, batch, raw.RoundsFile)
		},
		func() (experiment.Metric, error) {
			return experiment.Ratio(name+".control", controlA, controlB, raw.RoundsFile)
		},
	)
}

// model applies section 7: scalar N(F+R+D), batch N(F+R)+KD. F and D come from the traced scalar pass of each round, and R
// is what is left of its wall time.
func (s *samples) model(name string, active int) ([]experiment.Metric, error) {
	var f, r, d, predicted []float64
	for _, p := range s.passes {
		if p.Active != active || p.Side != raw.Scalar {
			continue
		}
		if p.DirSyncs == 0 || p.Records == 0 {
			return nil, fmt.Errorf("round %d has no records or no directory sync to take D from", p.Round)
		}
		n := float64(p.Records)
		fi, di := float64(p.File)/n/1e6, float64(p.Dir)/float64(p.DirSyncs)/1e6
		ri := float64(p.Wall)/n/1e6 - fi - di
		k := float64(min(active, p.Records))
		f, r, d = append(f, fi), append(r, ri), append(d, di)
		predicted = append(predicted, n*(fi+ri+di)/(n*(fi+ri)+k*di))
	}
	scalar, batch := s.pairs(active, raw.AB)
	if len(scalar) != len(predicted) {
		return nil, fmt.Errorf("%d timed and %d traced rounds do not pair", len(scalar), len(predicted))
	}
	measured := make([]float64, len(scalar))
	for i := range scalar {
		measured[i] = scalar[i] / batch[i]
	}
	median := func(metric string, list []float64, unit string) func() (experiment.Metric, error) {
		return func() (experiment.Metric, error) {
			return experiment.Median(name+metric, list, unit, raw.PassesFile)
		}
	}
	return collect(median(".f_ms", f, "ms"), median(".r_ms", r, "ms"), median(".d_ms", d, "ms"), median(".predicted", predicted, "x"),
		func() (experiment.Metric, error) {
			m, err := experiment.Ratio(name+".model", measured, predicted, raw.PassesFile)
			m.Unit = "measured / predicted"
			return m, err
		})
}

func (s *samples) latencies(name string, active int) ([]experiment.Metric, error) {
	var out []experiment.Metric
	for _, side := range []string{raw.Scalar, raw.Batch} {
		for _, kind := range []string{"file", "dir"} {
			var took []int64
			for _, sync := range s.syncs {
				if sync.Active == active && sync.Side == side && sync.Kind == kind {
					took = append(took, sync.Took)
				}
			}
			list, err := experiment.Percentiles(name+"."+side+"."+kind+"_sync", took, raw.SyncsFile)
			if err != nil {
				return nil, err
			}
			out = append(out, list...)
		}
	}
	return out, nil
}

// kernelAgrees is 1 if each count of the kernel equals that of every traced pass. N is the number of counts compared: 0
// where strace could not be used, which decides nothing.
func (s *samples) kernelAgrees() experiment.Metric {
	if len(s.kernel) == 0 {
		m := experiment.Bool("kernel.agrees", false, raw.KernelFile)
		m.N, m.Warnings = 0, []string{s.Kernel}
		return m
	}
	seen := map[string]int{}
	for _, k := range s.kernel {
		seen[fmt.Sprint(k.Active, k.Side, k.Kind)]++
	}
	agrees, compared := true, 0
	for _, active := range s.Active {
		for _, side := range []string{raw.Scalar, raw.Batch} {
			for _, p := range s.passes {
				if p.Active == active && p.Side == side {
					agrees = agrees && seen[fmt.Sprint(active, side, "file")] == p.FileSyncs && seen[fmt.Sprint(active, side, "dir")] == p.DirSyncs
				}
			}
			agrees = agrees && seen[fmt.Sprint(active, side, "fs")] == 0
			compared += 2
		}
	}
	m := experiment.Bool("kernel.agrees", agrees, raw.KernelFile)
	m.N = compared
	return m
}

func collect(parts ...func() (experiment.Metric, error)) ([]experiment.Metric, error) {
	var out []experiment.Metric
	for _, part := range parts {
		m, err := part()
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}
