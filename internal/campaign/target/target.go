// Package target runs SymCC-style programs for a campaign.
//
// The contract with a target: it gets the input on standard input, or, if one of its arguments contains @@ (alone or within, as in
// --in=@@), as a file whose name replaces @@ and is in SYMCC_INPUT_FILE. It writes each new test case as a regular file directly into the
// directory SYMCC_OUTPUT_DIR, which is empty and its own; names that end in .hints are ignored. Its output goes to /dev/null, its exit status is recorded. After the timeout its whole process
// group gets SIGTERM and 5 seconds later SIGKILL. When it ends, what is left of its process group is killed. SYMCC_ENABLE_LINEARIZATION is 1,
// SYMCC_EMIT_HINTS is 1 unless set.
//
// Processes that a target starts in sessions or groups of their own live until the worker ends, at most.
package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"shardlease/internal/campaign"
)

// Program is the executor of one worker. It runs one job at a time.
type Program struct {
	Argv       []string // program and arguments
	Timeout    time.Duration
	KillAfter  time.Duration // between SIGTERM and SIGKILL; 0 means 5 s
	Dir        string        // private directory of this worker, which exists; each run gets a directory in it
	Env        []string      // of the target, without the MPI variables of the rank
	MaxObjects int
	MaxBytes   int64
	Reaper     *Reaper // nil means that a SIGKILL of this process may leave grandchildren
	runs       int
}

// Run implements campaign.Executor. When ctx ends, the target is killed.
func (p *Program) Run(ctx context.Context, job campaign.Job) campaign.Execution {
	e := campaign.Execution{Job: job, Start: time.Now()}
	p.runs++
	dir := filepath.Join(p.Dir, strconv.Itoa(p.runs))
	err := p.execute(ctx, dir, &e)
	e.Elapsed = time.Since(e.Start)
	if rerr := removeAll(dir); rerr != nil && err == nil {
		err = rerr
	}
	if err != nil && e.Problem == "" {
		e.Problem, e.Detail = campaign.ErrExecution, err.Error()
	}
	return e
}

func (p *Program) execute(ctx context.Context, dir string, e *campaign.Execution) error {
	input, out := filepath.Join(dir, "input"), filepath.Join(dir, "out")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(out, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(input, e.Input, 0o600); err != nil {
		return err
	}
	argv, usesFile := substitute(p.Argv, input)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = environment(p.Env, out)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if usesFile {
		cmd.Env = append(cmd.Env, "SYMCC_INPUT_FILE="+input)
	} else {
		stdin, err := os.Open(input)
		if err != nil {
			return err
		}
		defer stdin.Close() // only read
		cmd.Stdin = stdin
	}
	if err := p.wait(ctx, cmd, e); err != nil {
		return err
	}
	var err error
	e.Outputs, err = p.collect(out)
	if errors.Is(err, errBudget) {
		e.Problem, e.Detail = campaign.ErrResultBudget, err.Error()
	}
	return err
}

// wait starts the target and returns when its process group is gone. It holds its thread, since the kernel ties Pdeathsig to the
// thread that started the child.
func (p *Program) wait(ctx context.Context, cmd *exec.Cmd, e *campaign.Execution) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return err
	}
	group := cmd.Process.Pid
	p.Reaper.add(group)
	ended := make(chan error, 1)
	// Without reaping the leader, so that the group's number can't belong to somebody else when it is killed.
	go func() {
		ended <- retryEINTR(func() error { return unix.Waitid(unix.P_PID, group, nil, unix.WEXITED|unix.WNOWAIT, nil) })
	}()
	timeout := time.NewTimer(p.Timeout)
	defer timeout.Stop()
	var kill <-chan time.Time
	var waitErr error
	for running := true; running; {
		select {
		case waitErr = <-ended:
			running = false
		case <-timeout.C:
			e.TimedOut = true
			_ = syscall.Kill(-group, syscall.SIGTERM) // gone already is fine
			after := p.KillAfter
			if after == 0 {
				after = 5 * time.Second
			}
			kill = time.After(after)
		case <-kill:
			_ = syscall.Kill(-group, syscall.SIGKILL)
		case <-ctx.Done():
			_ = syscall.Kill(-group, syscall.SIGKILL)
			waitErr = <-ended
			running = false
		}
	}
	_ = syscall.Kill(-group, syscall.SIGKILL)
	err := cmd.Wait()
	vanish(group)
	p.Reaper.done(group)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return errors.Join(err, waitErr)
	}
	e.Retcode = cmd.ProcessState.ExitCode()
	if st, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		e.Retcode = -int(st.Signal())
	}
	return nil
}

// vanish kills the group until none of it runs, for a second at most. Its members are not this process's children, so zombies stay until whoever
// adopted them looks; they count as gone.
func vanish(group int) {
	for range 200 {
		if syscall.Kill(-group, syscall.SIGKILL) != nil || !runs(group) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// runs tells whether a process of the group is not a zombie.
func runs(group int) bool {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		return true
	}
	for _, name := range stats {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // it has just gone
		}
		// pid (name) state parent group ...; the name may contain anything.
		fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		if len(fields) > 2 && fields[2] == strconv.Itoa(group) && fields[0] != "Z" && fields[0] != "X" {
			return true
		}
	}
	return false
}

func retryEINTR(f func() error) error {
	for {
		if err := f(); err != syscall.EINTR {
			return err
		}
	}
}

// substitute puts the input's name in place of @@, anywhere in any argument.
func substitute(argv []string, input string) (out []string, usesFile bool) {
	out = append(out, argv[0])
	for _, arg := range argv[1:] {
		usesFile = usesFile || strings.Contains(arg, "@@")
		out = append(out, strings.ReplaceAll(arg, "@@", input))
	}
	return out, usesFile
}

// environment is the target's. SYMCC_INPUT_FILE must be absent in stdin mode: set, even empty, it makes standard input concrete.
func environment(base []string, out string) []string {
	hints := "1"
	var env []string
	for _, kv := range base {
		name, value, _ := strings.Cut(kv, "=")
		switch {
		case strings.HasPrefix(name, "OMPI_"), strings.HasPrefix(name, "PMIX_"),
			name == "SYMCC_INPUT_FILE", name == "SYMCC_OUTPUT_DIR", name == "SYMCC_ENABLE_LINEARIZATION":
		case name == "SYMCC_EMIT_HINTS":
			hints = value
		default:
			env = append(env, kv)
		}
	}
	return append(env, "SYMCC_OUTPUT_DIR="+out, "SYMCC_ENABLE_LINEARIZATION=1", "SYMCC_EMIT_HINTS="+hints)
}

var errBudget = errors.New("the target wrote more than allowed")

// collect reads the regular files of the run directory, in order of their names, without following links and without waiting on pipes.
func (p *Program) collect(dir string) ([]campaign.Output, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrPermission) && os.Chmod(dir, 0o700) == nil { // the target's doing
		entries, err = os.ReadDir(dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // removed by the target
	}
	if err != nil {
		return nil, err
	}
	var outputs []campaign.Output
	left := p.MaxBytes
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), ".hints") || !entry.Type().IsRegular() {
			continue
		}
		if len(outputs) == p.MaxObjects {
			return nil, fmt.Errorf("%w: more than %d files", errBudget, p.MaxObjects)
		}
		data, err := readRegular(filepath.Join(dir, entry.Name()), left)
		if errors.Is(err, errBudget) {
			return nil, fmt.Errorf("%w: more than %d bytes", errBudget, p.MaxBytes)
		}
		if err != nil {
			return nil, err
		}
		left -= int64(len(data))
		outputs = append(outputs, campaign.Output{Name: entry.Name(), Data: data})
	}
	return outputs, nil
}

func readRegular(name string, limit int64) ([]byte, error) {
	const flags = os.O_RDONLY | syscall.O_NOFOLLOW | syscall.O_NONBLOCK | syscall.O_CLOEXEC
	f, err := os.OpenFile(name, flags, 0)
	if errors.Is(err, fs.ErrPermission) && os.Chmod(name, 0o600) == nil {
		f, err = os.OpenFile(name, flags, 0)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file any more", name)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = errBudget
	}
	return data, err
}

// removeAll removes a tree, also one in which a target has taken away permissions.
func removeAll(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error { // what can't be opened up is found by RemoveAll
		if err == nil && e.IsDir() {
			_ = os.Chmod(name, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
