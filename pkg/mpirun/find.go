package mpirun

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Launcher is an mpirun of Open MPI, as Find found it. It is not changed by its
// methods, which may be called concurrently.
type Launcher struct {
	Path    string // absolute
	Version string // such as "4.1.4"
	Major   int    // first number of Version; decides between the option names of 4.x and 5.x
}

// Find looks for Open MPI's mpirun in PATH, under its Debian name first, since
// mpirun itself may belong to another implementation. It runs mpirun --version,
// which has ten seconds to answer.
// Errors: ErrNotFound; ErrUnsupported with what was found instead.
func Find(ctx context.Context) (*Launcher, error) {
	var found error
	for _, name := range []string{"mpirun.openmpi", "mpirun"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		l, err := probe(ctx, path, probeLimit)
		if err == nil {
			return l, nil
		}
		found = err
	}
	if found == nil {
		return nil, ErrNotFound
	}
	return nil, found
}

// probeLimit bounds mpirun --version, which takes milliseconds; one on a file
// system that hangs, or a wrapper that waits for something, would hang Find.
const probeLimit = 10 * time.Second

func probe(ctx context.Context, path string, limit time.Duration) (*Launcher, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	// A wrapper's own children are ended too, and do not keep us waiting for the pipe.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %s --version: %w", ErrUnsupported, path, context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s --version: %w: %s", ErrUnsupported, path, err, firstLine(string(out)))
	}
	version, major, err := parseVersion(string(out))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w: install Open MPI 4 or newer (Debian: apt-get install openmpi-bin)", ErrUnsupported, path, err)
	}
	return &Launcher{Path: path, Version: version, Major: major}, nil
}

var openMPI = regexp.MustCompile(`\((?:Open MPI|OpenRTE)\) (([0-9]+)[.0-9a-z]*)`)

// parseVersion understands what mpirun --version prints in Open MPI 1 to 5, and
// names the other implementations it knows.
func parseVersion(text string) (version string, major int, err error) {
	m := openMPI.FindStringSubmatch(text)
	if m == nil {
		switch {
		case strings.Contains(text, "HYDRA") || strings.Contains(text, "MPICH"):
			return "", 0, errors.New("this is MPICH's mpirun, whose ranks would not see each other")
		case strings.Contains(text, "Intel(R) MPI"):
			return "", 0, errors.New("this is Intel MPI's mpirun")
		}
		return "", 0, fmt.Errorf("unknown implementation: %q", firstLine(text))
	}
	major, err = strconv.Atoi(m[2])
	if err != nil || major < 4 {
		return "", 0, fmt.Errorf("version %s is too old", m[1])
	}
	return m[1], major, nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
