package mpirun

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// These tests run plain programs under the installed Open MPI; they need no MPI binding.

// launch runs sh -c script in ranks copies and checks that nothing is left.
func launch(t *testing.T, ctx context.Context, ranks int, script string, change func(*Job)) (*Result, string, error) {
	t.Helper()
	l, err := Find(t.Context())
	if err != nil {
		t.Skip(err)
	}
	var out bytes.Buffer
	j := Job{
		Program: "sh", Args: []string{"-c", script}, Ranks: ranks,
		AllowRoot: os.Geteuid() == 0, Oversubscribe: true, TempDir: t.TempDir(),
		Timeout: time.Minute, Stdout: &out, Stderr: &out,
	}
	if change != nil {
		change(&j)
	}
	r, err := l.Run(ctx, j)
	if r == nil {
		t.Fatalf("not started: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(j.TempDir, "*")); len(left) > 0 {
		t.Errorf("left in TempDir: %q", left)
	}
	for _, v := range r.Env {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, jobVariable) {
			if pids := (processes{session: -1, variable: name + "="}).list(); len(pids) > 0 {
				t.Errorf("processes left: %v", pids)
			}
		}
	}
	return r, out.String(), err
}

func TestExitCodesAreThoseOfTheRanks(t *testing.T) {
	for _, c := range []struct {
		name, script string
		code         int
	}{
		{"all succeed", "exit 0", 0},
		{"one of two exits with 9", `test $OMPI_COMM_WORLD_RANK = 0 || exit 9; sleep 1000`, 9},
		{"one of two is killed", `test $OMPI_COMM_WORLD_RANK = 0 || kill -9 $$; sleep 1000`, 137},
	} {
		r, out, err := launch(t, t.Context(), 2, c.script, nil)
		if r.ExitCode != c.code || r.StoppedBy != 0 || (err == nil) != (c.code == 0) {
			t.Errorf("%s: got %d, %v, want %d (MP-7)\n%s", c.name, r.ExitCode, err, c.code, out)
		}
	}
}

func TestResultSaysHowTheJobRan(t *testing.T) {
	ranks := runtime.NumCPU() + 1
	r, out, err := launch(t, t.Context(), ranks, "echo rank $OMPI_COMM_WORLD_RANK of $MPIRUN_WORLD_SIZE", nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !r.Oversubscribed || r.Root != (os.Geteuid() == 0) || r.Version == "" || r.Wall <= 0 || r.Start.IsZero() || r.Killed != 0 {
		t.Errorf("got %+v (MP-2)", r)
	}
	seen := make(map[int]bool)
	for line := range strings.Lines(out) {
		if rank, stream, _, ok := Untag(line); ok && stream == "stdout" {
			seen[rank] = true
		}
	}
	if len(seen) != ranks {
		t.Errorf("lines of %d ranks, want %d:\n%s", len(seen), ranks, out)
	}
}

func TestTooManyRanksShowMpirunsOwnMessage(t *testing.T) {
	_, out, err := launch(t, t.Context(), runtime.NumCPU()+1, "true", func(j *Job) { j.Oversubscribe = false })
	exit, ok := errors.AsType[*ExitError](err)
	if !ok || !strings.Contains(out, "not enough slots") || !bytes.Contains(exit.Stderr, []byte("not enough slots")) {
		t.Errorf("got %v (MP-2, MP-15)\n%s", err, out)
	}
}

func TestRanksAreNotBoundToProcessors(t *testing.T) {
	_, out, err := launch(t, t.Context(), 1, "nproc", nil)
	if _, _, text, _ := Untag(strings.TrimSpace(out)); err != nil || text == "1" && runtime.NumCPU() > 1 {
		t.Errorf("a rank sees %s processors of %d, %v (MP-6)", text, runtime.NumCPU(), err)
	}
}

func TestLongSessionDirectoriesWork(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 100))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, out, err := launch(t, t.Context(), 2, "true", func(j *Job) { j.TempDir = dir }); err != nil {
		t.Errorf("%v (MP-4)\n%s", err, out)
	}
}

func TestACancelledJobLeavesNothing(t *testing.T) {
	for _, c := range []struct {
		name, script string
		last         syscall.Signal
	}{
		{"ends when asked", `trap "exit 0" USR1; echo ready; while :; do sleep 0.1; done`, syscall.SIGUSR1},
		{"ignores the question", `trap "" USR1; echo ready; sleep 1000`, syscall.SIGTERM},
		// A tool in a session of its own is beyond mpirun's reach.
		{"leaves tools behind", `trap "" USR1 TERM; setsid sleep 1000 & echo ready; sleep 1000`, syscall.SIGTERM},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		out := &whenPrinted{text: "[1 stdout] ready", cancel: cancel}
		start := time.Now()
		r, _, err := launch(t, ctx, 2, c.script, func(j *Job) { j.Stdout, j.Stderr = out, out })
		if !errors.Is(err, context.Canceled) || r.StoppedBy != c.last {
			t.Errorf("%s: last signal %v, %v, want %v\n%s", c.name, r.StoppedBy, err, c.last, out)
		}
		t.Logf("%s: %v, killed %d", c.name, time.Since(start), r.Killed)
	}
}

func TestTimeoutStopsTheJob(t *testing.T) {
	r, out, err := launch(t, t.Context(), 2, "sleep 1000", func(j *Job) { j.Timeout = time.Second })
	if !errors.Is(err, context.DeadlineExceeded) || r.StoppedBy == 0 || !strings.Contains(err.Error(), "timeout of 1s") {
		t.Errorf("got %+v, %v\n%s", r, err, out)
	}
}

func TestMpirunThatIsKilledLeavesNothing(t *testing.T) {
	r, out, err := launch(t, t.Context(), 2, `test $OMPI_COMM_WORLD_RANK = 0 && kill -9 $PPID; sleep 1000`, nil)
	if r.ExitCode != 137 || r.Killed == 0 || err == nil {
		t.Errorf("got %+v, %v\n%s", r, err, out)
	}
}

func TestAJobCanBeStartedInsideARank(t *testing.T) {
	script := `exec "$0"`
	_, out, err := launch(t, t.Context(), 1, script, func(j *Job) {
		j.Args = append(j.Args, executable(t))
		j.Env = []string{modeVariable + "=inner"}
	})
	if err != nil || !strings.Contains(out, "inner job: <nil>") {
		t.Errorf("%v\n%s", err, out)
	}
}
