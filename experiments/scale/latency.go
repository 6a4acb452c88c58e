package scale

import (
	"math"
	"strconv"

	"shardlease/experiments/scale/raw"
	"shardlease/internal/experiment"
	"shardlease/pkg/lease"
)

// latencies gives what the library's own Stats say of each case, and the same from single values where there are any.
func (s *samples) latencies() ([]experiment.Metric, error) {
	var out []experiment.Metric
	apart, pairs := 1.0, 0
	for _, t := range s.totals {
		c := raw.Case{Way: t.Way, Records: t.Records, Active: t.Active}
		own := map[string]float64{}
		for _, q := range []struct {
			name   string
			counts map[int]int
			unit   string
			scale  float64
		}{
			{"batch_n", t.BatchRecords, "leases", 1}, {"batch_k", t.BatchShards, "shards", 1},
			{"lock_wait", t.LockWait, "ms", 1e6}, {"file_sync", t.FileSync, "ms", 1e6}, {"dir_sync", t.DirectorySync, "ms", 1e6},
		} {
			h, err := raw.Histogram(q.counts)
			if err != nil {
				return nil, err
			}
			list := quantiles(metricName(c)+"."+q.name, h, q.unit, q.scale)
			out = append(out, list...)
			if len(list) > 0 {
				own[q.name] = list[0].Value
			}
		}
		file, dir := s.singles(c)
		for name, values := range map[string][]int64{"file_sync": file, "dir_sync": dir} {
			list, err := experiment.Percentiles(metricName(c)+".raw."+name, values, raw.SidesFile)
			if err != nil {
				return nil, err
			}
			out = append(out, list...)
			if len(list) > 0 && list[0].Value > 0 && own[name] > 0 {
				pairs++
				if r := own[name] / list[0].Value; math.Abs(math.Log(r)) > math.Abs(math.Log(apart)) {
					apart = r
				}
			}
		}
	}
	agree := experiment.Exact("stats.agree", apart, "x", raw.TotalsFile)
	agree.N = pairs
	return append(out, agree), nil
}

// quantiles gives the median, and what lies above it where ten values lie beyond.
func quantiles(prefix string, h lease.Histogram, unit string, scale float64) []experiment.Metric {
	var out []experiment.Metric
	total := h.Total()
	for _, p := range []float64{50, 95, 99} {
		if float64(total)*(100-p)/100 < 10 {
			continue
		}
		m := experiment.Exact(prefix+".p"+strconv.Itoa(int(p)), float64(h.Quantile(p/100))/scale, unit, raw.TotalsFile)
		m.N = int(total)
		out = append(out, m)
	}
	return out
}

// singles are the latencies of a case's syncs, from where it was traced.
func (s *samples) singles(c raw.Case) (file, dir []int64) {
	for _, d := range s.sides[c.Name()] {
		for _, call := range d.Calls {
			for _, y := range call.Syncs {
				if y.Directory {
					dir = append(dir, y.Whole)
				} else {
					file = append(file, y.Whole)
				}
			}
		}
	}
	return file, dir
}
