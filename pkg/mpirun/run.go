package mpirun

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// mpirunKill is what mpirun needs from SIGTERM to its own end: SIGTERM for the
	// ranks after one second, SIGKILL after another.
	mpirunKill  = 2500 * time.Millisecond
	lingerLimit = 500 * time.Millisecond // for processes that are ending when mpirun has ended
	sweepLimit  = 5 * time.Second        // for processes to die of SIGKILL
	drainLimit  = 5 * time.Second        // for the output that is still in the pipes
)

// Run starts the job and returns when all its processes on this machine are gone,
// however it ends. The result is nil only if the job was not started.
//
// When ctx ends or Timeout is over, the job is stopped: SIGUSR1 to mpirun, which
// forwards it to every rank; SIGTERM 2.5 s before Grace is over (after a third of
// it if it is shorter than that allows), upon which mpirun ends the ranks itself; then
// SIGKILL for every process. A program that wants to end in order handles SIGUSR1
// and ends before the SIGTERM; a Go program that does not ask for SIGUSR1 ignores
// it, others die of it. Should this
// process die, even of SIGKILL, the kernel kills mpirun, and ranks that use package
// mpi with it; the next Run with the same TempDir removes what the job left there.
//
// Errors: ErrJob (not started); *ExitError for an exit code other than zero;
// ErrSurvivors when mpirun ended with zero but not all of the job with it; the
// cause of ctx, or context.DeadlineExceeded for Timeout, when the job was stopped,
// joined with the *ExitError or ErrSurvivors if there is one; the first error of Stdout or Stderr; a
// directory in TempDir that could not be removed.
func (l *Launcher) Run(ctx context.Context, j Job) (result *Result, err error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("mpirun: not started: %w", context.Cause(ctx))
	}
	if j.Timeout > 0 {
		cause := fmt.Errorf("timeout of %v: %w", j.Timeout, context.DeadlineExceeded)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, j.Timeout, cause)
		defer cancel()
	}
	r, err := l.prepare(j)
	if err != nil {
		return nil, err
	}
	defer func() {
		if dirErr := r.dir.remove(); dirErr != nil {
			err = errors.Join(err, fmt.Errorf("mpirun: TempDir: %w", dirErr))
		}
	}()
	if err := r.start(); err != nil {
		r.collect() // closes the pipes, which are empty
		return nil, fmt.Errorf("%w: %s: %w", ErrJob, l.Path, err)
	}
	select {
	case <-r.exited:
	case <-ctx.Done():
		r.stop(j.grace())
	}
	return r.finish(ctx)
}

// running is one job from its preparation to its end.
type running struct {
	cmd       *exec.Cmd
	result    *Result
	processes processes
	dir       jobDir
	exited    chan struct{} // closed when mpirun has ended; it is not reaped before finish
	sweep     time.Duration // sweepLimit

	outputLock sync.Mutex
	output     chan error // one for each stream
	readers    [2]*os.File
	stderr     tail
}

// prepare does all the checks that mpirun would answer with a page of text, or not at all.
func (l *Launcher) prepare(j Job) (r *running, err error) {
	if err := l.check(j); err != nil {
		return nil, err
	}
	if os.Geteuid() == 0 && !j.AllowRoot && os.Getenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM") == "" {
		return nil, fmt.Errorf("%w: Open MPI refuses to run as root: run as another user or set AllowRoot", ErrJob)
	}
	if j.HostFile == "" {
		if j.Program, err = resolve(j.Program, j.Dir); err != nil {
			return nil, fmt.Errorf("%w: program: %w", ErrJob, err)
		}
	}
	r = &running{exited: make(chan struct{}), output: make(chan error, 2), sweep: sweepLimit}
	name := rand.Text()
	if r.dir, err = makeDir(j, name); err != nil {
		return nil, err
	}
	if r.dir.path != "" {
		j.TempDir = r.dir.path
	}
	argv, env, err := l.Command(j)
	if err != nil {
		return nil, errors.Join(err, r.dir.remove())
	}
	r.processes.variable = jobVariable + name + "="
	env = append(env, r.processes.variable+"1")
	environ := os.Environ()
	if os.Getenv("OMPI_COMM_WORLD_RANK") != "" { // mpirun does not support recursive calls
		environ = ChildEnv(environ)
	}
	r.cmd = &exec.Cmd{
		Path: l.Path, Args: argv, Dir: j.Dir, Env: append(environ, env...),
		// Its own session: no signal of a terminal reaches the job but through Run.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	r.result = &Result{
		Argv: argv, Env: env, Version: l.Version,
		Root:           os.Geteuid() == 0,
		Oversubscribed: j.Oversubscribe && j.Ranks > runtime.NumCPU(),
	}
	return r, r.connect(j, l.Major)
}

func resolve(program, dir string) (string, error) {
	if strings.ContainsRune(program, filepath.Separator) && !filepath.IsAbs(program) && dir != "" {
		program = filepath.Join(dir, program)
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// connect makes the two pipes and begins to drain them. Stdin stays nil, which is
// /dev/null: mpirun would read the caller's input to its end.
func (r *running) connect(j Job, major int) error {
	streams := []struct {
		w    io.Writer
		file *io.Writer
	}{{j.Stdout, &r.cmd.Stdout}, {tee(j.Stderr, &r.stderr), &r.cmd.Stderr}}
	for i, s := range streams {
		pr, pw, err := os.Pipe()
		if err != nil {
			r.disconnect()
			return fmt.Errorf("mpirun: %w", errors.Join(err, r.dir.remove()))
		}
		r.readers[i], *s.file = pr, pw
		go func() { r.output <- drain(s.w, pr, pieceTag(major), &r.outputLock) }()
	}
	return nil
}

func tee(w io.Writer, t *tail) io.Writer {
	if w == nil {
		return t
	}
	return io.MultiWriter(t, w)
}

// disconnect closes this process's copies of the ends that mpirun writes to.
func (r *running) disconnect() {
	for _, w := range []io.Writer{r.cmd.Stdout, r.cmd.Stderr} {
		if f, ok := w.(*os.File); ok {
			f.Close()
		}
	}
}

// start starts mpirun from a thread that lives until mpirun has ended, because the
// kernel ties the parent-death signal to the thread.
func (r *running) start() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		r.result.Start = time.Now()
		err := r.cmd.Start()
		r.disconnect()
		started <- err
		if err != nil {
			return
		}
		// Not reaped here: as long as mpirun is a zombie, its pid, which names the
		// session, and its process group are not given to others.
		for errors.Is(unix.Waitid(unix.P_PID, r.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
		}
		close(r.exited)
	}()
	if err := <-started; err != nil {
		return err
	}
	r.processes.session = r.cmd.Process.Pid
	return nil
}

// stop asks, then tells, then kills mpirun.
func (r *running) stop(grace time.Duration) {
	tell := min(mpirunKill, 2*grace/3)
	steps := []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGUSR1, grace - tell}, {syscall.SIGTERM, tell}, {syscall.SIGKILL, sweepLimit}}
	for _, step := range steps {
		r.result.StoppedBy = step.signal
		r.cmd.Process.Signal(step.signal)
		select {
		case <-r.exited:
			return
		case <-time.After(step.wait):
		}
	}
}

// finish kills what mpirun left, reaps it and puts the result together.
func (r *running) finish(ctx context.Context) (*Result, error) {
	if r.result.StoppedBy != syscall.SIGKILL {
		r.processes.linger(lingerLimit)
	}
	killed, err := r.processes.kill(r.sweep)
	r.result.Killed = killed
	if err != nil {
		r.result.ExitCode = -1 // mpirun may be among them: nothing can be waited for
		return r.result, r.stopped(ctx, err)
	}
	r.cmd.Wait() // its error is in ProcessState
	r.result.Wall = time.Since(r.result.Start)
	status := r.cmd.ProcessState.Sys().(syscall.WaitStatus)
	r.result.ExitCode = status.ExitStatus()
	if status.Signaled() {
		r.result.ExitCode = 128 + int(status.Signal())
	}
	err = r.collect()
	switch {
	case r.result.ExitCode != 0:
		err = errors.Join(&ExitError{Code: r.result.ExitCode, Stderr: r.stderr.bytes()}, err)
	case killed > 0:
		err = errors.Join(fmt.Errorf("%w: %d, though it ended with exit code 0", ErrSurvivors, killed), err)
	}
	return r.result, r.stopped(ctx, err)
}

// stopped joins why the job was stopped, if it was, to what else went wrong.
func (r *running) stopped(ctx context.Context, err error) error {
	if r.result.StoppedBy == 0 {
		return err
	}
	return errors.Join(fmt.Errorf("mpirun: job stopped: %w", context.Cause(ctx)), err)
}

// collect waits for the output that the ended processes left in the pipes.
func (r *running) collect() error {
	var errs []error
	limit := time.NewTimer(drainLimit)
	defer limit.Stop()
	for range r.readers {
		select {
		case err := <-r.output:
			if err != nil {
				errs = append(errs, fmt.Errorf("mpirun: output: %w", err))
			}
		case <-limit.C:
			return errors.Join(append(errs, fmt.Errorf("mpirun: output not taken in %v", drainLimit))...)
		}
	}
	for _, f := range r.readers {
		f.Close()
	}
	return errors.Join(errs...)
}
