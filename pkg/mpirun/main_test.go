package mpirun

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// modeVariable makes the test binary something else: a stand-in for mpirun, a rank,
// or a program that starts a job.
const modeVariable = "MPIRUN_TEST_MODE"

var modes = map[string]func(){
	"stubborn":    stubborn,
	"obedient":    obedient,
	"careless":    careless,
	"slow":        slow,
	"forgetful":   forgetful,
	"noisy":       noisy,
	"interpreter": interpreter,
	"inner":       inner,
	"runner":      runner,
}

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeVariable); mode != "" {
		modes[mode]()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func executable(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// standIn runs the test binary in place of mpirun.
func standIn(t *testing.T, ctx context.Context, mode string, change func(*Job)) (*Result, error) {
	t.Helper()
	l := &Launcher{Path: executable(t), Version: "4.1.4", Major: 4}
	j := Job{Program: "/bin/true", Ranks: 1, AllowRoot: true, TempDir: t.TempDir(), Env: []string{modeVariable + "=" + mode}}
	if change != nil {
		change(&j)
	}
	r, err := l.Run(ctx, j)
	if r == nil {
		t.Fatalf("not started: %v", err)
	}
	left, globErr := filepath.Glob(filepath.Join(j.TempDir, "*"))
	if globErr != nil || len(left) > 0 {
		t.Errorf("left in TempDir: %q %v", left, globErr)
	}
	for _, v := range r.Env {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, jobVariable) {
			if pids := (processes{session: -1, variable: name + "="}).list(); len(pids) > 0 {
				t.Errorf("processes left: %v", pids)
			}
		}
	}
	return r, err
}

// whenPrinted cancels a context once its text has been written.
type whenPrinted struct {
	bytes.Buffer
	text   string
	cancel func()
}

func (w *whenPrinted) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if strings.Contains(w.String(), w.text) {
		w.cancel()
	}
	return n, err
}

func stubborn() {
	signal.Ignore(syscall.SIGUSR1, syscall.SIGTERM)
	fmt.Println("ready")
	time.Sleep(time.Hour)
}

func obedient() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1)
	fmt.Println("ready")
	<-c
	os.Exit(7)
}

// careless leaves a process that has left its session.
func careless() {
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// slow leaves a process that ends a moment later.
func slow() {
	cmd := exec.Command("sleep", "0.1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// forgetful ends with 0 when asked, and leaves a process.
func forgetful() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1)
	careless()
	fmt.Println("ready")
	<-c
}

func noisy() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for i := range 20000 {
		fmt.Fprintf(out, "[1,0]<stdout>:line %d\n", i)
		fmt.Fprintf(os.Stderr, "[1,0]<stderr>:problem %d\n", i)
	}
	out.Flush()
	os.Exit(3)
}

func interpreter() {
	name, err := os.Readlink("/proc/self/fd/0")
	fmt.Println("stdin is", name, err)
}

// inner starts a job from within a rank.
func inner() {
	ctx := context.Background()
	l, err := Find(ctx)
	if err == nil {
		_, err = l.Run(ctx, Job{Program: "true", Ranks: 1, AllowRoot: os.Geteuid() == 0})
	}
	fmt.Println("inner job:", err)
}

func TestACancelledJobIsAskedFirst(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	out := &whenPrinted{text: "ready", cancel: func() { cancel(why) }}
	r, err := standIn(t, ctx, "obedient", func(j *Job) { j.Stdout, j.Grace = out, time.Minute })
	exit, ok := errors.AsType[*ExitError](err)
	if !errors.Is(err, why) || !ok || exit.Code != 7 || r.ExitCode != 7 || r.StoppedBy != syscall.SIGUSR1 {
		t.Errorf("got %+v, %v; want exit code 7 after SIGUSR1 and the cause", r, err)
	}
}

func TestAJobThatIgnoresAllIsKilled(t *testing.T) {
	r, err := standIn(t, t.Context(), "stubborn", func(j *Job) {
		j.Timeout, j.Grace = 200*time.Millisecond, 200*time.Millisecond
	})
	if !errors.Is(err, context.DeadlineExceeded) || r.StoppedBy != syscall.SIGKILL || r.ExitCode != 137 {
		t.Errorf("got %+v, %v; want 137 after SIGKILL and DeadlineExceeded", r, err)
	}
}

func TestProcessesThatLeftTheSessionAreKilled(t *testing.T) {
	r, err := standIn(t, t.Context(), "careless", nil)
	if !errors.Is(err, ErrSurvivors) || r.Killed != 1 || r.ExitCode != 0 {
		t.Errorf("got %+v, %v; want one process killed, which is no success", r, err)
	}
}

func TestProcessesThatAreJustEndingAreNoSurvivors(t *testing.T) {
	r, err := standIn(t, t.Context(), "slow", nil)
	if err != nil || r.Killed != 0 {
		t.Errorf("got %+v, %v", r, err)
	}
}

// A job that was stopped and ended with exit code 0 has done what it was asked, unless something of it had to be killed.
func TestAStoppedJobWithSurvivorsIsNoSuccess(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := &whenPrinted{text: "ready", cancel: cancel}
	r, err := standIn(t, ctx, "forgetful", func(j *Job) { j.Stdout, j.Grace = out, time.Minute })
	if !errors.Is(err, ErrSurvivors) || !errors.Is(err, context.Canceled) || r.ExitCode != 0 || r.StoppedBy != syscall.SIGUSR1 {
		t.Errorf("got %+v, %v", r, err)
	}
}

// What can't be ended in time leaves a result that is no success either, and says why the job was stopped.
func TestAJobThatCannotBeEndedHasNoExitCode(t *testing.T) {
	l := &Launcher{Path: executable(t), Version: "4.1.4", Major: 4}
	ctx, cancel := context.WithCancelCause(t.Context())
	j := Job{Program: "/bin/true", Ranks: 1, AllowRoot: true, TempDir: t.TempDir(), Env: []string{modeVariable + "=careless"}}
	r, err := l.prepare(j)
	if err == nil {
		err = r.start()
	}
	if err != nil {
		t.Fatal(err)
	}
	<-r.exited
	why := errors.New("enough")
	cancel(why)
	r.result.StoppedBy, r.sweep = syscall.SIGTERM, 0 // no time to die
	res, err := r.finish(ctx)
	if !errors.Is(err, why) || !strings.Contains(err.Error(), "did not die") || res.ExitCode != -1 || res.Killed != 1 {
		t.Errorf("got %+v, %v", res, err)
	}
	r.cmd.Wait() // its status says nothing here
	if err := errors.Join(r.collect(), r.dir.remove()); err != nil {
		t.Error(err)
	}
}

func TestAllOutputArrivesAndItsEndIsKept(t *testing.T) {
	var out, errOut bytes.Buffer
	r, err := standIn(t, t.Context(), "noisy", func(j *Job) { j.Stdout, j.Stderr = &out, &errOut })
	exit, ok := errors.AsType[*ExitError](err)
	if !ok || r.ExitCode != 3 {
		t.Fatalf("got %+v, %v", r, err)
	}
	if n := strings.Count(out.String(), "[0 stdout] line"); n != 20000 {
		t.Errorf("%d lines of 20000", n)
	}
	if !strings.HasSuffix(errOut.String(), string(exit.Stderr)) || !bytes.HasSuffix(exit.Stderr, []byte("[0 stderr] problem 19999\n")) || len(exit.Stderr) > 4096 {
		t.Errorf("kept %d bytes: %q", len(exit.Stderr), exit.Stderr)
	}
}

func TestMpirunNeverSeesOurInput(t *testing.T) {
	var out bytes.Buffer
	if _, err := standIn(t, t.Context(), "interpreter", func(j *Job) { j.Stdout = &out }); err != nil {
		t.Fatal(err)
	}
	if out.String() != "stdin is /dev/null <nil>\n" {
		t.Errorf("got %q (MP-5)", &out)
	}
}

func TestAFailingWriterIsReported(t *testing.T) {
	full := errors.New("disk full")
	_, err := standIn(t, t.Context(), "noisy", func(j *Job) { j.Stdout = failingWriter{full} })
	if _, ok := errors.AsType[*ExitError](err); !ok || !errors.Is(err, full) {
		t.Errorf("got %v, want the exit code and the writer's error", err)
	}
}

func TestAnEndedContextStartsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l := &Launcher{Path: executable(t), Version: "4.1.4", Major: 4}
	if r, err := l.Run(ctx, Job{Program: "/bin/true", Ranks: 1, AllowRoot: true}); r != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("got %+v, %v", r, err)
	}
}
