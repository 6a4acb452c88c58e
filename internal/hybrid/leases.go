package hybrid

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"shardlease/internal/campaign"
	"shardlease/pkg/lease"
)

// workTable is what the coordinator uses of *lease.Table.
type workTable interface {
	campaign.Beater
	WorkLeases
	Claim(ctx context.Context, id lease.ID, payload json.RawMessage, by lease.Holder) (lease.Token, error)
	BeginCommit(ctx context.Context, id lease.ID, tok lease.Token, manifest json.RawMessage) error
	Complete(ctx context.Context, id lease.ID, tok lease.Token, publish func(context.Context, json.RawMessage) error) (bool, error)
	Abandon(ctx context.Context, id lease.ID, tok lease.Token) error
	Lookup(id lease.ID) (lease.Record, error)
	Expired(ctx context.Context, limit int) ([]lease.Record, error)
	Committing(ctx context.Context, limit int) ([]lease.Record, error)
	Close() error
}

// targetTable is what the coordinator uses of *lease.TargetTable.
type targetTable interface {
	TargetLeases
	ClaimGroup(ctx context.Context, targets []uint64, payload json.RawMessage, by lease.Holder) (lease.Token, error)
	ReleaseGroup(ctx context.Context, targets []uint64, tok lease.Token) error
}

// reservation is what a dispatch holds.
type reservation struct {
	lease    Lease  // a zero token if leases are off
	group    *Group // nil if it has no targets, or target leases are off
	tookOver bool   // from a holder whose lease had expired
}

// ownership takes and gives back leases, and keeps the heartbeat lane's view in step. With leases off (work is nil) it grants everything:
// then two coordinators may work on one input.
type ownership struct {
	work    workTable
	targets targetTable // nil if target leases are off
	held    *campaign.Holdings
	entry   *entry
	owner   string
}

// Why a reservation was refused. Neither is a fault.
var (
	errTargetsBusy = errors.New("its branch targets are being worked on")
	errElsewhere   = errors.New("another coordinator has it")
)

// reserve takes the target group, then the work lease; a refusal of the second gives the first back. The error is lease.ErrDone,
// errTargetsBusy, errElsewhere, or that of the storage.
func (o *ownership) reserve(ctx context.Context, it item, id lease.ID, worker int) (reservation, error) {
	r := reservation{lease: Lease{ID: id}}
	if o.work == nil {
		return r, nil
	}
	// Most inputs of a shared queue are done already when the second coordinator comes to them: one read, no lock.
	rec, err := o.work.Lookup(id)
	if err == nil && rec.Status == lease.Done {
		return r, lease.ErrDone
	}
	r.tookOver = err == nil && rec.Status == lease.Leased // if the claim succeeds
	by, payload := lease.Holder{Owner: o.owner, Worker: worker}, encode(it)
	if o.targets != nil && len(it.Targets) > 0 {
		tok, err := o.targets.ClaimGroup(ctx, it.Targets, payload, by)
		if errors.Is(err, lease.ErrHeld) {
			return r, errTargetsBusy
		}
		if err != nil {
			return r, fmt.Errorf("claim branch targets: %w", err)
		}
		r.group = &Group{Targets: it.Targets, Token: tok}
	}
	tok, err := o.work.Claim(ctx, id, payload, by)
	if err != nil {
		if rerr := o.releaseGroup(ctx, r.group); rerr != nil {
			return r, errors.Join(err, rerr)
		}
		if errors.Is(err, lease.ErrHeld) || errors.Is(err, lease.ErrCommitting) {
			return r, errElsewhere
		}
		return r, fmt.Errorf("claim work: %w", err)
	}
	r.lease.Token = tok
	o.entry.hold(worker, id, r.group)
	o.held.Add(id, tok)
	return r, nil
}

// settle ends the holding, without a word to the tables.
func (o *ownership) settle(r reservation) {
	if o.work != nil {
		o.held.Drop(r.lease.ID, r.lease.Token)
		o.entry.release(r.lease.ID)
	}
}

// giveUp makes the work claimable at once, in the reverse order of reserve. Somebody else's lease is not touched.
func (o *ownership) giveUp(ctx context.Context, r reservation) error {
	if o.work == nil {
		return nil
	}
	o.settle(r)
	err := o.work.Abandon(ctx, r.lease.ID, r.lease.Token)
	if errors.Is(err, lease.ErrLost) {
		err = nil
	}
	return errors.Join(err, o.releaseGroup(ctx, r.group))
}

// releaseGroup gives branch targets free. Targets that are lost, or that expire for an error, cost nobody a result.
func (o *ownership) releaseGroup(ctx context.Context, group *Group) error {
	if group == nil {
		return nil
	}
	if err := o.targets.ReleaseGroup(ctx, group.Targets, group.Token); err != nil && !errors.Is(err, lease.ErrLost) {
		return fmt.Errorf("release branch targets: %w", err)
	}
	return nil
}

// commit begins the commit with the manifest and publishes under the record's lock; with leases off it just publishes. first is false if
// another coordinator has finished the begun commit meanwhile. An error that matches lease.ErrLost means that nothing was published and that
// the work belongs to another. After any other error the record is still leased, and will expire, or is committing, and
// will be redone: the caller must leave the stage alone.
func (o *ownership) commit(ctx context.Context, r reservation, m manifest, publish func(context.Context, json.RawMessage) error) (first bool, err error) {
	raw := encode(m)
	if o.work == nil {
		return true, publish(ctx, raw)
	}
	err = o.work.BeginCommit(ctx, r.lease.ID, r.lease.Token, raw)
	// A committing record is never taken over by time, so it needs no heartbeat; and the lane must not wait for its lock.
	o.settle(r)
	if err != nil {
		return false, errors.Join(fmt.Errorf("begin commit: %w", err), o.releaseGroup(ctx, r.group))
	}
	if first, err = o.work.Complete(ctx, r.lease.ID, r.lease.Token, publish); err != nil {
		return false, fmt.Errorf("complete: %w", err)
	}
	return first, o.releaseGroup(ctx, r.group)
}
