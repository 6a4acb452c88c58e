package sysfault_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"shardlease/internal/sysfault"
)

const roleEnv = "SYSFAULT_TEST_ROLE"

func TestMain(m *testing.M) {
	sysfault.Shim()
	if role := os.Getenv(roleEnv); role != "" {
		if err := roles[role](os.Args[len(os.Args)-1]); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			var errno syscall.Errno
			if errors.As(err, &errno) {
				os.Exit(int(errno))
			}
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// roles are what the test binary does when it is started as a program; each gets a directory.
var roles = map[string]func(dir string) error{
	"publish": publish,
	"storm":   storm,
	"kill":    runOperation,
}

// publish writes one file the durable way: open, fsync, rename, open of the directory, fsync.
func publish(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "tmp"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteString("content"); err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(dir, "tmp"), filepath.Join(dir, "final")); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// storm publishes from many goroutines, so from many threads.
func storm(dir string) error {
	errs := make(chan error, 8)
	for i := range cap(errs) {
		go func() {
			sub := filepath.Join(dir, string(rune('a'+i)))
			err := os.Mkdir(sub, 0o700)
			for range 5 {
				err = errors.Join(err, publish(sub))
			}
			errs <- err
		}()
	}
	var err error
	for range cap(errs) {
		err = errors.Join(err, <-errs)
	}
	return err
}

func run(t *testing.T, role, dir string, job sysfault.Job) sysfault.Result {
	t.Helper()
	needNotification(t)
	var stderr bytes.Buffer
	job.Program, job.Args = os.Args[0], append(job.Args, dir)
	job.Env = append(os.Environ(), roleEnv+"="+role)
	job.Under, job.Stderr = dir, &stderr
	res, err := sysfault.Run(t.Context(), job)
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	return res
}

// needNotification skips where the kernel, or a sandbox around the tests, has no seccomp user notification.
func needNotification(t *testing.T) {
	t.Helper()
	_, err := sysfault.Run(t.Context(), sysfault.Job{Program: "true"})
	if err != nil {
		t.Skipf("needs seccomp user notification: %v", err)
	}
}

func TestRunCountsTheCallsUnderTheDirectoryOverAllThreads(t *testing.T) {
	dir := t.TempDir()
	res := run(t, "storm", dir, sysfault.Job{})
	want := map[string]uint64{"fsync": 80, "rename": 40, "mkdir": 8, "open": 80}
	for name, n := range want {
		if res.PerCall[name] != n {
			t.Errorf("%s: counted %d, want %d", name, res.PerCall[name], n)
		}
	}
	if res.ExitCode != 0 {
		t.Errorf("exit code %d", res.ExitCode)
	}
}

func TestAFailedCallReachesTheProgramAndIsCounted(t *testing.T) {
	dir := t.TempDir()
	res := run(t, "publish", dir, sysfault.Job{Rules: []sysfault.Rule{{Call: "fsync", Nth: 1, Errno: syscall.EIO}}})
	if res.ExitCode != int(syscall.EIO) || res.Injected != 1 {
		t.Errorf("exit code %d, injected %d; want the program to see EIO once", res.ExitCode, res.Injected)
	}
	if _, err := os.Stat(filepath.Join(dir, "final")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("published in spite of a failed sync: %v", err)
	}
}

func TestAFailedRenameIsNotExecuted(t *testing.T) {
	dir := t.TempDir()
	res := run(t, "publish", dir, sysfault.Job{Rules: []sysfault.Rule{{Call: "rename", Errno: syscall.ENOSPC}}})
	if res.ExitCode != int(syscall.ENOSPC) {
		t.Errorf("exit code %d", res.ExitCode)
	}
	if _, err := os.Stat(filepath.Join(dir, "tmp")); err != nil {
		t.Errorf("the source is gone: %v", err)
	}
}

func TestKillBeforeEachCallStopsTheProgramExactlyThere(t *testing.T) {
	var trace bytes.Buffer
	whole := run(t, "publish", t.TempDir(), sysfault.Job{Trace: &trace})
	if whole.Counted != 5 {
		t.Fatalf("counted %d calls, want open, fsync, rename, open, fsync:\n%s", whole.Counted, &trace)
	}
	for n := uint64(1); n <= whole.Counted; n++ {
		dir := t.TempDir()
		res := run(t, "publish", dir, sysfault.Job{Rules: []sysfault.Rule{{Nth: n, Kill: true}}})
		if res.Signal != syscall.SIGKILL || res.Counted != n {
			t.Errorf("before call %d: signal %v after %d calls", n, res.Signal, res.Counted)
		}
		_, err := os.Stat(filepath.Join(dir, "final"))
		if renamed := err == nil; renamed != (n > 3) {
			t.Errorf("before call %d: renamed is %v", n, renamed)
		}
	}
}

func TestADelayHoldsOnlyTheCallItNames(t *testing.T) {
	dir := t.TempDir()
	const delay = 30 * time.Millisecond
	start := time.Now()
	res := run(t, "publish", dir, sysfault.Job{Rules: []sysfault.Rule{{Call: "fsync", Delay: delay}}})
	if elapsed := time.Since(start); elapsed < 2*delay || res.Injected != 2 {
		t.Errorf("two delayed syncs took %v, injected %d", elapsed, res.Injected)
	}
}

func TestStickyRulesFailEverythingAfterTheFirst(t *testing.T) {
	res := run(t, "storm", t.TempDir(), sysfault.Job{Rules: []sysfault.Rule{{Call: "fsync", Nth: 3, Sticky: true, Errno: syscall.EIO}}})
	if res.Injected < 8 || res.Injected != res.PerCall["fsync"]-2 {
		t.Errorf("injected %d of %d", res.Injected, res.PerCall["fsync"])
	}
}

func TestTheTraceNamesCallPathAndVerdict(t *testing.T) {
	dir := t.TempDir()
	var trace bytes.Buffer
	run(t, "publish", dir, sysfault.Job{Trace: &trace, Rules: []sysfault.Rule{{Call: "rename", Errno: syscall.EROFS}}})
	want := "3\trename\t" + dir + "/tmp -> " + dir + "/final\tfailed: EROFS\n"
	if !strings.Contains(trace.String(), want) {
		t.Errorf("no line %q in\n%s", want, &trace)
	}
}

// What the program has started may go on for long without any watched call.
func TestCancellingDoesNotWaitForWhatTheProgramHasStarted(t *testing.T) {
	needNotification(t)
	dir := t.TempDir()
	pidFile := filepath.Join(dir, "pid")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := sysfault.Run(ctx, sysfault.Job{Program: "sh", Args: []string{"-c", "sleep 1000 & echo $! > " + pidFile + ".new; mv " + pidFile + ".new " + pidFile + "; wait"}})
		done <- err
	}()
	var pid int
	for limit := time.Now().Add(20 * time.Second); pid == 0; time.Sleep(10 * time.Millisecond) {
		if data, err := os.ReadFile(pidFile); err == nil {
			if pid, err = strconv.Atoi(strings.TrimSpace(string(data))); err != nil {
				t.Fatal(err)
			}
		}
		if time.Now().After(limit) {
			t.Fatal("the program has not started anything")
		}
	}
	defer syscall.Kill(pid, syscall.SIGKILL)
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("err %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Run waits for a process that is not the program")
	}
}

func TestCancellingEndsTheProgramAndEverythingWatched(t *testing.T) {
	needNotification(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	res, err := sysfault.Run(ctx, sysfault.Job{Program: "sleep", Args: []string{"60"}})
	if !errors.Is(err, context.DeadlineExceeded) || res.Signal != syscall.SIGKILL {
		t.Errorf("err %v, signal %v", err, res.Signal)
	}
}

func TestBadJobsAreRefusedInOneSentence(t *testing.T) {
	for want, job := range map[string]sysfault.Job{
		"no program was named":         {},
		`unknown call "sync"`:          {Program: "true", Watch: []string{"sync"}},
		`unknown call "nothing"`:       {Program: "true", Rules: []sysfault.Rule{{Call: "nothing", Kill: true}}},
		`names "write", which isn't`:   {Program: "true", Rules: []sysfault.Rule{{Call: "write", Kill: true}}},
		"must fail, delay or kill":     {Program: "true", Rules: []sysfault.Rule{{}}},
		"executable file not found in": {Program: "no-such-program-anywhere"},
	} {
		_, err := sysfault.Run(t.Context(), job)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want one sentence with %q", err, want)
		}
	}
}
