package mpi

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"shardlease/internal/experiment"
)

// Reduce computes the metrics. Those that are counts have the least and the most over all campaigns as their interval;
// those that are identities are 1 if it holds in every campaign.
//
//	exit_code, observations, generated, corpus_objects, interesting, masters_used, acks, epochs_left, processes_left, failures
//	avoided_is_difference   avoided = renewals - directory syncs, for each master
//	some_avoided            avoided > 0 in the whole campaign
//	bounded                 batches <= syncs <= min(renewals, shards x batches), for each master
//	conserved               observations = sum over masters = seeds + unique children = objects in the corpus
//	content_addressed       each object of the corpus is named by its SHA-256
//	clean                   every worker of every master acknowledged its shutdown
//	batches, renewals, directory_syncs, avoided, reduction, repeated_executions, wall_s   (sums and times; nothing pinned)
func (m *MPI) Reduce(dir string) (*experiment.Metrics, error) {
	names, err := filepath.Glob(filepath.Join(dir, "campaign-*"))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: %w: no campaign was recorded", dir, os.ErrNotExist)
	}
	var runs []*campaignRun
	for _, name := range names {
		r, err := loadRun(name)
		if err != nil {
			return nil, err
		}
		if r.stats.Final == nil {
			return nil, fmt.Errorf("%s: the campaign could not read its records at the end (exit code %d)", name, r.ExitCode)
		}
		runs = append(runs, r)
	}
	out := &experiment.Metrics{Experiment: "mpi"}
	for _, c := range counts {
		out.Metrics = append(out.Metrics, c.over(runs))
	}
	for _, id := range identities {
		holds := !slices.ContainsFunc(runs, func(r *campaignRun) bool { return !id.holds(r) })
		metric := experiment.Bool(id.name, holds, "campaign-1/"+statsFile)
		metric.N = len(runs)
		out.Metrics = append(out.Metrics, metric)
	}
	return out, out.Finish()
}

// count is a number of each campaign.
type count struct {
	name, unit string
	of         func(r *campaignRun) float64
}

func (c count) over(runs []*campaignRun) experiment.Metric {
	var values []float64
	for _, r := range runs {
		values = append(values, c.of(r))
	}
	slices.Sort(values)
	m := experiment.Exact(c.name, values[len(values)/2], c.unit, "campaign-1/"+statsFile)
	m.Low, m.High, m.N = values[0], values[len(values)-1], len(values)
	return m
}

// sum adds a counter of the masters.
func sum(r *campaignRun, of func(m master) int) float64 {
	total := 0
	for _, m := range r.stats.Masters {
		total += of(m)
	}
	return float64(total)
}

func renewals(r *campaignRun) float64 { return sum(r, func(m master) int { return m.Renewals }) }
func avoided(r *campaignRun) float64  { return sum(r, func(m master) int { return m.Avoided }) }

var counts = []count{
	{"exit_code", "", func(r *campaignRun) float64 { return float64(r.ExitCode) }},
	{"observations", "analyses", func(r *campaignRun) float64 { return float64(r.stats.Final.Observations) }},
	{"generated", "test cases", func(r *campaignRun) float64 { return float64(r.stats.Final.Generated) }},
	{"corpus_objects", "files", func(r *campaignRun) float64 { return float64(len(r.corpus)) }},
	{"interesting", "test cases", func(r *campaignRun) float64 { return float64(r.stats.Final.Interesting) }},
	{"masters_used", "masters", func(r *campaignRun) float64 { return float64(r.stats.Final.MastersUsed) }},
	{"acks", "workers", func(r *campaignRun) float64 { return sum(r, func(m master) int { return m.Acked }) }},
	{"epochs_left", "folders", func(r *campaignRun) float64 { return float64(len(r.LeftFolders)) }},
	{"processes_left", "processes", func(r *campaignRun) float64 { return float64(r.LeftProcesses) }},
	{"failures", "batches", func(r *campaignRun) float64 { return sum(r, func(m master) int { return m.Failures }) }},
	{"batches", "batches", func(r *campaignRun) float64 { return sum(r, func(m master) int { return m.Batches }) }},
	{"renewals", "renewals", renewals},
	{"directory_syncs", "syncs", func(r *campaignRun) float64 { return sum(r, func(m master) int { return m.DirectorySyncs }) }},
	{"avoided", "syncs", avoided},
	{"reduction", "%", func(r *campaignRun) float64 { return 100 * avoided(r) / max(renewals(r), 1) }},
	{"least_of_a_master", "analyses", leastOfAMaster},
	{"repeated_executions", "executions", repeated},
	{"wall_s", "s", func(r *campaignRun) float64 { return r.WallS }},
}

// leastOfAMaster is the smaller half of the report's "7 / 6".
func leastOfAMaster(r *campaignRun) float64 {
	least := r.stats.Final.Observations
	for _, m := range r.stats.Masters {
		least = min(least, r.stats.Final.ByMaster[fmt.Sprint(m.Rank)])
	}
	return float64(least)
}

// repeated counts executions beyond one for each object: a lease that lapsed on a busy machine is executed again, which
// fencing makes harmless.
func repeated(r *campaignRun) float64 {
	ids, starts := map[string]bool{}, 0
	for _, e := range r.executions {
		if e.Event == "start" {
			ids[e.ID] = true
			starts++
		}
	}
	return float64(starts - len(ids))
}

type identity struct {
	name  string
	holds func(r *campaignRun) bool
}

var identities = []identity{
	{"avoided_is_difference", func(r *campaignRun) bool {
		return everyMaster(r, func(m master) bool { return m.Avoided == m.Renewals-m.DirectorySyncs })
	}},
	{"some_avoided", func(r *campaignRun) bool { return avoided(r) > 0 }},
	{"bounded", func(r *campaignRun) bool {
		return everyMaster(r, func(m master) bool {
			return m.DirectorySyncs <= min(m.Renewals, r.Shards*m.Batches) && (m.Renewals == 0 || m.DirectorySyncs > 0)
		})
	}},
	{"conserved", conserved},
	{"content_addressed", func(r *campaignRun) bool {
		return len(r.corpus) > 0 && !slices.ContainsFunc(r.corpus, func(o Object) bool { return o.Name != o.SHA256 })
	}},
	{"clean", func(r *campaignRun) bool {
		return everyMaster(r, func(m master) bool { return m.Clean && m.Acked == m.Workers })
	}},
}

func everyMaster(r *campaignRun, holds func(m master) bool) bool {
	return len(r.stats.Masters) > 0 && !slices.ContainsFunc(r.stats.Masters, func(m master) bool { return !holds(m) })
}

// conserved counts the same work in four ways that share no code: the records' total, the masters' shares, what went in and
// what came out, and the executions that the workers logged.
func conserved(r *campaignRun) bool {
	f := r.stats.Final
	byMaster := 0
	for _, n := range f.ByMaster {
		byMaster += n
	}
	seeds, corpus := map[string]bool{}, map[string]bool{}
	for _, o := range r.seeds {
		seeds[o.SHA256] = true
	}
	children := 0
	for _, o := range r.corpus {
		corpus[o.SHA256] = true
		if !seeds[o.SHA256] {
			children++
		}
	}
	ended := map[string]bool{}
	for _, e := range r.executions {
		if e.Event == "end" {
			ended[strings.ToLower(e.ID)] = true
		}
	}
	for hash := range seeds {
		if !corpus[hash] || !ended[hash] {
			return false
		}
	}
	n := f.Observations
	return f.Unfinished == 0 && n == byMaster && n == len(seeds)+children && n == len(corpus) && n == len(ended) && n == f.Objects
}
