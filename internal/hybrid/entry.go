package hybrid

import (
	"context"
	"maps"
	"slices"
	"sync"

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
	e.mu.Lock()
	for id, tok := range held {
		if worker, ok := e.workers[id]; ok {
			active[worker] = Lease{ID: id, Token: tok}
		}
	}
	var groups []Group
	for _, worker := range slices.Sorted(maps.Keys(active)) {
		if group, ok := e.groups[active[worker].ID]; ok {
			groups = append(groups, group)
		}
	}
	e.mu.Unlock()

	f := HeartbeatFenced(ctx, e.work, active, e.targets, groups, nil)
	e.log.heartbeat(f)

	e.mu.Lock()
	defer e.mu.Unlock()
	e.total.add(f.Counters)
	e.calls++
	if e.trouble = f.WorkErr; e.trouble == nil {
		e.trouble = f.TargetErr
	}
	return f.Batch, f.WorkErr
}
