package mpirun_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"shardlease/pkg/mpirun"
)

// A launcher command: eight ranks of a program, Ctrl-C stops them in order.
func ExampleLauncher_Run() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	launcher, err := mpirun.Find(ctx)
	if err != nil {
		log.Fatal(err)
	}
	result, err := launcher.Run(ctx, mpirun.Job{
		Program: "./campaign", Args: []string{"--output", "out"},
		Ranks: 8, Oversubscribe: true,
		Timeout: time.Hour, Grace: 10 * time.Second,
		Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if exit, ok := errors.AsType[*mpirun.ExitError](err); ok {
		os.Exit(exit.Code)
	} else if err != nil {
		log.Fatal(err)
	}
	log.Printf("Open MPI %s ran for %v", result.Version, result.Wall)
}

func ExampleLauncher_Command() {
	launcher := &mpirun.Launcher{Path: "mpirun", Version: "5.0.3", Major: 5}
	argv, env, err := launcher.Command(mpirun.Job{Program: "prog", Ranks: 2, HostFile: "hosts"})
	fmt.Println(argv, env, err)
	// Output:
	// [mpirun -n 2 --bind-to none --output tag --hostfile hosts --mca mpi_yield_when_idle 1 prog] [MPIRUN_WORLD_SIZE=2] <nil>
}

func ExampleUntag() {
	rank, stream, text, ok := mpirun.Untag("[3 stdout] 12 seeds left")
	fmt.Println(rank, stream, text, ok)
	// Output: 3 stdout 12 seeds left true
}
