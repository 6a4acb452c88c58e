//go:build mpi && cgo

package mpi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shardlease/pkg/mpirun"
	"shardlease/pkg/mpirun/mpi"
)

// modeVariable makes the test binary a rank of the named program.
const modeVariable = "MPI_TEST_MODE"

// programs are what ranks run. An error ends the rank with exit code 1, which ends the job.
var programs = map[string]func(ctx context.Context, world *mpi.Comm) error{}

func TestMain(m *testing.M) {
	mode := os.Getenv(modeVariable)
	if mode == "" {
		os.Exit(m.Run())
	}
	program, ok := programs[mode]
	if !ok {
		fmt.Fprintf(os.Stderr, "no program %q\n", mode)
		os.Exit(2)
	}
	if err := mpi.Run(context.Background(), mpi.Options{}, program); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// launch runs a program in ranks copies of the test binary and checks that no
// file is left. What the ranks print is returned.
func launch(t *testing.T, ctx context.Context, ranks int, mode string, change func(*mpirun.Job)) (*mpirun.Result, string, error) {
	t.Helper()
	l, err := mpirun.Find(t.Context())
	if err != nil {
		t.Skip(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	dir := t.TempDir()
	j := mpirun.Job{
		Program: exe, Env: []string{modeVariable + "=" + mode}, Ranks: ranks,
		AllowRoot: os.Geteuid() == 0, Oversubscribe: true, TempDir: dir,
		Timeout: 2 * time.Minute, Stdout: &out, Stderr: &out,
	}
	if change != nil {
		change(&j)
	}
	r, err := l.Run(ctx, j)
	if r == nil {
		t.Fatalf("not started: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("left in TempDir: %q", left)
	}
	return r, out.String(), err
}

// succeed runs a program whose ranks do their own checks.
func succeed(t *testing.T, ranks int, mode string) {
	t.Helper()
	if _, out, err := launch(t, t.Context(), ranks, mode, nil); err != nil {
		t.Errorf("%d ranks: %v\n%s", ranks, err, out)
	}
}

// both runs a program with two ranks and with more ranks than processors.
func both(t *testing.T, mode string) {
	t.Helper()
	succeed(t, 2, mode)
	succeed(t, 8, mode)
}

// wantError tells what an MPI call should have answered.
func wantError(op string, err error) error {
	if e, ok := errors.AsType[*mpi.Error](err); !ok || e.Op != op || e.Class <= 0 || e.Text == "" || strings.Contains(e.Text, "\n") {
		return fmt.Errorf("got %v, want an *mpi.Error of %s with class and text on one line", err, op)
	}
	return nil
}
