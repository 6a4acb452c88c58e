// Package child runs other programs so that nothing of them outlives the run: each gets a process group of its own, is
// asked to stop when the context ends, and is killed with everything it started when it does not.
package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Cmd is one run of a program.
type Cmd struct {
	Name   string   // looked up in PATH
	Args   []string // passed as they are: no shell, no expansion
	Dir    string   // "" means the current directory
	Env    []string // added to the environment of this process
	Stdout io.Writer
	Stderr io.Writer
	Grace  time.Duration // between asking and killing; 0 means DefaultGrace
}

// DefaultGrace is shorter than the five seconds Mage leaves between an interrupt and its own exit.
const DefaultGrace = 3 * time.Second

// tailBytes of standard error go into an ExitError: enough for a compiler's last messages.
const tailBytes = 4 << 10

// ExitError says which program failed, how, and what it said last.
type ExitError struct {
	Argv   []string
	Code   int // -1 when a signal ended it
	Stderr string
	Err    error
}

func (e *ExitError) Error() string {
	what := fmt.Sprintf("%s: %v", filepath.Base(e.Argv[0]), e.Err)
	if e.Stderr != "" {
		what += "\n" + e.Stderr
	}
	return what
}

func (e *ExitError) Unwrap() error { return e.Err }

// Run starts the program and returns when its whole process group is gone. Standard input is /dev/null. The error is
// an *ExitError when the program ran and failed, the context's cause when it was stopped, or what prevented the start.
func Run(ctx context.Context, c Cmd) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	cmd := exec.CommandContext(ctx, c.Name, c.Args...)
	cmd.Dir = c.Dir
	cmd.Env = append(os.Environ(), c.Env...)
	tail := &tailWriter{}
	cmd.Stdout = c.Stdout
	cmd.Stderr = tail
	if c.Stderr != nil {
		cmd.Stderr = io.MultiWriter(c.Stderr, tail)
	}
	// If this process is killed it can stop nothing any more; the kernel then asks the child to stop. It does so when the thread
	// that started the child ends, so that thread is kept.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = c.Grace
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = DefaultGrace
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", c.Name, err)
	}
	err := cmd.Wait()
	// The leader is gone; what it left behind in its group must not disturb the next measurement. ESRCH is the good case.
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s stopped: %w", c.Name, context.Cause(ctx))
	}
	var exit *exec.ExitError
	code := -1
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	}
	return &ExitError{Argv: append([]string{c.Name}, c.Args...), Code: code, Stderr: tail.String(), Err: err}
}

// Output runs the program and returns its trimmed standard output.
func Output(ctx context.Context, name string, args ...string) (string, error) {
	return OutputIn(ctx, "", name, args...)
}

// OutputIn is Output in a working directory.
func OutputIn(ctx context.Context, dir, name string, args ...string) (string, error) {
	var out bytes.Buffer
	err := Run(ctx, Cmd{Name: name, Args: args, Dir: dir, Stdout: &out})
	return strings.TrimSpace(out.String()), err
}

// tailWriter keeps the last tailBytes written to it.
type tailWriter struct{ buf []byte }

func (t *tailWriter) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailBytes; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tailWriter) String() string { return strings.TrimSpace(string(t.buf)) }
