package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
	"shardlease/pkg/lease"
)

// sweepErrors are injected in turn: a broken disk and a full one.
var sweepErrors = []syscall.Errno{syscall.EIO, syscall.ENOSPC}

// sweep fails each operation of a batch once, with each error, and looks whether the caller was told.
func sweep(ctx context.Context, work string) ([]SweepStep, error) {
	var out []SweepStep
	for _, errno := range sweepErrors {
		for n := 1; ; n++ {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			dir, err := os.MkdirTemp(work, "sweep-")
			if err != nil {
				return nil, err
			}
			step, more, err := sweepStep(ctx, filepath.Join(dir, "root"), n, errno)
			if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
				return nil, fmt.Errorf("operation %d, %v: %w", n, errno, err)
			}
			if !more {
				break
			}
			out = append(out, step)
		}
	}
	return out, nil
}

// failable leaves out closing and unlocking: the descriptor is gone whatever they return, and what was written through it
// was synced before.
func failable(call *vfs.Call) bool { return call.Op != vfs.OpClose && call.Op != vfs.OpUnlock }

// sweepStep fails operation n. more is false when the batch has fewer.
func sweepStep(ctx context.Context, root string, n int, errno syscall.Errno) (step SweepStep, more bool, err error) {
	ids := []lease.ID{firstOfShard0, secondOfShard0, onlyOfShard1}
	b, err := newBed(ctx, root, library, ids...)
	if err != nil {
		return step, false, err
	}
	injected := fmt.Errorf("injected into operation %d: %w", n, errno)
	step = SweepStep{Operation: n, Error: errno.Error()}
	hit := func(call *vfs.Call) { step.Kind, step.Name = string(call.Op), filepath.Base(call.Name) }
	b.fault.Inject(faultfs.Rule{Match: failable, Nth: n, Err: injected, Hook: hit})
	result, renewErr := b.renew()
	step.Injected, step.Surfaced, step.ZeroBatch = b.fault.Injected(), surfaced(renewErr, injected), isZero(result)
	b.fault.Clear()
	if step.Injected == 0 {
		return step, false, errors.Join(renewErr, b.close())
	}
	durable := result.Renewed
	var batch *lease.BatchError
	if errors.As(renewErr, &batch) {
		durable = batch.Durable
	}
	for _, id := range durable {
		if b.updated(id) != fmt.Sprint(renewedAt) {
			step.Lied++
		}
	}
	return step, true, b.close()
}
