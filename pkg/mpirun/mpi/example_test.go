package mpi_test

import (
	"context"
	"fmt"
	"log"
	"os/signal"
	"syscall"

	"shardlease/pkg/mpirun/mpi"
)

// Rank 0 collects a message of every other rank. mpirun's SIGUSR1 is the request to
// stop, which ends each wait.
func ExampleRun() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGUSR1)
	defer stop()
	err := mpi.Run(ctx, mpi.Options{WorldSize: 8}, func(ctx context.Context, world *mpi.Comm) error {
		const tagResult = 1
		if world.Rank() != 0 {
			return world.Send(ctx, 0, tagResult, fmt.Appendf(nil, "from rank %d", world.Rank()))
		}
		for range world.Size() - 1 {
			m, err := world.Recv(ctx, mpi.AnySource, tagResult)
			if err != nil {
				return err
			}
			fmt.Printf("%d: %s\n", m.From, m.Data)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err) // exit code 1: mpirun ends the other ranks
	}
}
