package afl

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The target crashes on "C", hangs on "H", prints its input's length otherwise and has one edge of its own for "X".
const mapTarget = `#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
  unsigned char b[8] = {0};
  FILE *f = argc > 1 ? fopen(argv[1], "rb") : stdin;
  if (!f || !fread(b, 1, sizeof b, f)) return 9;
  if (b[0] == 'C') abort();
  if (b[0] == 'H') for (;;) sleep(1);
  if (b[0] == 'X') puts("+++ Program killed by signal 6 +++");
  return 3;
}
`

// buildTarget compiles the target with AFL++'s compiler, or skips: these tests need Debian's afl++.
func buildTarget(t *testing.T) *Instance {
	t.Helper()
	showmap, err := exec.LookPath("afl-showmap")
	if err != nil {
		t.Skip("needs AFL++ (Debian package afl++): afl-showmap is not in PATH")
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "target.c"), mapTarget)
	cmd := exec.Command("afl-cc", "-o", "target", "target.c")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "AFL_QUIET=1")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("needs a working afl-cc: %v\n%s", err, text)
	}
	return &Instance{Target: []string{"./target"}, Stdin: true, Dir: dir, Timeout: 300 * time.Millisecond, Showmap: showmap}
}

func TestShowmapTellsOKHangAndCrashApart(t *testing.T) {
	inst := buildTarget(t)
	for _, target := range [][]string{{"./target"}, {"./target", "@@"}} {
		inst.Target = target
		s := &Showmap{Instance: inst, TempDir: t.TempDir()}
		maps := map[string]Map{}
		for input, want := range map[string]Verdict{"A": OK, "H": Hang, "C": Crash, "X": OK} {
			m, verdict, err := s.Measure(t.Context(), []byte(input))
			if err != nil || verdict != want {
				t.Errorf("%v on %s: verdict %v, error %v, want %v", target, input, verdict, err, want)
			}
			maps[input] = m
		}
		batch, err := s.Batch(t.Context(), [][]byte{[]byte("A"), []byte("C"), []byte("H"), []byte("X")})
		if err != nil {
			t.Fatal(err)
		}
		if batch[1] != nil || batch[2] != nil {
			t.Errorf("%v: crash and hang have maps %v, %v in a batch", target, batch[1], batch[2])
		}
		if !slices.Equal(batch[0], maps["A"]) || !slices.Equal(batch[3], maps["X"]) || slices.Equal(batch[0], batch[3]) {
			t.Errorf("%v: batch maps %v %v, single maps %v %v", target, batch[0], batch[3], maps["A"], maps["X"])
		}
		if left, _ := os.ReadDir(s.TempDir); len(left) != 0 {
			t.Errorf("scratch files stay: %v", left)
		}
	}
}

// A failure of afl-showmap has the same exit status as a hang, and must not be taken for one.
func TestFailureOfShowmapIsNotAHang(t *testing.T) {
	inst := buildTarget(t)
	s := &Showmap{Instance: inst, TempDir: t.TempDir()}
	gone := filepath.Join(inst.Dir, "target")
	if err := os.Rename(gone, gone+".moved"); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.Measure(t.Context(), []byte("A"))
	if !errors.Is(err, ErrShowmap) || !strings.Contains(err.Error(), "not found or not executable") || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("target gone: error %q, want ErrShowmap with its reason", err)
	}
	inst.Showmap = filepath.Join(t.TempDir(), "gone")
	if _, _, err := s.Measure(t.Context(), []byte("A")); !errors.Is(err, ErrShowmap) {
		t.Errorf("showmap gone: error %v, want ErrShowmap", err)
	}
	s.TempDir = filepath.Join(t.TempDir(), "gone")
	if _, _, err := s.Measure(t.Context(), []byte("A")); !errors.Is(err, ErrShowmap) {
		t.Errorf("no scratch space: error %v, want ErrShowmap", err)
	}
}

func TestCancelledShowmapLeavesNoTargetBehind(t *testing.T) {
	inst := buildTarget(t)
	inst.Timeout = time.Hour
	s := &Showmap{Instance: inst, TempDir: t.TempDir()}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, _, err := s.Measure(ctx, []byte("H"))
		done <- err
	}()
	waitFor(t, "the target runs", func() bool { return len(processes(t, inst.Dir)) >= 2 }) // fork server and its child
	time.Sleep(300 * time.Millisecond)                                                     // for afl-showmap to wait for the child, where it forgets it
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
	waitFor(t, "the target is gone", func() bool { return len(processes(t, inst.Dir)) == 0 })
}

// processes lists the processes whose program lies in dir.
func processes(t *testing.T, dir string) (pids []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if program, err := os.Readlink(link); err == nil && strings.HasPrefix(program, dir+"/") {
			pids = append(pids, link)
		}
	}
	return pids
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
