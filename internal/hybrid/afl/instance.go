package afl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

var (
	// ErrNoInstance is returned when the directory holds no instance of that name.
	ErrNoInstance = errors.New("no such AFL instance")
	// ErrNotRunning is returned when the instance's process is gone.
	ErrNotRunning = errors.New("AFL instance is not running")
	// ErrNoShowmap is returned when afl-showmap is neither beside afl-fuzz nor in PATH.
	ErrNoShowmap = errors.New("afl-showmap not found")
	// ErrNoTarget is returned when the instance's target program can't be executed.
	ErrNoTarget = errors.New("target program not found")
)

// Instance is a running AFL++ instance, as its own files describe it.
type Instance struct {
	Out, Name string        // the -o directory, absolute, and the -M or -S name
	PID       int           // of afl-fuzz, on this host
	Target    []string      // program and arguments; "@@" stands for the input file
	Stdin     bool          // no argument contains "@@"
	QEMU      bool          // -Q
	Dir       string        // the directory afl-fuzz runs in: relative arguments mean this one
	Timeout   time.Duration // after which AFL itself calls a run a hang
	Showmap   string        // path of afl-showmap
}

// minTimeout is AFL's own default limit for a hang. Its tighter automatic limit would make hangs of runs that merely
// share the machine with the campaign.
const minTimeout = time.Second

// Attach reads what the instance says about itself and checks that it can be used. afl-fuzz must run on this host.
func Attach(ctx context.Context, out, name string) (*Instance, error) {
	out, err := filepath.Abs(out)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(out, name)
	if _, err := os.Stat(filepath.Join(dir, "queue")); err != nil {
		return nil, fmt.Errorf("%w: %s has no instance %q with a queue (start afl-fuzz -M %s -o %s first): %w",
			ErrNoInstance, out, name, name, out, err)
	}
	stats, err := ReadStats(ctx, filepath.Join(dir, "fuzzer_stats"))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", ErrNoInstance, err)
		}
		return nil, err
	}
	inst := &Instance{Out: out, Name: name, Timeout: minTimeout}
	if ms, ok := stats.Number("exec_timeout"); ok {
		inst.Timeout = max(inst.Timeout, time.Duration(ms)*time.Millisecond)
	}
	if inst.PID, err = runningPID(stats); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrNotRunning, dir, err)
	}
	if inst.Dir, err = os.Readlink(fmt.Sprintf("/proc/%d/cwd", inst.PID)); err != nil {
		return nil, fmt.Errorf("%w: %s: find the directory of process %d: %w", ErrNotRunning, dir, inst.PID, err)
	}
	fuzzer, err := inst.command(stats[lastKey], filepath.Join(dir, "cmdline"))
	if err != nil {
		return nil, err
	}
	if inst.Showmap, err = findShowmap(inst.Dir, fuzzer); err != nil {
		return nil, err
	}
	return inst, inst.checkTarget()
}

// Queue is the directory of the instance's inputs.
func (i *Instance) Queue() string { return filepath.Join(i.Out, i.Name, "queue") }

// Stats reads the instance's current statistics.
func (i *Instance) Stats(ctx context.Context) (Stats, error) {
	return ReadStats(ctx, filepath.Join(i.Out, i.Name, "fuzzer_stats"))
}

// Running says whether the instance's process still exists.
func (i *Instance) Running() bool { return alive(i.PID) == nil }

// runningPID returns the fuzzer's process if that exists here.
func runningPID(stats Stats) (int, error) {
	pid, err := strconv.Atoi(stats["fuzzer_pid"])
	if err != nil || pid <= 0 {
		return 0, fmt.Errorf("fuzzer_pid is %q", stats["fuzzer_pid"])
	}
	if err := alive(pid); err != nil {
		return 0, fmt.Errorf("fuzzer_pid %d: %w (it must run on this host)", pid, err)
	}
	return pid, nil
}

func alive(pid int) error {
	if err := syscall.Kill(pid, 0); err != nil && !errors.Is(err, syscall.EPERM) {
		return err
	}
	return nil
}

// command fills in the target and the mode from afl-fuzz's command line, and returns afl-fuzz itself.
func (i *Instance) command(line, exact string) (fuzzer string, err error) {
	words, err := SplitWords(line)
	if err != nil {
		return "", err
	}
	cut := slices.Index(words, "--")
	if cut < 1 || cut+1 == len(words) {
		return "", fmt.Errorf("command_line of AFL instance %q has no target after --: %q", i.Name, line)
	}
	i.QEMU = slices.Contains(words[1:cut], "-Q")
	i.Target = words[cut+1:]
	// The exact arguments, when they are what the joined line shows: a blank inside one can't be told from a separator there.
	if data, err := os.ReadFile(exact); err == nil {
		args := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
		if strings.HasSuffix(line, " -- "+strings.Join(args, " ")) {
			i.Target = args
		}
	}
	i.Stdin = !slices.ContainsFunc(i.Target, func(arg string) bool { return strings.Contains(arg, "@@") })
	return words[0], nil
}

// findShowmap prefers the afl-showmap beside the instance's own afl-fuzz: map layouts differ between versions.
func findShowmap(dir, fuzzer string) (string, error) {
	if strings.Contains(fuzzer, "/") {
		beside := filepath.Join(filepath.Dir(fuzzer), "afl-showmap")
		if !filepath.IsAbs(beside) {
			beside = filepath.Join(dir, beside)
		}
		if path, err := exec.LookPath(beside); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath("afl-showmap")
	if err != nil {
		return "", fmt.Errorf("%w beside %s or in PATH (Debian package afl++): %w", ErrNoShowmap, fuzzer, err)
	}
	return filepath.Abs(path)
}

func (i *Instance) checkTarget() error {
	program := i.Target[0]
	if strings.Contains(program, "/") && !filepath.IsAbs(program) {
		program = filepath.Join(i.Dir, program)
	}
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Errorf("%w: AFL instance %q runs %s: %w", ErrNoTarget, i.Name, program, err)
	}
	return nil
}
