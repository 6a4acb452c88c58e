package afl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Verdict is how the target ended on an input.
type Verdict int

const (
	OK    Verdict = 0
	Hang  Verdict = 1
	Crash Verdict = 2
)

func (v Verdict) String() string {
	switch v {
	case OK:
		return "ok"
	case Hang:
		return "hang"
	case Crash:
		return "crash"
	}
	return "verdict " + strconv.Itoa(int(v))
}

// ErrShowmap is returned when afl-showmap itself failed: nothing is known about the input.
var ErrShowmap = errors.New("afl-showmap failed")

// Showmap measures inputs with the target of an instance. Its methods may be called concurrently.
type Showmap struct {
	Instance *Instance
	TempDir  string   // scratch files go here; "" means the system's
	Env      []string // of afl-showmap and the target; nil means this process's
}

// Measure runs the target on one input. On an error nothing is known about the input.
func (s *Showmap) Measure(ctx context.Context, data []byte) (Map, Verdict, error) {
	maps, code, err := s.run(ctx, [][]byte{data})
	if err != nil {
		return nil, OK, err
	}
	return maps[0], Verdict(code), nil
}

// Batch runs the target on each input, behind one fork server. The map of an input on which the target crashed or
// hung is nil: Measure tells which. Inputs must not be empty.
func (s *Showmap) Batch(ctx context.Context, inputs [][]byte) ([]Map, error) {
	if len(inputs) == 0 {
		return nil, nil
	}
	maps, _, err := s.run(ctx, inputs, "-Z")
	return maps, err
}

// run writes the inputs to a directory of their own and reads the maps back. The exit status is that of the last input;
// 1 means a hang or a failure of afl-showmap, told apart by whether the maps are there.
func (s *Showmap) run(ctx context.Context, inputs [][]byte, extra ...string) (maps []Map, code int, err error) {
	tmp, err := os.MkdirTemp(s.TempDir, "showmap-")
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrShowmap, err)
	}
	defer os.RemoveAll(tmp)
	in, out := filepath.Join(tmp, "in"), filepath.Join(tmp, "out")
	if err := os.Mkdir(in, 0o700); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrShowmap, err)
	}
	for i, data := range inputs {
		if err := os.WriteFile(filepath.Join(in, strconv.Itoa(i)), data, 0o600); err != nil {
			return nil, 0, fmt.Errorf("%w: %w", ErrShowmap, err)
		}
	}
	code, text, err := s.exec(ctx, s.args(in, out, extra))
	if err != nil {
		return nil, 0, err
	}
	maps = make([]Map, len(inputs))
	for i := range inputs {
		raw, err := os.ReadFile(filepath.Join(out, strconv.Itoa(i)))
		if err != nil || code > int(Crash) {
			return nil, 0, fmt.Errorf("%w on %s (exit status %d): %s", ErrShowmap, s.Instance.Target[0], code, complaint(text))
		}
		if maps[i], err = sparse(raw); err != nil {
			return nil, 0, fmt.Errorf("%w: %w", ErrShowmap, err)
		}
	}
	return maps, code, nil
}

// args is the command line: -q sinks the target's output, -b asks for raw maps.
func (s *Showmap) args(in, out string, extra []string) []string {
	args := append([]string{"-q", "-b"}, extra...)
	if s.Instance.QEMU {
		args = append(args, "-Q")
	}
	args = append(args, "-t", strconv.FormatInt(s.Instance.Timeout.Milliseconds(), 10), "-m", "none", "-i", in, "-o", out, "--")
	return append(args, s.Instance.Target...)
}

// exec runs afl-showmap. It's asked to end by SIGTERM, also when this process dies: on that signal it ends the fork server and the
// target, which run in a session of their own and would otherwise stay.
func (s *Showmap) exec(ctx context.Context, args []string) (code int, text string, err error) {
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, s.Instance.Showmap, args...)
	cmd.Dir = s.Instance.Dir
	cmd.Env = append(cmd.Environ(), "AFL_QUIET=1")
	if s.Env != nil {
		cmd.Env = append(slices.Clone(s.Env), "AFL_QUIET=1")
	}
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 2 * time.Second
	err = onOwnThread(cmd.Run)
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return 0, "", fmt.Errorf("%w: %w", ErrShowmap, context.Cause(ctx))
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode(), output.String(), nil
	case err != nil:
		return 0, "", fmt.Errorf("%w: %w", ErrShowmap, err)
	}
	return 0, output.String(), nil
}

var colours = regexp.MustCompile(`\x1b\[[0-9;?]*[a-zA-Z]|\x1b\)B|\)B`)

// complaint picks the line of afl-showmap's output that says what went wrong.
func complaint(text string) string {
	last := "it said nothing"
	for line := range strings.Lines(colours.ReplaceAllString(text, "")) {
		line = strings.TrimSpace(line)
		if _, what, ok := strings.Cut(line, "PROGRAM ABORT : "); ok {
			return what
		}
		if _, what, ok := strings.Cut(line, "SYSTEM ERROR : "); ok {
			return what
		}
		if line != "" {
			last = line
		}
	}
	return last
}
