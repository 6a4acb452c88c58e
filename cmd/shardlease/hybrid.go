package main

import (
	"context"
	"crypto/rand"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"shardlease/internal/campaign"
	"shardlease/internal/campaign/target"
	"shardlease/internal/hybrid"
	"shardlease/internal/hybrid/afl"
	"shardlease/pkg/groupcommit/vfs"
)

const hybridLong = `Runs SOLVER beside a running AFL++ instance: on the instance's queue entries, the most promising first, and publishes what covers something
new in OUT/NAME/queue, from where AFL++ imports it like from any other instance. Crashes and hangs go to OUT/NAME/crashes and hangs.

SOLVER is any program built with SymCC, unchanged: it reads the input from standard input or from the file that replaces @@ (anywhere in an
argument, also in SYMCC_INPUT_FILE) and writes new test cases into the directory $SYMCC_OUTPUT_DIR. For example:

  afl-cc -o target.afl target.c;  afl-fuzz -M main -i seeds -o sync -- ./target.afl
  symcc  -o target.sym target.c;  shardlease hybrid --ranks 4 -a main -o sync -n symcc -- ./target.sym

afl-fuzz must run on the host of rank 0. On a machine with few cores start it with AFL_NO_AFFINITY=1. Rank 0 coordinates, all others are workers.
The campaign ends by a signal, by --wall-timeout or --max-idle, or when the instance ends.

Several jobs on one queue share the work if each has a name of its own (-n), SYMCC_MULTI_MASTER_LEASES=1 and the same lease directories.

Environment (seconds unless said; bad values are refused):
  SYMCC_MULTI_MASTER_LEASES                  0 or 1: claim inputs in a lease table (0)
  SYMCC_MULTI_MASTER_LEASE_DIR               directory (OUT/NAME/.work_lease_table)
  SYMCC_MULTI_MASTER_LEASE_SHARDS            1..4096, number; the same for all jobs of one directory (256)
  SYMCC_WORK_LEASE_TTL                       1..86400       (max(120, 4 x timeout))
  SYMCC_MULTI_MASTER_TARGET_LEASES           0 or 1: claim branch targets too (1)
  SYMCC_MULTI_MASTER_TARGET_LEASE_DIR        directory (OUT/NAME/.target_lease_table)
  SYMCC_MULTI_MASTER_TARGET_LEASE_TTL        1..86400       (max(120, 4 x timeout))
  SYMCC_MULTI_MASTER_LOCK_ACQUIRE_TIMEOUT    0.001..3600    (60)
  SYMCC_MULTI_MASTER_LOCK_TTL                1..3600        (30; accepted, but locks are never judged by age)
  SYMCC_MASTER_ID                            name of this coordinator in the records (host:process)
  SYMCC_SHUTDOWN_GRACE_SEC                   0..3600        (max(120, 4 x timeout))
  SYMCC_FINALIZE_GRACE_SEC                   0..3600        (30)

Exit codes:
   0  ended in good order, nothing begun is unfinished
  64  bad option or environment variable, a name in use, or lease directories of another layout
  66  the AFL instance, its target, afl-showmap or the solver can't be used
  67  the file system lacks an operation that durability needs (see shardlease probe)
  69  built without MPI, mpirun missing, or wrong number of ranks
  70  a commit could not be finished (the next job finishes it), rejected results, or a shutdown that was not clean
  73  a directory, the statistics file or the event log can't be written
Open MPI adds a page of its own to each code but 0; with --ranks, or with mpirun -q, it doesn't.
A rank that is killed ends the job with 128 + signal; its leases expire and are taken over by the other jobs, or by the next one.`

type hybridRun struct {
	flags hybrid.Flags
	job   mpiJob
	opts  *hybrid.Options
}

func hybridCommand() *cobra.Command {
	h := &hybridRun{flags: hybrid.DefaultFlags(), job: mpiJob{name: "hybrid"}}
	c := &cobra.Command{
		Use:   "hybrid -a INSTANCE -o OUT -n NAME [flags] -- SOLVER ARGS...",
		Short: "Run a SymCC-style solver beside a running AFL++ instance",
		Long:  hybridLong,
		RunE: func(_ *cobra.Command, args []string) error {
			h.flags.Solver = args
			return h.job.run(h.prepare, h.open)
		},
	}
	f := c.Flags()
	f.StringVarP(&h.flags.Instance, "afl-instance", "a", "", "name of the AFL instance, its -M or -S (required)")
	f.StringVarP(&h.flags.Out, "output-dir", "o", "", "the instance's -o directory (required)")
	f.StringVarP(&h.flags.Name, "name", "n", "", "our own name beside the instance (required)")
	f.Float64VarP(&h.flags.Timeout, "timeout", "t", h.flags.Timeout, "seconds per run of the solver")
	f.Float64Var(&h.flags.MaxIdle, "max-idle", 0, "end after so many seconds with nothing to do, 0 for never")
	f.Float64Var(&h.flags.WallTimeout, "wall-timeout", 0, "seconds for the whole campaign, 0 for no limit")
	f.StringVar(&h.flags.SaveAll, "save-all", "", "keep everything the solver writes in this directory")
	f.StringVar(&h.flags.StatsJSON, "stats-json", "", "write the statistics to this file, on failing exits too")
	f.StringVar(&h.flags.ExecutionLog, "execution-log", "", "append one line at the start and one at the end of each execution to this file")
	f.StringVar(&h.flags.Event, "event-log", "", "append one line for each event of a lease, each heartbeat and each two seconds to this file")
	h.job.flags(c)
	return c
}

func (h *hybridRun) prepare() (grace time.Duration, err error) {
	if h.opts, err = hybrid.NewOptions(h.flags, os.Getenv); err != nil {
		return 0, exitf(campaign.ExitUsage, "%v", err)
	}
	if err := h.job.check(); err != nil {
		return 0, err
	}
	return h.opts.ShutdownGrace + h.opts.FinalizeGrace, resolveProgram("solver", h.opts.Solver)
}

func (h *hybridRun) open(tr campaign.Transport) (begin campaignFunc, stop func(), err error) {
	if err := hybrid.CheckSize(tr.Size()); err != nil {
		return nil, nil, exitf(campaign.ExitUnavailable, "%v", err)
	}
	program := &target.Program{Argv: h.opts.Solver, Timeout: h.opts.Timeout, MaxObjects: hybrid.MaxOutputs, MaxBytes: hybrid.MaxOutputs * afl.MaxInput}
	// For the coordinator too: it measures inputs in a directory that has to go as well.
	if stop, err = withExecutor(program); err != nil {
		return nil, nil, err
	}
	// The launcher kills whatever carries its mark. afl-showmap must get the SIGTERM that it's sent when its rank dies instead: on that it
	// removes its shared memory, which the kernel does not do for it.
	unmarked := slices.DeleteFunc(slices.Clone(program.Env), func(kv string) bool { return strings.HasPrefix(kv, "MPIRUN_JOB_") })
	env := &hybrid.Env{FS: vfs.OS, Now: time.Now, Rand: rand.Reader, Stdout: os.Stdout, Stderr: os.Stderr,
		Measurer: func(inst *afl.Instance) hybrid.Measurer {
			return &afl.Showmap{Instance: inst, TempDir: program.Dir, Env: unmarked}
		}}
	rank := hybrid.Rank{Options: h.opts, Env: env, Transport: tr, Executor: program}
	return func(ctx context.Context, signals <-chan os.Signal) campaign.Outcome {
		rank.Signals = signals
		return hybrid.Run(ctx, rank)
	}, stop, nil
}
