package sysfault_test

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"shardlease/internal/sysfault"
)

// errnos are what a broken or full disk answers to each call; the first of each list is tried at every place, the others at the first.
var errnos = map[string][]syscall.Errno{
	"open":   {syscall.EIO, syscall.ENOSPC, syscall.EROFS, syscall.EDQUOT},
	"write":  {syscall.ENOSPC, syscall.EIO, syscall.EDQUOT},
	"fsync":  {syscall.EIO, syscall.ENOSPC, syscall.EINVAL, syscall.ENOTSUP},
	"rename": {syscall.EIO, syscall.EROFS, syscall.ENOSPC, syscall.ESTALE},
	"mkdir":  {syscall.ENOSPC, syscall.EROFS},
	"link":   {syscall.EIO, syscall.ENOSPC},
	"lock":   {syscall.ENOLCK, syscall.EIO},
}

// runBroken runs the operation in a process of its own that gets the errno from the nth call of that name; nth 0 gives it none.
func runBroken(t *testing.T, op operation, call string, nth uint64, errno syscall.Errno) (string, sysfault.Result) {
	t.Helper()
	dir := t.TempDir()
	if op.prepare != nil {
		if err := op.prepare(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "operation"), []byte(op.name), 0o600); err != nil {
		t.Fatal(err)
	}
	job := sysfault.Job{Watch: append(sysfault.DefaultWatch(), "write", "lock")}
	if nth > 0 {
		job.Rules = []sysfault.Rule{{Call: call, Nth: nth, Errno: errno}}
	}
	return dir, run(t, "kill", dir, job)
}

// A real process gets a disk's error from each call of each operation in turn. It says so, with that very error, and acknowledges nothing;
// what it leaves is old or new, and the next process goes on from there.
func TestADiskErrorAtAnyCallIsReportedAndLosesNothing(t *testing.T) {
	for _, op := range operations {
		t.Run(op.name, func(t *testing.T) {
			_, whole := runBroken(t, op, "", 0, 0)
			if whole.ExitCode != 0 {
				t.Fatalf("exit code %d on a sound disk", whole.ExitCode)
			}
			tried := 0
			for call, list := range errnos {
				places := whole.PerCall[call]
				if call == "lock" { // the others are unlocks too, whose error is no news: the close that follows lets go in any case
					places = min(places, 1)
				}
				for nth := uint64(1); nth <= places; nth++ {
					for i, errno := range list {
						if i > 0 && nth > 1 {
							break
						}
						tried++
						dir, res := runBroken(t, op, call, nth, errno)
						if res.Injected != 1 || res.Signal != 0 {
							t.Fatalf("%s %d: %d errors injected, signal %v", call, nth, res.Injected, res.Signal)
						}
						again := errno == syscall.ESTALE // looking again is right
						if res.ExitCode != int(errno) && !(again && res.ExitCode == 0) {
							t.Errorf("%s %d failed with %v: the process ended with %v", call, nth, errno, syscall.Errno(res.ExitCode))
						}
						if err := op.check(t.Context(), dir, res.ExitCode == 0); err != nil {
							t.Errorf("%s %d failed with %v: %v", call, nth, errno, err)
						}
					}
				}
			}
			t.Logf("%d errors", tried)
			if tried < 5 {
				t.Errorf("only %d errors were tried", tried)
			}
		})
	}
}

// An interrupted call (EINTR) is no failure of the disk: it is made again.
func TestAnInterruptedCallIsMadeAgain(t *testing.T) {
	i := slices.IndexFunc(operations, func(op operation) bool { return op.name == "batch" })
	for _, call := range []string{"open", "fsync", "rename", "write", "lock"} {
		dir, res := runBroken(t, operations[i], call, 1, syscall.EINTR)
		if res.Injected != 1 || res.ExitCode != 0 {
			t.Errorf("%s: %d interruptions, exit code %d", call, res.Injected, res.ExitCode)
		}
		if err := operations[i].check(t.Context(), dir, true); err != nil {
			t.Errorf("%s: %v", call, err)
		}
	}
}
