//go:build mpi && cgo

package mpi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// leaveGrace is how long Run waits for the other ranks once its context has ended
	// or its function has failed.
	leaveGrace = 2 * time.Second
	// finalizeLimit bounds MPI_Finalize itself, which all ranks then enter at once.
	finalizeLimit = 10 * time.Second
)

// worldSizeVariable is set by package mpirun for the ranks it starts.
const worldSizeVariable = "MPIRUN_WORLD_SIZE"

var started atomic.Bool

// Run initialises MPI, checks the size of the world, calls f with the communicator
// of all ranks, waits until all ranks have returned from f, finalises MPI and
// returns f's error, if any, joined with its own. It may be called once per process.
//
// Run waits for the other ranks without limit while ctx lives and f succeeded,
// otherwise two seconds; see ErrNotFinalized. A panic of f is not recovered: the
// process dies and mpirun ends the job.
func Run(ctx context.Context, opts Options, f func(ctx context.Context, world *Comm) error) error {
	if !started.CompareAndSwap(false, true) {
		return fmt.Errorf("%w: Run may be called once per process", ErrEnded)
	}
	want, err := expectedSize(opts)
	if err != nil {
		return err
	}
	world, err := start()
	if err != nil {
		return err
	}
	if want != 0 && want != world.size {
		err = fmt.Errorf("%w: %d rank(s), want %d: start the program with the mpirun of Open MPI and -n %d",
			ErrWorldSize, world.size, want, want)
	} else {
		err = f(ctx, world)
	}
	return errors.Join(err, world.owner.leave(ctx, err != nil))
}

func expectedSize(opts Options) (int, error) {
	text := os.Getenv(worldSizeVariable)
	if text == "" {
		return opts.WorldSize, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("mpi: %s=%q: want a number of ranks", worldSizeVariable, text)
	}
	if opts.WorldSize != 0 && opts.WorldSize != n {
		return 0, fmt.Errorf("%w: launched with %d rank(s), the program wants %d", ErrWorldSize, n, opts.WorldSize)
	}
	return n, nil
}

// start creates the owner and returns the world once MPI is up.
func start() (*Comm, error) {
	o := &owner{
		calls:  make(chan func()),
		ended:  make(chan struct{}),
		last:   make(chan func()),
		routes: make(map[routeKey]*route),
	}
	o.world, o.exit = &Comm{owner: o}, &Comm{owner: o}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := o.initialise()
		ready <- err
		if err == nil {
			o.serve()
		}
		// The thread stays for ever: it carries the parent-death signal.
		for call := range o.last {
			call()
		}
	}()
	return o.world, <-ready
}

func (o *owner) initialise() (err error) {
	if err := dieWithLauncher(); err != nil {
		return err
	}
	if o.world.handle, err = initialise(); err != nil {
		return err
	}
	if o.world.rank, o.world.size, err = rankAndSize(o.world.handle); err != nil {
		return err
	}
	o.exit.handle, err = dup(o.world.handle)
	return err
}

// dieWithLauncher keeps ranks from running on when mpirun is killed. A singleton
// belongs to nobody and is left alone.
func dieWithLauncher() error {
	if os.Getenv("OMPI_COMM_WORLD_RANK") == "" && os.Getenv("PMIX_RANK") == "" {
		return nil
	}
	parent := os.Getppid()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("mpi: prctl(PR_SET_PDEATHSIG): %w", err)
	}
	if os.Getppid() != parent {
		return errors.New("mpi: mpirun died while the rank was starting")
	}
	return nil
}

// leave ends MPI on this rank. It finalises only when all ranks have come to leave
// and nothing is on its way, because MPI_Finalize may hang for ever otherwise.
func (o *owner) leave(ctx context.Context, failed bool) error {
	wait, cancel := context.WithCancel(context.Background())
	defer cancel()
	hurry := func() { time.AfterFunc(leaveGrace, cancel) }
	if failed {
		hurry()
	} else {
		defer context.AfterFunc(ctx, hurry)()
	}
	err := o.exit.Barrier(wait)
	if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w: other ranks still run: exit with a code other than zero, so that mpirun ends them", ErrNotFinalized)
	}
	unknown := o.stop(err == nil)
	if err != nil || unknown != nil {
		return errors.Join(err, unknown)
	}
	finalised := make(chan error, 1)
	o.last <- func() { finalised <- finalise() }
	select {
	case err := <-finalised:
		return err
	case <-time.After(finalizeLimit):
		return fmt.Errorf("%w: MPI_Finalize did not return in %v", ErrNotFinalized, finalizeLimit)
	}
}

// stop ends serve. With drain, it first gives messages on their way a moment: their
// receivers have all ended, but the last acknowledgements may be outstanding.
func (o *owner) stop(drain bool) error {
	deadline := time.Now().Add(leaveGrace)
	for {
		counts := make(chan map[int]int, 1)
		o.calls <- func() {
			n := o.undelivered()
			o.stopped = len(n) == 0 || !drain || time.Now().After(deadline)
			if o.stopped {
				counts <- n
			}
			close(counts)
		}
		if n, stopped := <-counts; stopped {
			<-o.ended
			return unknown(n)
		}
		time.Sleep(pollMin)
	}
}

func unknown(counts map[int]int) error {
	if len(counts) == 0 {
		return nil
	}
	var parts []string
	for _, to := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d to rank %d", counts[to], to))
	}
	return fmt.Errorf("%w: %s", ErrUnknown, strings.Join(parts, ", "))
}
