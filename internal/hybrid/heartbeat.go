package hybrid

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"shardlease/internal/campaign"
	"shardlease/pkg/lease"
)

// WorkLeases renews one work lease. A table that also implements campaign.Beater is asked for all of them in one call.
type WorkLeases interface {
	Heartbeat(ctx context.Context, id lease.ID, tok lease.Token) error
}

// TargetLeases renews one group of branch targets, all or nothing.
type TargetLeases interface {
	HeartbeatGroup(ctx context.Context, targets []uint64, tok lease.Token) error
}

// Lease is a work lease that a worker's dispatch holds.
type Lease struct {
	ID    lease.ID
	Token lease.Token
}

// Group is a group of branch targets that one token holds.
type Group struct {
	Targets []uint64
	Token   lease.Token
}

// Counters are the outcome of heartbeats: one count for each lease and period.
type Counters struct {
	WorkOK       uint64 `json:"work_ok"`
	WorkFailed   uint64 `json:"work_failed"`
	TargetOK     uint64 `json:"target_ok"`
	TargetFailed uint64 `json:"target_failed"`
}

func (c *Counters) add(o Counters) {
	c.WorkOK += o.WorkOK
	c.WorkFailed += o.WorkFailed
	c.TargetOK += o.TargetOK
	c.TargetFailed += o.TargetFailed
}

// Fenced is the outcome of one HeartbeatFenced.
type Fenced struct {
	Counters
	// Batch is what the work table reported, when nothing failed. A table without a batch call is credited with one
	// directory sync for each renewal.
	Batch lease.HeartbeatBatch
	// WorkErr is nil or why at least one work lease failed; it matches *lease.BatchError where the table gave one.
	WorkErr error
	// GroupErrs has what became of each group, the active ones first, then the pending.
	GroupErrs []error
}

// Err joins everything that went wrong.
func (f *Fenced) Err() error { return errors.Join(f.WorkErr, errors.Join(f.GroupErrs...)) }

// HeartbeatFenced renews everything that a coordinator holds: the active work leases of all workers in one HeartbeatMany when the table
// has that call, one by one otherwise; then each target group on its own, whatever became of the work leases. A nil
// table has nothing to renew. If ctx has a deadline, the work leases get half of the time at most, so that a storage that hangs on one of
// them leaves time for the groups. It never fails: outcomes are counted, and whether a result may be published is decided by the table when
// its commit begins, not here.
//
// Two rules meet in the batch. The report's rule (section 5.2): a batch that reports an error is no success for any of its members, so each
// counts as failed. The rule of isolation (F312): one bad record must not starve the others. Both hold because they
// are about different things. The first is about what is acknowledged: nothing is, and no token is treated as freshly
// renewed. The second is about what happens on disk: the table goes on after a bad record and runs every barrier, so the
// records that the batch error lists as Durable have been renewed and do not expire, however long one bad record keeps the
// counters at failed. Nobody's token is dropped for an error: only what the table has read as another state is lost.
func HeartbeatFenced(ctx context.Context, work WorkLeases, active map[int]Lease, targets TargetLeases, groups, pending []Group) Fenced {
	var f Fenced
	if work != nil && len(active) > 0 {
		half, cancel := halfTime(ctx)
		if batch, ok := work.(campaign.Beater); ok {
			f.batch(half, batch, active)
		} else {
			f.scalar(half, work, active)
		}
		cancel()
	}
	if targets != nil {
		for _, group := range slices.Concat(groups, pending) {
			err := targets.HeartbeatGroup(ctx, group.Targets, group.Token)
			f.GroupErrs = append(f.GroupErrs, err)
			if err != nil {
				f.TargetFailed++
			} else {
				f.TargetOK++
			}
		}
	}
	return f
}

func halfTime(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)/2)
}

// batch counts a member as renewed only if a call without any error says so. Two workers with the same lease are one
// entry of the call and two of the count.
func (f *Fenced) batch(ctx context.Context, table campaign.Beater, active map[int]Lease) {
	held := make(map[lease.ID]lease.Token, len(active))
	for _, l := range active {
		held[l.ID] = l.Token
	}
	batch, err := table.HeartbeatMany(ctx, held)
	if err != nil {
		f.WorkErr = fmt.Errorf("renew %d work leases: %w", len(held), err)
		f.WorkFailed += uint64(len(active))
		return
	}
	f.Batch = batch
	for _, l := range active {
		if slices.Contains(batch.Renewed, l.ID) {
			f.WorkOK++
		} else {
			f.WorkFailed++
		}
	}
}

// scalar is for a table without a batch call. Each lease is tried, whatever became of the one before.
func (f *Fenced) scalar(ctx context.Context, table WorkLeases, active map[int]Lease) {
	failed := &lease.BatchError{Failed: map[lease.ID]error{}}
	var result lease.HeartbeatBatch
	for _, worker := range slices.Sorted(maps.Keys(active)) {
		l := active[worker]
		err := table.Heartbeat(ctx, l.ID, l.Token)
		switch {
		case err == nil:
			result.Renewed = append(result.Renewed, l.ID)
			f.WorkOK++
			continue
		case errors.Is(err, lease.ErrLost):
			result.Lost = append(result.Lost, l.ID)
		default:
			failed.Failed[l.ID] = err
		}
		f.WorkFailed++
	}
	result.DirectorySyncs = len(result.Renewed)
	if len(failed.Failed) > 0 {
		failed.Durable, failed.Lost = result.Renewed, result.Lost
		f.WorkErr = failed
		return
	}
	f.Batch = result
}
