//go:build !mpi || !cgo

package mpi_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"shardlease/pkg/mpirun/mpi"
)

func TestWithoutTheTagEverythingSaysHowToBuild(t *testing.T) {
	ctx := t.Context()
	var c mpi.Comm
	_, recvErr := c.Recv(ctx, 0, 0)
	_, _, tryErr := c.TryRecv(0, 0)
	_, splitErr := c.Split(ctx, 0, 0)
	called := false
	runErr := mpi.Run(ctx, mpi.Options{}, func(context.Context, *mpi.Comm) error { called = true; return nil })
	for _, err := range []error{runErr, c.Send(ctx, 0, 0, nil), recvErr, tryErr, splitErr, c.Barrier(ctx)} {
		if !errors.Is(err, mpi.ErrNotBuilt) {
			t.Errorf("got %v, want ErrNotBuilt", err)
		}
	}
	for _, word := range []string{"-tags mpi", "libopenmpi-dev", "CGO_ENABLED=1"} {
		if !strings.Contains(mpi.ErrNotBuilt.Error(), word) {
			t.Errorf("ErrNotBuilt does not name %s: %v", word, mpi.ErrNotBuilt)
		}
	}
	if called || mpi.Enabled || c.Rank() != -1 || c.Size() != 0 {
		t.Errorf("the stub has a world: %v %v %d %d", called, mpi.Enabled, c.Rank(), c.Size())
	}
}
