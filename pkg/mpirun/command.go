package mpirun

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Command returns the command line of the job and the variables that are added to
// the environment. It only depends on its arguments and touches nothing.
//
// Always: no binding to processors (a rank bound to one shrinks Go's GOMAXPROCS),
// and yielding while MPI waits (a spinning rank takes the processor from a working
// one). Without a HostFile, messages go through shared memory only and without the
// cross-memory attach that containers deny.
func (l *Launcher) Command(j Job) (argv, env []string, err error) {
	if err := l.check(j); err != nil {
		return nil, nil, err
	}
	argv = []string{l.Path, "-n", strconv.Itoa(j.Ranks), "--bind-to", "none"}
	if l.Major >= 5 {
		argv = append(argv, "--output", "tag")
	} else {
		argv = append(argv, "--tag-output")
	}
	if j.Oversubscribe && l.Major >= 5 {
		argv = append(argv, "--map-by", ":OVERSUBSCRIBE")
	} else if j.Oversubscribe {
		argv = append(argv, "--oversubscribe")
	}
	if j.HostFile != "" {
		argv = append(argv, "--hostfile", j.HostFile)
	}
	if j.Timeout > 0 {
		// Run stops the job at Timeout itself; this ends it should Run's process be stopped.
		limit := j.Timeout + 2*j.grace()
		argv = append(argv, "--timeout", strconv.Itoa(int((limit+time.Second-1)/time.Second)))
	}
	argv = append(argv, l.parameters(j)...)
	argv = append(argv, j.ExtraArgs...)
	argv = append(argv, j.Program)
	argv = append(argv, j.Args...)

	env = append(env, j.Env...)
	env = append(env, fmt.Sprintf("%s=%d", worldSizeVariable, j.Ranks))
	if j.AllowRoot {
		// Open MPI wants both; from version 5 on its run time has names of its own.
		env = append(env, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
		if l.Major >= 5 {
			env = append(env, "PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1")
		}
	}
	return argv, env, nil
}

func (l *Launcher) check(j Job) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrJob, fmt.Sprintf(format, args...))
	}
	switch {
	case l.Path == "" || l.Major < 4:
		return bad("launcher %q of major version %d: use the one that Find returns", l.Path, l.Major)
	case j.Program == "":
		return bad("no program to run")
	case j.Ranks < 1:
		return bad("%d ranks: want 1 or more", j.Ranks)
	case j.Timeout < 0 || j.Grace < 0:
		return bad("timeout %v, grace %v: want 0 or more", j.Timeout, j.Grace)
	}
	return nil
}

func (j Job) grace() time.Duration {
	if j.Grace == 0 {
		return DefaultGrace
	}
	return j.Grace
}

// parameters returns the MCA parameters. Version 5 renamed the shared-memory
// transport and moved the session directory to PRRTE, its run time.
func (l *Launcher) parameters(j Job) []string {
	transport, flag, tmpdir := "vader", "--mca", "orte_tmpdir_base"
	if l.Major >= 5 {
		transport, flag, tmpdir = "sm", "--prtemca", "prte_tmpdir_base"
	}
	var argv []string
	set := func(flag, name, value string) {
		if !slices.Contains(j.ExtraArgs, name) {
			argv = append(argv, flag, name, value)
		}
	}
	set("--mca", "mpi_yield_when_idle", "1")
	if j.HostFile == "" {
		set("--mca", "pml", "ob1") // halves the start-up: nothing else is probed
		set("--mca", "btl", transport+",self")
		set("--mca", "btl_"+transport+"_single_copy_mechanism", "none")
	}
	if j.TempDir != "" {
		set(flag, tmpdir, j.TempDir)
		set("--mca", "btl_"+transport+"_backing_directory", j.TempDir)
	}
	return argv
}
