package mpirun

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// Launcher is an mpirun of Open MPI, as Find found it. It is not changed by its
// methods, which may be called concurrently.
type Launcher struct {
	Path    string // absolute
	Version string // such as "4.1.4"
	Major   int    // first number of Version; decides between the option names of 4.x and 5.x
}

// Find looks for Open MPI's mpirun in PATH, under its Debian name first, since
// mpirun itself may belong to another implementation. It runs mpirun --version.
// Errors: ErrNotFound; ErrUnsupported with what was found instead.
func Find(ctx context.Context) (*Launcher, error) {
	var found error
	for _, name := range []string{"mpirun.openmpi", "mpirun"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		l, err := probe(ctx, path)
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

func probe(ctx context.Context, path string) (*Launcher, error) {
	out, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
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
