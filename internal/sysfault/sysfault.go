// Package sysfault runs a program and interferes with its system calls: it fails, delays or traces chosen file-system calls, or
// kills the program before the n-th of them.
//
// It works on any program, static Go binaries included, needs no root and no ptrace, and counts over all threads and child
// processes of the program, so that "the third fsync" means one call and always the same one in a program that makes
// its calls in a fixed order. It uses seccomp user notification (seccomp_unotify(2), Linux 5.19 or newer): each watched
// call stops in the kernel until this process has decided what becomes of it. A failed call is not executed at all.
//
// What a kill here shows is the crash of a process: the page cache survives. A power cut is another thing; see
// pkg/groupcommit/vfs/crashfs.
//
// A program that uses Run must call Shim first thing in its main function (or TestMain), because the filter has to be
// installed by the process that then becomes the watched program.
package sysfault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrTrace says that lines are missing in Job.Trace; what was injected is not affected.
var ErrTrace = errors.New("sysfault: the trace is incomplete")

// Rule says what happens to chosen calls. The first rule that applies to a call decides.
type Rule struct {
	// Call is a name of Calls, or "" for each watched call.
	Call string
	// Nth counts from 1: the calls named Call, or all watched calls when Call is "". 0 means each of them.
	Nth uint64
	// Sticky extends the rule to all calls after the Nth.
	Sticky bool

	// Exactly one of the following is set.
	Errno syscall.Errno // the call isn't executed and returns this error
	Delay time.Duration // the call is executed after this time
	Kill  bool          // the process that makes the call is killed before it is executed
}

// Job is one run of a program. Watched calls that touch a path at or below Under are counted; the rules see only those.
type Job struct {
	Program        string
	Args, Env      []string // Env nil means this process's
	Dir            string
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	Watch []string  // names of Calls; nil means DefaultWatch
	Under string    // an absolute directory; "" means everywhere
	Rules []Rule    // nil just counts and traces
	Trace io.Writer // a line for each counted call; nil means none
}

// Result says how the program ended and what was counted.
type Result struct {
	ExitCode int            // of the program; -1 when it was ended by a signal
	Signal   syscall.Signal // that signal, or 0
	Counted  uint64         // watched calls under Under
	PerCall  map[string]uint64
	Injected uint64 // calls that a rule changed
}

// Calls lists the names that Watch and Rule.Call know. One name covers the system calls that do the same job: rename stands for
// rename, renameat and renameat2.
func Calls() []string {
	var names []string
	for _, c := range calls {
		if !slices.Contains(names, c.name) {
			names = append(names, c.name)
		}
	}
	slices.Sort(names)
	return names
}

// DefaultWatch is every call that changes names or makes something durable.
func DefaultWatch() []string {
	return []string{"open", "fsync", "fdatasync", "syncfs", "rename", "unlink", "mkdir", "link", "ftruncate"}
}

// Check finds out whether the job can be run as it is written, without running it.
func (j Job) Check() error {
	if j.Watch == nil {
		j.Watch = DefaultWatch()
	}
	if j.Program == "" {
		return fmt.Errorf("sysfault: no program was named")
	}
	known := Calls()
	for _, w := range j.Watch {
		if !slices.Contains(known, w) {
			return fmt.Errorf("sysfault: unknown call %q; known are %s", w, strings.Join(known, ", "))
		}
	}
	for _, r := range j.Rules {
		if r.Call != "" && !slices.Contains(known, r.Call) {
			return fmt.Errorf("sysfault: unknown call %q in a rule; known are %s", r.Call, strings.Join(known, ", "))
		}
		if r.Call != "" && !slices.Contains(j.Watch, r.Call) {
			return fmt.Errorf("sysfault: a rule names %q, which isn't watched", r.Call)
		}
		set := 0
		for _, b := range []bool{r.Errno != 0, r.Delay > 0, r.Kill} {
			if b {
				set++
			}
		}
		if set != 1 {
			return fmt.Errorf("sysfault: a rule must fail, delay or kill, and only one of them")
		}
	}
	return nil
}

// Run starts the program, handles its watched calls and returns when it and everything it started have ended, or when ctx ends:
// then the program is killed, and the watched calls of what it had started fail with ENOSYS from then on. An error means that the program could not
// be started or watched, or (ErrTrace) that Trace could not be written; how the program itself ended is in the Result.
func Run(ctx context.Context, job Job) (Result, error) {
	if err := job.Check(); err != nil {
		return Result{}, err
	}
	if job.Watch == nil {
		job.Watch = DefaultWatch()
	}
	c, listener, err := start(ctx, job)
	if err != nil {
		return Result{}, err
	}
	s := newSupervisor(job, listener)
	served := make(chan error, 1)
	abandoned := make(chan struct{})
	go func() { served <- s.serve(abandoned) }()
	waitErr := c.Wait()
	stop := context.AfterFunc(ctx, func() { close(abandoned) })
	serveErr := <-served // ends when the last process under the filter is gone
	stop()
	unix.Close(listener)
	res := s.result()
	state := c.ProcessState
	if state == nil {
		return res, fmt.Errorf("sysfault: wait for %s: %w", job.Program, waitErr)
	}
	ws := state.Sys().(syscall.WaitStatus)
	res.ExitCode = state.ExitCode()
	if ws.Signaled() {
		res.Signal = ws.Signal()
	}
	return res, errors.Join(serveErr, s.traceErr, ctx.Err())
}
