//go:build mpi && cgo

package mpi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"shardlease/pkg/mpirun"
	"shardlease/pkg/mpirun/mpi"
)

func init() {
	programs["idle"] = idle
	programs["abort"] = func(ctx context.Context, world *mpi.Comm) error {
		if world.Rank() == 1 {
			world.Abort(70)
		}
		return world.Barrier(ctx)
	}
	programs["exit9"] = func(ctx context.Context, world *mpi.Comm) error {
		if world.Rank() == 1 {
			os.Exit(9)
		}
		return world.Barrier(ctx)
	}
	programs["killed"] = func(ctx context.Context, world *mpi.Comm) error {
		if world.Rank() == 1 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return world.Barrier(ctx)
	}
	programs["disagree"] = func(ctx context.Context, world *mpi.Comm) error {
		if world.Rank() == 1 {
			return errors.New("rank 1 has failed")
		}
		err := world.Barrier(ctx)
		fmt.Println("barrier passed without rank 1:", err)
		return err
	}
	programs["agree"] = func(ctx context.Context, world *mpi.Comm) error {
		return errors.New("all have failed")
	}
	programs["unreceived"] = func(ctx context.Context, world *mpi.Comm) error {
		if world.Rank() == 0 {
			return errors.Join(world.Send(ctx, 1, 1, make([]byte, 8<<20)), world.Send(ctx, 1, 1, make([]byte, 8<<20)))
		}
		return nil
	}
	programs["hello"] = func(ctx context.Context, world *mpi.Comm) error {
		fmt.Println("rank", world.Rank(), "of", world.Size())
		return nil
	}
	programs["patient"] = patient
	programs["deaf"] = deaf
}

// A failing rank must end the job in a bounded time, with its own code (MP-7, MP-9).
func TestTheJobEndsWithTheRankThatFails(t *testing.T) {
	for _, c := range []struct {
		mode, want string
		code       int
	}{
		{"abort", "", 70},
		{"exit9", "", 9},
		{"killed", "", 137},
		{"disagree", "rank 1 has failed", 1},
		{"agree", "all have failed", 1},
		{"unreceived", "[0 stderr] " + mpi.ErrUnknown.Error() + ": 2 to rank 1", 1},
	} {
		t.Run(c.mode, func(t *testing.T) {
			for _, ranks := range []int{2, 8} {
				r, out, err := launch(t, t.Context(), ranks, c.mode, func(j *mpirun.Job) { j.Timeout = 30 * time.Second })
				if r.ExitCode != c.code || err == nil || r.StoppedBy != 0 || !strings.Contains(out, c.want) {
					t.Errorf("%d ranks: exit code %d, %v, want %d by itself and %q in\n%s", ranks, r.ExitCode, err, c.code, c.want, out)
				}
				if strings.Contains(out, "barrier passed") {
					t.Errorf("%d ranks: leaving counts as a barrier of the program\n%s", ranks, out)
				}
			}
		})
	}
}

func TestAnotherWorldSizeIsRefused(t *testing.T) {
	r, out, err := launch(t, t.Context(), 2, "hello", func(j *mpirun.Job) {
		j.Program, j.Args = "env", append([]string{"MPIRUN_WORLD_SIZE=8", j.Program}, j.Args...)
	})
	if err == nil || r.ExitCode != 1 || !strings.Contains(out, "wrong world size: 2 rank(s), want 8") || strings.Contains(out, "of 2") {
		t.Errorf("got %v\n%s", err, out)
	}
}

func TestWithoutMpirunAProgramIsAlone(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(mpirun.ChildEnv(os.Environ()), modeVariable+"=hello")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "rank 0 of 1") {
		t.Errorf("got %v\n%s", err, out)
	}
	cmd = exec.Command(exe)
	cmd.Env = append(mpirun.ChildEnv(os.Environ()), modeVariable+"=hello", "MPIRUN_WORLD_SIZE=8")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "wrong world size: 1 rank(s), want 8") {
		t.Errorf("got %v\n%s", err, out)
	}
}

// idle measures what waiting costs, after a common start.
func idle(ctx context.Context, world *mpi.Comm) error {
	if err := world.Barrier(ctx); err != nil {
		return err
	}
	before, start := cpuTime(), time.Now()
	waiting, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if _, err := world.Recv(waiting, mpi.AnySource, mpi.AnyTag); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("idle: %v", err)
	}
	share := float64(cpuTime()-before) / float64(time.Since(start))
	fmt.Printf("waiting takes %.4f of a processor\n", share)
	if share > 0.10 {
		return fmt.Errorf("rank %d: waiting took %.0f %% of a processor", world.Rank(), 100*share)
	}
	return world.Barrier(ctx)
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestIdleRanksDoNotBurnAProcessor(t *testing.T) {
	_, out, err := launch(t, t.Context(), 8, "idle", nil)
	if err != nil {
		t.Error(err)
	}
	t.Log(out)
}

// patient ends in order when it is asked to.
func patient(ctx context.Context, world *mpi.Comm) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGUSR1)
	defer stop()
	fmt.Println("ready")
	if _, err := world.Recv(ctx, mpi.AnySource, mpi.AnyTag); ctx.Err() == nil {
		return err
	}
	fmt.Println("asked to stop")
	return world.Barrier(context.WithoutCancel(ctx))
}

// deaf ignores what can be ignored, and so does its tool. Rank 1 is stopped, so that
// nothing it does itself can end it.
func deaf(ctx context.Context, world *mpi.Comm) error {
	signal.Ignore(syscall.SIGUSR1, syscall.SIGTERM, syscall.SIGPIPE)
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the parent-death signal is tied to this thread
		tool := exec.Command("sh", "-c", `trap "" USR1 TERM PIPE; exec sleep 1000`)
		tool.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
		err := tool.Start()
		started <- err
		if err == nil {
			tool.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	fmt.Println("ready")
	if world.Rank() == 1 {
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
	_, err := world.Recv(ctx, mpi.AnySource, mpi.AnyTag)
	return err
}

// ready calls then once all ranks have said that they are ready.
type ready struct {
	bytes.Buffer
	ranks int
	then  func()
}

func (w *ready) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if bytes.HasSuffix(p, []byte("ready\n")) && strings.Count(w.String(), "] ready\n") == w.ranks {
		w.then()
	}
	return n, err
}

func TestAJobThatIsCancelledEndsInOrder(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := &ready{ranks: 8, then: cancel}
	r, _, err := launch(t, ctx, 8, "patient", func(j *mpirun.Job) { j.Stdout, j.Stderr, j.Grace = out, out, time.Minute })
	if !errors.Is(err, context.Canceled) || r.ExitCode != 0 || r.StoppedBy != syscall.SIGUSR1 || r.Killed != 0 {
		t.Errorf("got %+v, %v", r, err)
	}
	if n := strings.Count(out.String(), "asked to stop"); n != 8 {
		t.Errorf("%d ranks were asked, want 8\n%s", n, out)
	}
}

func TestADeafJobIsGoneWithinFiveSeconds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var asked time.Time
	out := &ready{ranks: 8, then: func() { asked = time.Now(); cancel() }}
	r, _, err := launch(t, ctx, 8, "deaf", func(j *mpirun.Job) { j.Stdout, j.Stderr = out, out })
	took := time.Since(asked)
	if !errors.Is(err, context.Canceled) || r.StoppedBy == 0 {
		t.Errorf("got %+v, %v\n%s", r, err, out)
	}
	if left := marked(t, r.Env); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if t.Logf("gone after %v", took); took > 5*time.Second {
		t.Errorf("took %v from the cancellation", took)
	}
}

// marked returns the processes that carry the last variable of env, the job's own.
func marked(t *testing.T, env []string) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		environ, err := os.ReadFile("/proc/" + e.Name() + "/environ")
		if err == nil && bytes.Contains(environ, []byte(env[len(env)-1])) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestTheJobDiesWithItsParent starts the job from a process of its own, which is
// killed: nothing of ours is left to clean up, and all must go.
func TestTheJobDiesWithItsParent(t *testing.T) {
	if _, err := mpirun.Find(t.Context()); err != nil {
		t.Skip(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	mark := fmt.Sprintf("MPI_TEST_PARENT=%d.%d", os.Getpid(), time.Now().UnixNano())
	parent := exec.Command(exe, "-test.run=^TestHelperParent$", "-test.v")
	parent.Env = append(os.Environ(), mark, "TMPDIR="+t.TempDir())
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	parent.Stdout, parent.Stderr = pw, pw
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	pw.Close()
	var out bytes.Buffer
	buf := make([]byte, 4096)
	for strings.Count(out.String(), "] ready\n") < 8 {
		n, err := pr.Read(buf)
		out.Write(buf[:n])
		if err != nil {
			t.Fatalf("%v: %s", err, &out)
		}
	}
	// A look at /proc while a process is between fork and exec does not see its mark.
	for n, since := 0, time.Now(); n < 1+1+8+8; time.Sleep(10 * time.Millisecond) {
		if n = len(marked(t, []string{mark})); n < 1+1+8+8 && time.Since(since) > 5*time.Second {
			t.Fatalf("%d processes before the kill, want parent, mpirun, 8 ranks and 8 tools at least", n)
		}
	}
	parent.Process.Kill()
	parent.Wait()
	killed := time.Now()
	for left := marked(t, []string{mark}); len(left) > 0; left = marked(t, []string{mark}) {
		if time.Since(killed) > 5*time.Second {
			for _, pid := range left {
				syscall.Kill(pid, syscall.SIGKILL)
			}
			t.Fatalf("5 s after the kill of the parent: %v are left", left)
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("gone after %v", time.Since(killed))
}

// TestHelperParent is the parent of TestTheJobDiesWithItsParent; by itself it does nothing.
func TestHelperParent(t *testing.T) {
	if os.Getenv("MPI_TEST_PARENT") == "" {
		t.Skip("runs as a process of TestTheJobDiesWithItsParent only")
	}
	_, _, err := launch(t, t.Context(), 8, "deaf", func(j *mpirun.Job) {
		j.Stdout, j.Stderr = os.Stdout, os.Stderr
	})
	t.Fatalf("the job ended: %v", err)
}
