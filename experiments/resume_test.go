package experiments

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"shardlease/internal/child"
	"shardlease/internal/experiment"
	"shardlease/internal/figures"
)

// The variables tell the child of the test below where to write and in which step to stand still.
const (
	hangRuns = "SHARDLEASE_TEST_HANG_RUNS"
	hangStep = "SHARDLEASE_TEST_HANG_STEP"
)

// sleeper is a program that stands for whatever an experiment has started when the run is killed; its name finds it again.
const sleeper = "shardlease-test-sleeper"

// hanging marks that the step has been reached, and waits in a program of its own.
func hanging(ctx context.Context, runs string) error {
	program := filepath.Join(runs, sleeper)
	script := "#!/bin/sh\n: > \"$1\"\nwhile :; do sleep 0.1; done\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		return err
	}
	return child.Run(ctx, child.Cmd{Name: program, Args: []string{filepath.Join(runs, "hanging")}})
}

// steps gives a registry of two fakes, of which the named step hangs: an experiment, or the drawing of its figures.
func steps(t *testing.T, runs, step string) (first, second *fake) {
	first, second = newFake(t, "first", 2), newFake(t, "second", 2)
	for _, f := range []*fake{first, second} {
		if f.spec.Name == step {
			f.hang = func(ctx context.Context) error { return hanging(ctx, runs) }
		}
	}
	with(t, first, second)
	list := registry()
	if step == "figures" {
		list[0].figures = func(string) ([]figures.Figure, error) { return nil, hanging(t.Context(), runs) }
	}
	registry = func() []entry { return list } // with puts the old one back
	return first, second
}

// TestHangingRun is the child of the test below.
func TestHangingRun(t *testing.T) {
	runs := os.Getenv(hangRuns)
	if runs == "" {
		t.Skip("runs only as the child of the test that kills it")
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt) // as Mage does
	defer stop()
	steps(t, runs, os.Getenv(hangStep))
	_, err := reproduce(ctx, Options{Out: runs})
	t.Fatal("stopped:", err)
}

// Trap 4 of the pipeline. Killed in the middle of any step by either signal, a run leaves no process, resumes with what was finished and
// ends with the same verdicts.
func TestKilledRunResumesWithWhatWasFinished(t *testing.T) {
	for step, again := range map[string][2]int{"first": {1, 1}, "second": {0, 1}, "figures": {0, 0}} {
		for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
			t.Run(step+" "+sig.String(), func(t *testing.T) {
				if step == "figures" && sig == syscall.SIGINT {
					t.Skip("drawing starts no program and is not interrupted: it ends in a second, and the run then says how to resume")
				}
				runs := t.TempDir()
				killIn(t, runs, step, sig)
				first, second := steps(t, runs, "")
				sealed, err := reproduce(t.Context(), Options{Out: runs, Resume: true})
				if err != nil {
					t.Fatal(err)
				}
				if left, err := filepath.Glob(filepath.Join(runs, workPattern)); err != nil || len(left) > 0 {
					t.Errorf("scratch folders are left: %v, %v", left, err)
				}
				if first.runs != again[0] || second.runs != again[1] {
					t.Errorf("the resumed run ran the first %d times and the second %d times, want %v", first.runs, second.runs, again)
				}
				if verdicts, err := recompute(t.Context(), sealed); err != nil || experiment.Worst(verdicts) != experiment.Pass {
					t.Errorf("verdicts %+v, %v", verdicts, err)
				}
			})
		}
	}
}

// killIn starts a run, waits until it stands in the step, kills it, and sees that nothing of it goes on.
func killIn(t *testing.T, runs, step string, sig syscall.Signal) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestHangingRun$")
	cmd.Env = append(os.Environ(), hangRuns+"="+runs, hangStep+"="+step)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // if it is there still
	reached := func() bool { _, err := os.Stat(filepath.Join(runs, "hanging")); return err == nil }
	if !eventually(reached) {
		t.Fatalf("the child never came to its step:\n%s", out.Bytes())
	}
	if len(processesOf(t, runs)) == 0 {
		t.Fatal("the program that the step waits for is not found: this test proves nothing")
	}
	if err := cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if gone := func() bool { return len(processesOf(t, runs)) == 0 }; !eventually(gone) {
		t.Errorf("left behind: %v", processesOf(t, runs))
	}
}

func eventually(done func() bool) bool {
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if done() {
			return true
		}
	}
	return done()
}

// processesOf finds the sleeper below runs by its command line.
func processesOf(t *testing.T, runs string) []string {
	t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, name := range list {
		text, err := os.ReadFile(name)
		if err == nil && strings.Contains(string(text), filepath.Join(runs, sleeper)) {
			found = append(found, name)
		}
	}
	return found
}
