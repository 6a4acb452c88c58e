package restart

import (
	"slices"

	"shardlease/internal/experiment"
)

// Reduce computes the metrics:
//
//	campaigns, jobs, unfinished   campaigns whose last job did not end well or left its epoch
//	done_once, published_once     1 if in every campaign
//	executions, executions.repeated, .bound (sums), .over_bound (campaigns), .same_fence (beyond rejected results)
//	processes_left, faults.done, faults.not_done, faults.skipped
//	recovery_s                    from the restart of a job to the first execution, median with least and most
//	records.leased, .renewed, .not_renewed, .never_executed, .committing, .unreadable   as found after jobs that were cut off
//	records.age_s                 of leased records, at the end of their job
func (r *Restart) Reduce(dir string) (*experiment.Metrics, error) {
	runs, err := load(dir)
	if err != nil {
		return nil, err
	}
	m := &experiment.Metrics{Experiment: "restart"}
	add := func(name string, value int, unit string) {
		m.Metrics = append(m.Metrics, experiment.Exact(name, float64(value), unit, "campaign-1/"+campaignFile))
	}
	every := func(name string, holds func(*run) bool) {
		metric := experiment.Bool(name, !slices.ContainsFunc(runs, func(r *run) bool { return !holds(r) }), "campaign-1/"+campaignFile)
		metric.N = len(runs)
		m.Metrics = append(m.Metrics, metric)
	}
	total := func(of func(*run) int) (n int) {
		for _, r := range runs {
			n += of(r)
		}
		return n
	}
	count := func(holds func(*run) bool) int {
		return total(func(r *run) int {
			if holds(r) {
				return 1
			}
			return 0
		})
	}
	add("campaigns", len(runs), "campaigns")
	add("jobs", total(func(r *run) int { return len(r.Jobs) }), "jobs")
	add("unfinished", count(func(r *run) bool { return !r.finished() }), "campaigns")
	every("done_once", (*run).doneOnce)
	every("published_once", (*run).publishedOnce)
	add("executions", total((*run).starts), "executions")
	add("executions.repeated", total((*run).repeated), "executions")
	add("executions.bound", total((*run).bound), "executions")
	add("executions.over_bound", count(func(r *run) bool { return r.starts() > r.bound() }), "campaigns")
	add("executions.same_fence", total(func(r *run) int { return max(0, r.sameFence()-r.rejected()) }), "executions")
	jobs := func(of func(Job) int) int {
		return total(func(r *run) (n int) {
			for _, j := range r.Jobs {
				n += of(j)
			}
			return n
		})
	}
	add("processes_left", jobs(func(j Job) int { return j.Left }), "processes")
	add("faults.done", jobs(func(j Job) int { return number(j.Done) }), "faults")
	add("faults.not_done", jobs(func(j Job) int { return number(j.Fault != none && !j.Done) }), "faults")
	add("faults.skipped", total(func(r *run) int { return len(r.Skipped) }), "faults")
	addRecords(m, runs, add)
	var recovery []float64
	for _, r := range runs {
		recovery = append(recovery, r.recoveries()...)
	}
	addRange(m, "recovery_s", recovery)
	return m, m.Finish()
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// addRecords counts what jobs left that did not end well.
func addRecords(m *experiment.Metrics, runs []*run, add func(name string, value int, unit string)) {
	var leased, renewed, old, never, committing, torn int
	var ages []float64
	for _, r := range runs {
		for _, rec := range r.leftRecords() {
			switch {
			case rec.Status == unreadable:
				torn++
			case rec.Status == "committing":
				committing++
			case rec.Status == "leased":
				leased++
				ages = append(ages, rec.AgeS)
				switch {
				case rec.SinceStartS == nil:
					never++
				case *rec.SinceStartS > 0:
					renewed++
				default:
					old++
				}
			}
		}
	}
	add("records.leased", leased, "records")
	add("records.renewed", renewed, "records")
	add("records.not_renewed", old, "records")
	add("records.never_executed", never, "records")
	add("records.committing", committing, "records")
	add("records.unreadable", torn, "records")
	addRange(m, "records.age_s", ages)
}

// addRange adds a median with the least and the most as its interval; without values there is nothing to say.
func addRange(m *experiment.Metrics, name string, values []float64) {
	if len(values) == 0 {
		return
	}
	slices.Sort(values)
	metric := experiment.Exact(name, values[len(values)/2], "s", "campaign-1/"+campaignFile)
	metric.Low, metric.High, metric.N = values[0], values[len(values)-1], len(values)
	m.Metrics = append(m.Metrics, metric)
}
