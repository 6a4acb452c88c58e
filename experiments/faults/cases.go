package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
	"shardlease/pkg/lease"
)

// scenario is a case before it has run.
type scenario struct {
	name       string
	invariants []string
	fault      string
	run        func(ctx context.Context, root string, s subject, c *Case) error
}

// run gives the case; an error means that the scenario itself could not be set up.
func (sc scenario) on(ctx context.Context, root string, s subject) (Case, error) {
	c := Case{Name: sc.name, Subject: s.name, Invariants: sc.invariants, Fault: sc.fault, Checks: []Check{}}
	dir, err := os.MkdirTemp(root, "case-")
	if err != nil {
		return c, err
	}
	if err := sc.run(ctx, filepath.Join(dir, "root"), s, &c); err != nil {
		return c, fmt.Errorf("%s, %s: %w", s.name, sc.name, err)
	}
	return c, os.RemoveAll(dir)
}

// scenarios lists the cases; the two with a name of their own are those that the planted bugs must fail.
func scenarios() []scenario {
	list := []scenario{crossDirectory, oneBarrierPerShard, staleToken, powerCut}
	for _, op := range []vfs.Op{vfs.OpOpen, vfs.OpWrite, vfs.OpSync, vfs.OpRename} {
		list = append(list, laterFailure(op))
	}
	list = append(list, failedBarrier, failedBarrierOfOne)
	return append(list, targetScenarios()...)
}

// Directed test 1.
var crossDirectory = scenario{"cross-directory-replace-is-refused", []string{"G8"}, "source and destination in two directories",
	func(_ context.Context, root string, s subject, c *Case) error {
		first, second := filepath.Join(root, "first"), filepath.Join(root, "second")
		if err := errors.Join(os.MkdirAll(first, 0o755), os.MkdirAll(second, 0o755), os.WriteFile(filepath.Join(first, "record"), []byte("x"), 0o600)); err != nil {
			return err
		}
		batch := groupcommit.NewBatch(s.fs(vfs.OS))
		err := batch.Replace(filepath.Join(first, "record"), filepath.Join(second, "record"))
		c.expect("the error is ErrCrossDirectory", true, errors.Is(err, groupcommit.ErrCrossDirectory))
		_, err = os.Stat(filepath.Join(first, "record"))
		c.expect("the source is still there", true, err == nil)
		_, err = os.Stat(filepath.Join(second, "record"))
		c.expect("the destination is absent", true, errors.Is(err, os.ErrNotExist))
		c.expect("pending directories", 0, len(batch.Pending()))
		return nil
	}}

// Directed test 2.
var oneBarrierPerShard = scenario{"each-shard-is-synced-once", []string{"G1", "G3", "G4"}, "none",
	func(ctx context.Context, root string, s subject, c *Case) error {
		b, err := newBed(ctx, root, s, firstOfShard0, secondOfShard0, onlyOfShard1)
		if err != nil {
			return err
		}
		result, err := b.renew()
		c.expect("error", nil, err)
		c.expect("renewed", "first second third", idNames(result.Renewed))
		c.expect("lost", "", idNames(result.Lost))
		c.expect("directory syncs reported", 2, result.DirectorySyncs)
		c.expect("shards synced, in order", []string{"0", "1"}, b.barriers())
		c.expect("contents and names were durable before the acknowledgement", nil, b.trace.Check(acknowledged))
		for _, id := range []lease.ID{firstOfShard0, secondOfShard0, onlyOfShard1} {
			c.expect("time of the "+idNames([]lease.ID{id}), "19", b.updated(id))
		}
		c.Trace = b.trace.String()
		return b.close()
	}}

// Directed test 5.
var staleToken = scenario{"stale-token-causes-no-write", []string{"G7"}, "the second holder presents a token that was replaced",
	func(ctx context.Context, root string, s subject, c *Case) error {
		b, err := newBed(ctx, root, s, firstOfShard0, onlyOfShard1)
		if err != nil {
			return err
		}
		stale := b.held[onlyOfShard1]
		stale.Nonce[0] ^= 0xff
		b.held[onlyOfShard1] = stale
		before := b.content(onlyOfShard1)
		result, err := b.renew()
		c.expect("error", nil, err)
		c.expect("renewed", "first", idNames(result.Renewed))
		c.expect("lost", "third", idNames(result.Lost))
		c.expect("directory syncs reported", 1, result.DirectorySyncs)
		c.expect("shards synced, in order", []string{"0"}, b.barriers())
		c.expect("records published", 1, b.renames())
		c.expect("the other holder's record is unchanged", true, before == b.content(onlyOfShard1))
		c.Trace = b.trace.String()
		return b.close()
	}}

// laterFailure is directed test 3, for each operation by which a record is published. Beyond the report, the records after
// the failed one are renewed as well.
func laterFailure(op vfs.Op) scenario {
	return scenario{"published-prefix-is-flushed-after-a-failed-" + string(op), []string{"G5"}, "EIO from the " + string(op) + " of the second record",
		func(ctx context.Context, root string, s subject, c *Case) error {
			b, err := newBed(ctx, root, s, firstOfShard0, secondOfShard0, onlyOfShard1)
			if err != nil {
				return err
			}
			injected := fmt.Errorf("injected second-record failure: %w", syscall.EIO)
			rule := faultfs.Rule{Op: op, Base: secondOfShard0.String() + "*", Err: injected}
			if op == vfs.OpOpen {
				rule.Match = func(call *vfs.Call) bool { return call.Flag&os.O_CREATE != 0 }
			}
			b.fault.Inject(rule)
			result, err := b.renew()
			c.Injected, c.Surfaced = b.fault.Injected(), surfaced(err, injected)
			var batch *lease.BatchError
			c.expect("the error is a *BatchError", true, errors.As(err, &batch))
			if batch == nil {
				batch = &lease.BatchError{}
			}
			c.expect("errors injected", 1, c.Injected)
			c.expect("no success is returned", true, isZero(result))
			c.expect("failed", "second", failedNames(batch))
			c.expect("durable all the same", "first third", idNames(batch.Durable))
			c.expect("shards synced, in order", []string{"0", "1"}, b.barriers())
			c.expect("time of the first", "19", b.updated(firstOfShard0))
			c.expect("time of the second", "10", b.updated(secondOfShard0))
			c.expect("time of the third", "19", b.updated(onlyOfShard1))
			c.Trace = b.trace.String()
			return b.close()
		}}
}

// Directed test 4.
var failedBarrier = scenario{"failed-barrier-is-not-acknowledged", []string{"G6"}, "EIO from every directory sync",
	func(ctx context.Context, root string, s subject, c *Case) error {
		b, err := newBed(ctx, root, s, firstOfShard0, secondOfShard0)
		if err != nil {
			return err
		}
		injected := fmt.Errorf("directory barrier failed: %w", syscall.EIO)
		b.fault.Inject(faultfs.Rule{Op: vfs.OpSyncDir, Err: injected, Sticky: true})
		result, err := b.renew()
		c.Injected, c.Surfaced = b.fault.Injected(), surfaced(err, injected)
		var batch *lease.BatchError
		c.expect("the error is a *BatchError", true, errors.As(err, &batch))
		if batch == nil {
			batch = &lease.BatchError{}
		}
		c.expect("directory syncs tried", 1, c.Injected)
		c.expect("the error says unknown", true, errors.Is(err, groupcommit.ErrUnknown))
		c.expect("no success is returned", true, isZero(result))
		c.expect("unknown", "first second", idNames(batch.Unknown))
		c.expect("durable", "", idNames(batch.Durable))
		c.expect("the new time is visible in the first", "19", b.updated(firstOfShard0))
		c.expect("the new time is visible in the second", "19", b.updated(secondOfShard0))
		c.Trace = b.trace.String()
		return b.close()
	}}

var failedBarrierOfOne = scenario{"failed-barrier-fails-its-shard-only", []string{"G3", "G6"}, "EIO from the first directory sync",
	func(ctx context.Context, root string, s subject, c *Case) error {
		b, err := newBed(ctx, root, s, firstOfShard0, secondOfShard0, onlyOfShard1)
		if err != nil {
			return err
		}
		injected := fmt.Errorf("directory barrier failed: %w", syscall.EIO)
		b.fault.Inject(faultfs.Rule{Op: vfs.OpSyncDir, Err: injected})
		result, err := b.renew()
		c.Injected, c.Surfaced = b.fault.Injected(), surfaced(err, injected)
		var batch *lease.BatchError
		c.expect("the error is a *BatchError", true, errors.As(err, &batch))
		if batch == nil {
			batch = &lease.BatchError{}
		}
		c.expect("errors injected", 1, c.Injected)
		c.expect("no success is returned", true, isZero(result))
		c.expect("unknown", "first second", idNames(batch.Unknown))
		c.expect("durable", "third", idNames(batch.Durable))
		c.expect("shards synced", []string{"1"}, b.barriers())
		c.Trace = b.trace.String()
		return b.close()
	}}
