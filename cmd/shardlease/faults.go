package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"shardlease/internal/campaign"
	"shardlease/internal/sysfault"
)

var faultsLong = `Runs PROGRAM and interferes with its file-system calls: fails, delays or traces them, or kills the program before the n-th.
It needs no root, works on static binaries, and counts over all threads and children of the program. Linux 5.19 or newer.

CALL is one of ` + strings.Join(sysfault.Calls(), ", ") + `; each stands for all system calls that do its job.
Calls are counted from 1, and only those below --under count. A failed call is not executed. ERRNO is a name such as EIO or ENOSPC.

A kill shows what the crash of a process leaves; the page cache survives it, so it is no power cut.

Exit codes: that of PROGRAM, 128 plus the signal that ended it, 64 for a wrong command line, 69 if this kernel can't do it,
73 if the trace can't be written, 126 if PROGRAM can't be executed, 127 if it is not found.`

const faultsExample = `  shardlease faults --trace - --under /data -- ./myprogram        every watched call below /data
  shardlease faults --fail fsync:3:EIO -- ./myprogram             the third fsync fails
  shardlease faults --fail rename:1:ENOSPC:sticky -- ./myprogram  all renames fail
  shardlease faults --delay fsync:20ms -- ./myprogram             a slow disk
  for n in $(seq 1 40); do shardlease faults --kill $n --under /data -- ./myprogram; ./check; done`

const (
	exitUnavailable = 69  // EX_UNAVAILABLE of sysexits.h
	exitNoExec      = 126 // as shells have it
	exitNotFound    = 127
)

type faultFlags struct {
	watch, fail, delay []string
	under, trace       string
	kill               uint64
}

func faultsCommand() *cobra.Command {
	var f faultFlags
	c := &cobra.Command{
		Use: "faults [flags] -- PROGRAM [ARGS]", Short: "Run a program while file-system calls fail, stall or are its last",
		Long: faultsLong, Example: faultsExample, Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return faults(c, f, args) },
	}
	flags := c.Flags()
	flags.SetInterspersed(false)
	flags.StringSliceVar(&f.watch, "watch", sysfault.DefaultWatch(), "calls to count, comma-separated")
	flags.StringArrayVar(&f.fail, "fail", nil, "CALL:N:ERRNO[:sticky] fails the N-th CALL, N=0 each, sticky also all after it; repeatable")
	flags.StringArrayVar(&f.delay, "delay", nil, "CALL:DURATION delays each CALL; repeatable")
	flags.Uint64Var(&f.kill, "kill", 0, "kill the program before this watched call; 0 never")
	flags.StringVar(&f.under, "under", "", "count only calls on paths at or below this directory")
	flags.StringVar(&f.trace, "trace", "", "write a line for each counted call to this file, - for standard error")
	return c
}

func faults(c *cobra.Command, f faultFlags, args []string) error {
	job, err := f.job()
	job.Program, job.Args = args[0], args[1:]
	if err == nil {
		err = job.Check()
	}
	if err != nil {
		return exitf(campaign.ExitUsage, "%v", err)
	}
	job.Stdin, job.Stdout, job.Stderr = os.Stdin, os.Stdout, os.Stderr
	trace, err := openTrace(f.trace)
	if err != nil {
		return exitf(campaign.ExitCantCreate, "%v", err)
	}
	if trace != nil {
		job.Trace = trace
	}
	if job.Program, err = exec.LookPath(args[0]); err != nil {
		code := exitNoExec
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			code = exitNotFound
		}
		return exitf(code, "%v", err)
	}
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGQUIT) // a terminal sends them to the program too, and its end decides
	res, err := sysfault.Run(ctx, job)
	if trace != nil && trace != os.Stderr {
		if cerr := trace.Close(); cerr != nil {
			err = errors.Join(err, fmt.Errorf("%w: %w", sysfault.ErrTrace, cerr))
		}
	}
	switch {
	case errors.Is(err, sysfault.ErrTrace):
		return exitf(campaign.ExitCantCreate, "%v", err)
	case err != nil && ctx.Err() == nil:
		return exitf(exitUnavailable, "%v", err)
	case res.Signal != 0:
		return &exitError{code: 128 + int(res.Signal)}
	case res.ExitCode != 0:
		return &exitError{code: res.ExitCode}
	}
	return nil
}

func openTrace(name string) (*os.File, error) {
	switch name {
	case "":
		return nil, nil
	case "-":
		return os.Stderr, nil
	}
	return os.Create(name)
}

// job turns the flags into rules. What is watched grows by what the rules name.
func (f faultFlags) job() (sysfault.Job, error) {
	job := sysfault.Job{Watch: slices.Clone(f.watch)}
	if f.under != "" {
		under, err := filepath.Abs(f.under)
		if err == nil {
			under, err = filepath.EvalSymlinks(under) // the kernel's view of open files has no links in it
		}
		if err != nil {
			return job, fmt.Errorf("--under: %w", err)
		}
		job.Under = under
	}
	if f.kill > 0 {
		job.Rules = append(job.Rules, sysfault.Rule{Nth: f.kill, Kill: true})
	}
	for _, text := range f.fail {
		r, err := parseFail(text)
		if err != nil {
			return job, err
		}
		job.Rules = append(job.Rules, r)
	}
	for _, text := range f.delay {
		call, d, ok := strings.Cut(text, ":")
		delay, err := time.ParseDuration(d)
		if !ok || err != nil || delay <= 0 {
			return job, fmt.Errorf("--delay %s: want CALL:DURATION, as in fsync:20ms", text)
		}
		job.Rules = append(job.Rules, sysfault.Rule{Call: call, Delay: delay})
	}
	for _, r := range job.Rules {
		if r.Call != "" && !slices.Contains(job.Watch, r.Call) {
			job.Watch = append(job.Watch, r.Call)
		}
	}
	return job, nil
}

func parseFail(text string) (sysfault.Rule, error) {
	bad := fmt.Errorf("--fail %s: want CALL:N:ERRNO or CALL:N:ERRNO:sticky, as in fsync:3:EIO", text)
	parts := strings.Split(text, ":")
	if len(parts) < 3 || len(parts) > 4 || len(parts) == 4 && parts[3] != "sticky" {
		return sysfault.Rule{}, bad
	}
	nth, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return sysfault.Rule{}, bad
	}
	for e := syscall.Errno(1); e < 200; e++ {
		if unix.ErrnoName(e) == parts[2] {
			return sysfault.Rule{Call: parts[0], Nth: nth, Sticky: len(parts) == 4, Errno: e}, nil
		}
	}
	return sysfault.Rule{}, fmt.Errorf("--fail %s: %s is not the name of an error number", text, parts[2])
}
