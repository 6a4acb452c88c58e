package child

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
)

func TestFailureNamesTheProgramItsCodeAndItsLastWords(t *testing.T) {
	err := Run(t.Context(), Cmd{Name: "sh", Args: []string{"-c", "echo cannot open the door >&2; exit 7"}})
	var exit *ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("error is %T %v, want *ExitError", err, err)
	}
	if exit.Code != 7 || !strings.Contains(err.Error(), "cannot open the door") {
		t.Errorf("code %d, text %q", exit.Code, err)
	}
}

func TestMissingProgramIsNamed(t *testing.T) {
	err := Run(t.Context(), Cmd{Name: "no-such-program-here"})
	if err == nil || !strings.Contains(err.Error(), "no-such-program-here") {
		t.Fatalf("error %v does not name the program", err)
	}
}

func TestDollarSignsReachTheProgramUnchanged(t *testing.T) {
	var out bytes.Buffer
	if err := Run(t.Context(), Cmd{Name: "echo", Args: []string{"$HOME"}, Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	if out.String() != "$HOME\n" {
		t.Errorf("argument became %q", out.String())
	}
}

// A program that ignores the request and has started another one: both must be gone when Run returns.
func TestCancelLeavesNoGrandchild(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	script := `trap '' TERM; (trap '' TERM; exec sleep 600) & echo $! > "$1.tmp"; mv "$1.tmp" "$1"; wait; wait`
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Cmd{Name: "sh", Args: []string{"-c", script, "sh", pidFile}, Grace: 100 * time.Millisecond})
	}()
	pid := waitForPid(t, pidFile)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
	waitGone(t, pid)
}

func TestSuccessLeavesNoGrandchild(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	script := `sleep 600 >/dev/null 2>&1 & echo $! > "$1"`
	if err := Run(t.Context(), Cmd{Name: "sh", Args: []string{"-c", script, "sh", pidFile}}); err != nil {
		t.Fatal(err)
	}
	waitGone(t, waitForPid(t, pidFile))
}

func waitForPid(t *testing.T, name string) int {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		data, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	t.Fatal("the program never wrote its process id")
	return 0
}

// waitGone also takes a zombie for gone: only its new parent can reap it.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	t.Fatalf("process %d survived", pid)
}
