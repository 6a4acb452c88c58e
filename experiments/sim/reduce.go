package sim

import (
	"fmt"
	"os"
	"path/filepath"

	"shardlease/internal/campaign/sim"
	"shardlease/internal/experiment"
)

// Reduce computes the metrics:
//
//	campaigns, violations, simulated_s, items, executions, repeated_executions
//	executions.over_bound      campaigns
//	faults.<kind>              sums over all campaigns; faults.absent counts the kinds that never happened
//	campaigns_per_cpu_minute
//	replays.run, .different
//	planted.run, .missed
func (s *Sim) Reduce(dir string) (*experiment.Metrics, error) {
	results, err := load(dir)
	if err != nil {
		return nil, err
	}
	var cost Cost
	var replays []Replay
	var plants []Plant
	for name, v := range map[string]any{costFile: &cost, replaysFile: &replays, plantedFile: &plants} {
		if err := experiment.ReadJSON(filepath.Join(dir, name), v); err != nil {
			return nil, err
		}
	}
	if cost.Campaigns != len(results) || cost.CPUS <= 0 {
		return nil, fmt.Errorf("%s: %d campaigns in %v s, but there are %d in %s", costFile, cost.Campaigns, cost.CPUS, len(results), campaignsFile)
	}
	m := &experiment.Metrics{Experiment: "sim"}
	add := func(name string, value float64, unit, file string) {
		m.Metrics = append(m.Metrics, experiment.Exact(name, value, unit, file))
	}
	t := sum(results)
	add("campaigns", float64(len(results)), "campaigns", campaignsFile)
	add("violations", float64(t.violations), "campaigns", campaignsFile)
	add("simulated_s", t.simulated, "s", campaignsFile)
	add("items", float64(t.items), "items", campaignsFile)
	add("executions", float64(t.executions), "executions", campaignsFile)
	add("repeated_executions", float64(t.executions-t.items), "executions", campaignsFile)
	add("executions.over_bound", float64(t.overBound), "campaigns", campaignsFile)
	absent := 0
	for _, k := range kinds(t.counts) {
		add("faults."+k.name, float64(k.times), k.unit, campaignsFile)
		if k.times == 0 {
			absent++
		}
	}
	add("faults.absent", float64(absent), "kinds", campaignsFile)
	add("campaigns_per_cpu_minute", 60*float64(cost.Campaigns)/cost.CPUS, "campaigns/min", costFile)
	different, missed := 0, 0
	for _, r := range replays {
		if !r.Same || r.Events == 0 {
			different++
		}
	}
	for _, p := range plants {
		if p.Found == 0 {
			missed++
		}
	}
	add("replays.run", float64(len(replays)), "seeds", replaysFile)
	add("replays.different", float64(different), "seeds", replaysFile)
	add("planted.run", float64(len(plants)), "bugs", plantedFile)
	add("planted.missed", float64(missed), "bugs", plantedFile)
	return m, m.Finish()
}

func load(dir string) ([]sim.Result, error) {
	f, err := os.Open(filepath.Join(dir, campaignsFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	results, err := decode(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", campaignsFile, err)
	}
	return results, nil
}

// totals are sums over campaigns.
type totals struct {
	violations, items, executions, overBound int
	simulated                                float64
	counts                                   sim.Counts
}

// sum adds up. A campaign that broke an invariant early has no items and no bound; its executions are left out.
func sum(results []sim.Result) (t totals) {
	for _, r := range results {
		t.counts.Add(r.Counts)
		t.simulated += r.SimulatedS
		if r.Violation != "" {
			t.violations++
		}
		if r.Items == 0 {
			continue
		}
		t.items += r.Items
		t.executions += r.Executions
		if r.Executions > r.Bound {
			t.overBound++
		}
	}
	return t
}

type kind struct {
	name, unit string
	times      int
}

func kinds(c sim.Counts) []kind {
	return []kind{
		{"kills", "ranks", c.Kills}, {"power_cuts", "jobs", c.PowerCuts}, {"interrupts", "masters", c.Interrupts}, {"pauses", "ranks", c.Pauses},
		{"clock_jumps", "jumps", c.Jumps}, {"hangs", "operations", c.Hangs}, {"interleavings", "operations", c.Suspended}, {"disk_errors", "errors", c.Errors},
		{"lost_messages", "messages", c.Lost}, {"repeated_messages", "messages", c.Repeated}, {"stale_results", "results", c.Stale},
		{"take_overs", "claims", c.TakenOver}, {"restarts", "jobs", c.Disorderly},
	}
}
