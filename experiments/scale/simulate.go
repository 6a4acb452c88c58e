package scale

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"shardlease/experiments/scale/raw"
	"shardlease/internal/experiment"
)

// simulatedWays are set side by side on one store, slowest first.
var simulatedWays = []string{raw.Scalar, raw.Batch, raw.Auto, raw.OneFlush}

// traces gives the calls of a way's traced case by round.
func (s *samples) traces(way string) ([][]raw.Call, error) {
	c, err := s.find(way, s.Simulation.Records, s.Simulation.Active)
	if err != nil {
		return nil, err
	}
	var byRound [][]raw.Call
	for _, d := range s.sides[c.Name()] {
		for _, call := range d.Calls {
			if len(call.Syncs) == 0 {
				return nil, fmt.Errorf("%s: a call of %s without a sync can't have made anything durable", raw.SidesFile, c.Name())
			}
		}
		if len(d.Calls) == 0 {
			return nil, fmt.Errorf("%s: %s was not traced, and the simulation needs it", raw.SidesFile, c.Name())
		}
		byRound = append(byRound, d.Calls)
	}
	return byRound, nil
}

// on is the store with one way's masters.
func (s *samples) on(way string, calls []raw.Call, servers int, stream uint64) store {
	st := store{servers: servers, ttl: int64(s.Simulation.TTLSeconds) * 1e9, perHeartbeat: 1, seed: s.Seed, stream: stream, calls: calls}
	if way == raw.Scalar {
		st.perHeartbeat = s.Simulation.Records
	}
	return st
}

// simulated gives, for each number of servers c and each way:
//
//	sim.c<c>.<way>.masters          the largest number of masters whose leases do not lapse
//	sim.c<c>.<way>.most.lapsed      of the largest number of masters asked for: the part of renewals that come too late
//	sim.c<c>.<way>.most.utilisation the part of its time in which the store is busy
//	sim.c<c>.<way>.most.done.p50 .. from when a heartbeat is due until it is durable
//
// and for the first c, over resampled rounds:
//
//	sim.c<c>.<way>.over_batch       masters carried, over those of the report's batch
func (s *samples) simulated() ([]experiment.Metric, error) {
	var out []experiment.Metric
	carried := map[string][]float64{}
	for _, way := range simulatedWays {
		byRound, err := s.traces(way)
		if err != nil {
			return nil, err
		}
		for i, servers := range s.Simulation.Servers {
			st := s.on(way, slices.Concat(byRound...), servers, 0)
			name := simName(servers, way) + ".masters"
			var m experiment.Metric
			if i == 0 {
				carried[way] = s.carried(way, byRound, servers)
				m, err = experiment.Median(name, carried[way], "masters", raw.SidesFile)
			} else {
				m = experiment.Exact(name, float64(st.capacity()), "masters", raw.SidesFile)
			}
			if err != nil {
				return nil, err
			}
			most, err := s.crowded(simName(servers, way), st)
			if err != nil {
				return nil, err
			}
			out = append(append(out, m), most...)
		}
	}
	for _, way := range simulatedWays {
		m, err := experiment.Ratio(simName(s.Simulation.Servers[0], way)+".over_batch", carried[way], carried[raw.Batch], raw.SidesFile)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// carried is a way's capacity over resampled rounds, computed on all processors.
func (s *samples) carried(way string, byRound [][]raw.Call, servers int) []float64 {
	masters := make([]float64, s.Simulation.Replicates)
	var all sync.WaitGroup
	for r := range masters {
		all.Go(func() {
			st := s.on(way, resampled(byRound, s.Seed, uint64(r)), servers, uint64(r))
			masters[r] = float64(max(1, st.capacity()))
		})
	}
	all.Wait()
	return masters
}

func simName(servers int, way string) string {
	return fmt.Sprintf("sim.c%d.%s", servers, strings.ReplaceAll(way, "-", "_"))
}

// crowded is the store with the largest number of masters asked for.
func (s *samples) crowded(prefix string, st store) ([]experiment.Metric, error) {
	st.masters = s.Simulation.Masters[len(s.Simulation.Masters)-1]
	c := st.run()
	done, err := experiment.Percentiles(prefix+".most.done", c.done, raw.SidesFile)
	return append(done, experiment.Exact(prefix+".most.lapsed", c.lapsed, "", raw.SidesFile),
		experiment.Exact(prefix+".most.utilisation", c.utilisation, "", raw.SidesFile)), err
}
