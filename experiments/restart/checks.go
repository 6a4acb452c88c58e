package restart

import "strings"

func (r *run) last() Job { return r.Jobs[len(r.Jobs)-1] }

func (r *run) finished() bool {
	return len(r.Jobs) > 0 && r.last().ExitCode == 0 && r.Epochs == 0
}

// items are the objects of the corpus, each of which is an item.
func (r *run) items() int { return len(r.Objects) }

// doneOnce checks the records: those at the end as the campaign counted them, and those between the jobs, of which none that was done may change.
func (r *run) doneOnce() bool {
	done := map[string]uint64{}
	for _, j := range r.Jobs {
		found := map[string]bool{}
		for _, rec := range j.Records {
			fence, before := done[rec.ID]
			if found[rec.ID] || before && (rec.Status != "done" || rec.Fence != fence) {
				return false
			}
			found[rec.ID] = true
			if rec.Status == "done" {
				done[rec.ID] = rec.Fence
			}
		}
		for id := range done {
			if !found[id] && len(j.Records) > 0 {
				return false
			}
		}
	}
	f := r.last().Final
	return f != nil && f.Unfinished == 0 && f.Observations == f.Objects && f.Objects == r.items()
}

// publishedOnce checks that each seed has exactly one mark, and that nothing else is there.
func (r *run) publishedOnce() bool {
	marks, seeds := map[string]int{}, map[string]bool{}
	for _, o := range r.Objects {
		if o.Name != o.SHA256 {
			return false
		}
		if o.Mark == "" {
			seeds[o.Name] = true
		} else {
			marks[o.Mark]++
		}
	}
	for seed := range seeds {
		if marks[seed] != 1 {
			return false
		}
	}
	return len(seeds) == r.Seeds && len(marks) == r.Seeds
}

func (r *run) starts() (n int) {
	for _, e := range r.executions {
		n += number(e.Event == "start")
	}
	return n
}

// repeated are the executions beyond the first of each item.
func (r *run) repeated() int {
	ids := map[string]bool{}
	for _, e := range r.executions {
		if e.Event == "start" {
			ids[e.ID] = true
		}
	}
	return r.starts() - len(ids)
}

// sameFence are the executions beyond the first of each item under each fence.
func (r *run) sameFence() int {
	type lease struct {
		id    string
		fence uint64
	}
	leases := map[lease]bool{}
	for _, e := range r.executions {
		if e.Event == "start" {
			leases[lease{e.ID, e.Fence}] = true
		}
	}
	return r.starts() - len(leases)
}

func (r *run) rejected() (n int) {
	for _, j := range r.Jobs {
		n += j.Rejected
	}
	return n
}

// bound is the most executions that there may be: items + workers x (jobs cut off + 2 x stops) + rejected results. A job that is cut off loses at
// most one execution or result of each worker. A stop that outlasts the TTL costs each worker that, and one more lease that its master sends out before
// its first heartbeat finds it lost. A full disk cuts its job off.
func (r *run) bound() int {
	times := 0
	for _, j := range r.Jobs {
		times += number(j.ExitCode != 0) + 2*number(j.Done && strings.HasPrefix(j.Fault, "stop"))
	}
	return r.items() + r.Workers*times + r.rejected()
}

// leftRecords are the records found after jobs that did not end well.
func (r *run) leftRecords() (list []Record) {
	for _, j := range r.Jobs {
		if j.ExitCode != 0 {
			list = append(list, j.Records...)
		}
	}
	return list
}

// recoveries are the times from the start of each job after one that was cut off to its first execution.
func (r *run) recoveries() (seconds []float64) {
	for i := 1; i < len(r.Jobs); i++ {
		j := r.Jobs[i]
		for _, e := range r.executions {
			if e.Event == "start" && e.Time.After(j.Start) && e.Time.Before(j.End) {
				seconds = append(seconds, e.Time.Sub(j.Start).Seconds())
				break
			}
		}
	}
	return seconds
}
