package main

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"shardlease/internal/campaign"
	"shardlease/internal/campaign/target"
	"shardlease/pkg/groupcommit/vfs"
)

const standaloneLong = `Runs TARGET on every seed of the input directory, then on every new file that it writes, and so on, on many ranks at once.
Each input is analysed once, whatever dies on the way. TARGET reads the input from standard input or from the file that replaces @@ (anywhere in
an argument) and writes new inputs into the directory $SYMCC_OUTPUT_DIR, as programs built with SymCC do.

Either start the ranks yourself (mpirun -n 8 shardlease standalone ...) or let --ranks 8 do it. Ranks 0, 1, ... are masters, as many as
--workers-per-master asks for; the others are workers.

Environment (seconds unless said; bad values are refused):
  SYMCC_STANDALONE_WORK_EPOCH                64 hex digits: go on with that epoch   (default: a new one)
  SYMCC_STANDALONE_WORK_LEASE_TTL            1..86400       (max(120, 4 x timeout))
  SYMCC_STANDALONE_WORK_LEASE_SHARDS         1..4096, number (64)
  SYMCC_STANDALONE_WORK_LOCK_ACQUIRE_TIMEOUT 0.001..3600    (min(30, max(1, grace / 4)))
  SYMCC_STANDALONE_WORK_LOCK_TTL             1..3600        (30; accepted, but locks are never judged by age)
  SYMCC_STANDALONE_WORK_SCAN_INTERVAL        0.01..30       (0.25)
  SYMCC_STANDALONE_INPUT_MAX_BYTES           1..2^40, bytes (256 MiB)
  SYMCC_STANDALONE_RESULT_MAX_BYTES          1..2^40, bytes of all children of one input (256 MiB)
  SYMCC_STANDALONE_RESULT_MAX_OBJECTS        1..1000000, children of one input (4096)
  SYMCC_SHUTDOWN_GRACE_SEC                   0..3600        (max(120, 4 x timeout))
  SYMCC_FINALIZE_GRACE_SEC                   0..3600        (30)

Exit codes:
   0  every input is analysed, the epoch is retired
  64  bad option, environment variable or epoch
  66  the input directory or the target can't be used
  67  the output directory's file system lacks an operation that durability needs (see shardlease probe)
  68  bad result or input budget
  69  built without MPI, mpirun missing, or wrong number of ranks
  70  control failure, rejected results, items over budget, or a shutdown that was not clean; the epoch is kept
  71  a master did not report its statistics in time; the epoch is kept
  72  all work is done, but the epoch directory could not be retired
  73  the output directory, a temporary directory or the statistics file can't be written
  75  ended by --wall-timeout or a signal with unfinished work; the epoch is kept
Open MPI adds a page of its own to each code but 0; with --ranks, or with mpirun -q, it doesn't.
After 70, 71 and 75 run again with the same -o and SYMCC_STANDALONE_WORK_EPOCH to finish. A rank that is killed ends the job with 128 + signal.`

type standalone struct {
	flags campaign.Flags
	job   mpiJob
	opts  *campaign.Options
}

func standaloneCommand() *cobra.Command {
	s := &standalone{flags: campaign.DefaultFlags(), job: mpiJob{name: "standalone"}}
	c := &cobra.Command{
		Use:   "standalone -i DIR [flags] -- TARGET ARGS...",
		Short: "Run a campaign of a SymCC-style target under Open MPI",
		Long:  standaloneLong,
		RunE: func(_ *cobra.Command, args []string) error {
			s.flags.Target = args
			return s.job.run(s.prepare, s.open)
		},
	}
	f := c.Flags()
	f.StringVarP(&s.flags.InputDir, "input-dir", "i", "", "seed directory, scanned again every second (required)")
	f.StringVarP(&s.flags.OutputDir, "output-dir", "o", "", "public corpus and hidden epoch state (default: a temporary directory, removed when all is done)")
	f.StringVarP(&s.flags.FailedDir, "failed-dir", "f", "", "keep inputs here whose target was killed by a signal or timed out")
	f.Float64VarP(&s.flags.Timeout, "timeout", "t", s.flags.Timeout, "seconds per target run")
	f.Float64Var(&s.flags.MaxIdle, "max-idle", s.flags.MaxIdle, "seconds of stable idleness before the campaign ends")
	f.Float64Var(&s.flags.WallTimeout, "wall-timeout", 0, "seconds for the whole campaign, 0 for no limit")
	f.IntVar(&s.flags.WorkersPerMaster, "workers-per-master", s.flags.WorkersPerMaster, "workers of one master, at most")
	f.BoolVar(&s.flags.Simulate, "simulate", false, "five random mutations when the target writes nothing")
	f.StringVar(&s.flags.StatsJSON, "stats-json", "", "write the statistics to this file, on failing exits too")
	f.StringVar(&s.flags.ExecutionLog, "execution-log", "", "append one line at the start and one at the end of each execution to this file")
	s.job.flags(c)
	return c
}

func (s *standalone) prepare() (grace time.Duration, err error) {
	if s.opts, err = campaign.NewOptions(s.flags, os.Getenv); err != nil {
		code := campaign.ExitUsage
		if errors.Is(err, campaign.ErrBudget) {
			code = campaign.ExitBudget
		}
		return 0, exitf(code, "%v", err)
	}
	if err := s.job.check(); err != nil {
		return 0, err
	}
	if _, err := os.ReadDir(s.opts.InputDir); err != nil {
		return 0, exitf(campaign.ExitNoInput, "input directory: %v", err)
	}
	return s.opts.ShutdownGrace + s.opts.FinalizeGrace, resolveProgram("target", s.opts.Target)
}

func (s *standalone) open(tr campaign.Transport) (begin campaignFunc, stop func(), err error) {
	roles, err := campaign.ComputeRoles(tr.Size(), s.opts.WorkersPerMaster)
	if err != nil {
		return nil, nil, exitf(campaign.ExitUnavailable, "%v", err)
	}
	env := &campaign.Env{FS: vfs.OS, Now: time.Now, Rand: rand.Reader, Stdout: os.Stdout, Stderr: os.Stderr}
	rank := campaign.Rank{Options: s.opts, Env: env, Transport: tr}
	stop = func() {}
	if !roles.IsMaster(tr.Rank()) {
		program := &target.Program{Argv: s.opts.Target, Timeout: s.opts.Timeout, MaxObjects: s.opts.ResultMaxObjects, MaxBytes: s.opts.ResultMaxBytes}
		if stop, err = withExecutor(program); err != nil {
			return nil, nil, err
		}
		rank.Executor = program
	}
	return func(ctx context.Context, signals <-chan os.Signal) campaign.Outcome {
		rank.Signals = signals
		return campaign.Run(ctx, rank)
	}, stop, nil
}
