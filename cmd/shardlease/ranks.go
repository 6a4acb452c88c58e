package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"shardlease/internal/campaign"
	"shardlease/internal/campaign/target"
	"shardlease/pkg/mpirun"
	"shardlease/pkg/mpirun/mpi"
)

// worldSizeVar tells ranks that were started by --ranks how many there must be.
const worldSizeVar = "SHARDLEASE_WORLD_SIZE"

// mpiJob is a command whose ranks are MPI processes of this program. It starts them itself or is one of them.
type mpiJob struct {
	name      string // of the command
	count     int
	allowRoot bool
}

func (j *mpiJob) flags(c *cobra.Command) {
	f := c.Flags()
	f.IntVar(&j.count, "ranks", 0, "start mpirun with this many ranks; within mpirun, refuse another number")
	f.BoolVar(&j.allowRoot, "allow-run-as-root", os.Geteuid() == 0 && os.Getenv("OMPI_ALLOW_RUN_AS_ROOT") == "1", "let Open MPI run as root, with --ranks")
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return j.run(func() (time.Duration, error) { return 0, err }, nil)
	})
}

// check refuses what can't become a job before anything is touched.
func (j *mpiJob) check() error {
	if j.count < 0 || j.count == 1 {
		return exitf(campaign.ExitUsage, "--ranks is %d; a campaign needs at least 2, a master and a worker", j.count)
	}
	if !mpi.Enabled {
		return exitf(campaign.ExitUnavailable, "%v", mpi.ErrNotBuilt)
	}
	return nil
}

func underMPI() bool {
	return os.Getenv("OMPI_COMM_WORLD_SIZE") != "" || os.Getenv("PMIX_RANK") != ""
}

// campaignFunc is what one rank does once all ranks can begin.
type campaignFunc func(ctx context.Context, signals <-chan os.Signal) campaign.Outcome

// openFunc gets ready what this rank needs. An error keeps all ranks from beginning; else stop is called at the end in any case.
type openFunc func(tr campaign.Transport) (begin campaignFunc, stop func(), err error)

// run starts the job with this very command line, or is a rank of it, after prepare has checked what can be checked without the other
// ranks. grace is how long an orderly end may take.
func (j *mpiJob) run(prepare func() (grace time.Duration, err error), open openFunc) error {
	grace, err := prepare()
	switch {
	case underMPI() && mpi.Enabled:
		return j.rank(err, grace, open)
	case err != nil:
		return err
	case j.count == 0:
		return exitf(campaign.ExitUnavailable, "not started by mpirun: use mpirun -n N shardlease %s ..., or give --ranks N", j.name)
	}
	return j.launch(grace)
}

func (j *mpiJob) launch(grace time.Duration) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	launcher, err := mpirun.Find(ctx)
	if err != nil {
		return exitf(campaign.ExitUnavailable, "%v", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 && !j.allowRoot {
		return exitf(campaign.ExitUsage, "Open MPI refuses to run as root: run as another user, or give --allow-run-as-root")
	}
	stderr := &launcherOutput{w: os.Stderr}
	res, err := launcher.Run(ctx, mpirun.Job{Program: self, Args: os.Args[1:], Ranks: j.count, AllowRoot: j.allowRoot, Oversubscribe: true,
		Env: []string{worldSizeVar + "=" + strconv.Itoa(j.count)}, Grace: min(grace+5*time.Second, time.Hour),
		Stdout: &launcherOutput{w: os.Stdout, pass: true}, Stderr: stderr})
	var exit *mpirun.ExitError
	if !errors.As(err, &exit) || !said(exit.Code) {
		if err := stderr.flush(); err != nil {
			return exitf(campaign.ExitIncomplete, "%v", err)
		}
	}
	return launched(res, err, ctx.Err() != nil)
}

// launched is what the command makes of a job that has ended, or was not started. interrupted says that a signal came before.
func launched(res *mpirun.Result, err error, interrupted bool) error {
	var exit *mpirun.ExitError
	switch {
	case errors.As(err, &exit):
		return &exitError{code: exit.Code}
	case res != nil && res.ExitCode == 0 && interrupted && !errors.Is(err, mpirun.ErrSurvivors):
		return nil // all was done when the signal came
	case errors.Is(err, mpirun.ErrJob):
		return exitf(campaign.ExitUsage, "%v", err)
	case err != nil:
		return exitf(campaign.ExitIncomplete, "%v", err)
	}
	return nil
}

// said tells whether a rank that ends with this code has written why, so that mpirun's own page about it helps nobody.
func said(code int) bool { return code >= campaign.ExitUsage && code <= campaign.ExitUnfinished }

// rank is one rank of the job. failure is why it can't begin, or nil.
func (j *mpiJob) rank(failure error, grace time.Duration, open openFunc) error {
	world := j.count
	if text := os.Getenv(worldSizeVar); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil && failure == nil {
			failure = exitf(campaign.ExitUsage, "%s is %q, not a number", worldSizeVar, text)
		}
		world = n
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1)
	var out campaign.Outcome
	err := mpi.Run(context.Background(), mpi.Options{WorldSize: world}, func(ctx context.Context, comm *mpi.Comm) error {
		begin, stop := campaignFunc(nil), func() {}
		if failure == nil {
			begin, stop, failure = open(campaign.OverMPI(comm))
		}
		err := agree(ctx, comm, failure)
		if err == nil {
			out = begin(ctx, signals)
		}
		if failure == nil {
			stop()
		}
		if err != nil {
			return err
		}
		if !out.Orderly {
			comm.Abort(out.Code)
		}
		boundFinalize(2*grace, out.Code)
		return nil
	})
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		return exit
	case errors.Is(err, mpi.ErrWorldSize):
		return exitf(campaign.ExitUnavailable, "%v", err)
	case err != nil:
		return exitf(campaign.ExitIncomplete, "%v", err)
	case out.Code != campaign.ExitOK:
		return &exitError{code: out.Code} // rank 0 has said why
	}
	return nil
}

// boundFinalize ends this process if the other ranks have not come to their end within what their own limits allow.
func boundFinalize(limit time.Duration, code int) {
	time.AfterFunc(max(limit, time.Second), func() {
		fmt.Fprintf(os.Stderr, "shardlease: the other ranks have not ended within %s\n", limit)
		if code == campaign.ExitOK {
			code = campaign.ExitStats
		}
		os.Exit(code)
	})
}

// resolveProgram makes the program's name absolute: it must not change when something else appears in PATH.
func resolveProgram(what string, argv []string) error {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return exitf(campaign.ExitNoInput, "%s: %v", what, err)
	}
	if abs, err := filepath.Abs(path); err == nil {
		argv[0] = abs
	}
	return nil
}

// withExecutor gives a worker's target its private directory and the process that cleans up behind it.
func withExecutor(p *target.Program) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(os.TempDir(), "shardlease-run-"+rand.Text())
	p.Dir, p.Env = dir, mpirun.ChildEnv(os.Environ())
	// The reaper first: a worker that is killed between the two leaves no directory.
	if p.Reaper, err = target.StartReaper([]string{self, reaperName}, dir, p.Env); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		_ = p.Reaper.Stop() // it has nothing to remove
		return nil, exitf(campaign.ExitCantCreate, "a directory for the runs of the target: %v (the variable TMPDIR names another place)", err)
	}
	return func() {
		if err := p.Reaper.Stop(); err != nil && !errors.Is(err, fs.ErrClosed) {
			fmt.Fprintf(os.Stderr, "shardlease: clean up of %s: %v\n", dir, err)
		}
	}, nil
}

const reaperName = "reap-target"

// reaperCommand is started by workers, not by people.
func reaperCommand() *cobra.Command {
	return &cobra.Command{Use: reaperName + " DIR", Hidden: true, Args: cobra.ExactArgs(1), RunE: func(_ *cobra.Command, args []string) error {
		signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		return target.ReaperMain(os.Stdin, args[0])
	}}
}
