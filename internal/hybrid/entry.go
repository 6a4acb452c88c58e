package hybrid

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"shardlease/pkg/lease"
)

// entry is what the heartbeat lane calls: it turns the lane's snapshot of held work into one HeartbeatFenced with the target groups that
// belong to it. The coordinator adds and removes from its own goroutine while the lane beats from another.
type entry struct {
	work    WorkLeases
	targets TargetLeases // nil if target leases are off
	log     *EventLog

	mu      sync.Mutex
	workers map[lease.ID]int
	groups  map[lease.ID]Group
	total   Counters
	calls   uint64
	trouble error // of the last heartbeat, nil if it was a success
}

func newEntry(work WorkLeases, targets TargetLeases, log *EventLog) *entry {
	return &entry{work: work, targets: targets, log: log, workers: map[lease.ID]int{}, groups: map[lease.ID]Group{}}
}

// hold notes which worker a lease was taken for, and the group that goes with it. It comes before the lease is added to what the lane
// renews, and release after it is dropped from there.
func (e *entry) hold(worker int, id lease.ID, group *Group) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.workers[id] = worker
	if group != nil {
		e.groups[id] = *group
	}
}

func (e *entry) release(id lease.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.workers, id)
	delete(e.groups, id)
}

// counters are the totals so far, the number of calls, and what went wrong in the last one.
func (e *entry) counters() (Counters, uint64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.total, e.calls, e.trouble
}

// HeartbeatMany implements campaign.Beater.
func (e *entry) HeartbeatMany(ctx context.Context, held map[lease.ID]lease.Token) (lease.HeartbeatBatch, error) {
	active := make(map[int]Lease, len(held))
	var settled []lease.ID
	e.mu.Lock()
	for id, tok := range held {
		if worker, ok := e.workers[id]; ok {
			active[worker] = Lease{ID: id, Token: tok}
		} else {
			settled = append(settled, id)
		}
	}
	var groups []Group
	var owners []lease.ID // of the groups
	for _, worker := range slices.Sorted(maps.Keys(active)) {
		id := active[worker].ID
		if group, ok := e.groups[id]; ok {
			groups, owners = append(groups, group), append(owners, id)
		}
	}
	e.mu.Unlock()

	began := time.Now()
	f := HeartbeatFenced(ctx, e.work, active, e.targets, groups, nil)

	e.mu.Lock()
	e.forgive(&f, owners)
	e.total.add(f.Counters)
	e.calls++
	e.trouble = f.Err()
	e.mu.Unlock()
	e.log.heartbeat(f, began)
	// What the coordinator has settled since the lane took its snapshot is not held any more. The lane wants to know what became of each.
	f.Batch.Lost = append(f.Batch.Lost, settled...)
	return f.Batch, f.WorkErr
}

// forgive takes from the failed what the coordinator has given up or finished itself while the heartbeat ran: when its turn came it was
// not held any more. The caller holds mu.
func (e *entry) forgive(f *Fenced, owners []lease.ID) {
	for _, id := range f.Batch.Lost {
		if _, held := e.workers[id]; !held {
			f.WorkFailed--
		}
	}
	for i, err := range f.GroupErrs {
		if _, held := e.workers[owners[i]]; !held && errors.Is(err, lease.ErrLost) {
			f.TargetFailed--
			f.GroupErrs[i] = nil
		}
	}
}
