package mpirun

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

const dirVariable = "MPIRUN_TEST_DIR"

// runner is a program that runs a job until it is killed.
func runner() {
	l := &Launcher{Path: "/proc/self/exe", Version: "4.1.4", Major: 4}
	l.Run(context.Background(), Job{Program: "/bin/true", Ranks: 1, AllowRoot: true, TempDir: os.Getenv(dirVariable),
		Env: []string{modeVariable + "=stubborn"}, Stdout: os.Stdout})
}

// startRunner returns when the job runs.
func startRunner(t *testing.T, dir string) (kill func()) {
	t.Helper()
	cmd := exec.Command(executable(t))
	cmd.Env = append(os.Environ(), modeVariable+"=runner", dirVariable+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	t.Cleanup(kill)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the job has not started: %q, %v", line, err)
	}
	return kill
}

func glob(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// untilLeft starts jobs until dir holds want: what a killed runner started dies a moment later.
func untilLeft(t *testing.T, dir string, want []string) {
	t.Helper()
	l := &Launcher{Path: executable(t), Version: "4.1.4", Major: 4}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err := l.Run(t.Context(), Job{Program: "/bin/true", Ranks: 1, AllowRoot: true, TempDir: dir, Env: []string{modeVariable + "=interpreter"}}); err != nil {
			t.Fatal(err)
		}
		left := glob(t, dir)
		if slices.Equal(left, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left in TempDir: %q, want %q", left, want)
		}
	}
}

func TestTheNextJobRemovesWhatAKilledOneHasLeft(t *testing.T) {
	dir := t.TempDir()
	foreign := filepath.Join(dir, "mpirun-1234")
	if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	killLiving := startRunner(t, dir)
	living := glob(t, dir)
	killDead := startRunner(t, dir)
	killDead()
	if left := glob(t, dir); len(left) != 3 {
		t.Fatalf("the killed job has left nothing to remove: %q", left)
	}
	untilLeft(t, dir, living) // the foreign directory among them
	killLiving()
	untilLeft(t, dir, []string{foreign})
}

func TestTheDirectoryOfADeadJobStaysWhileOneOfItsProcessesLives(t *testing.T) {
	dir := t.TempDir()
	kill := startRunner(t, dir)
	left := glob(t, dir)
	prefix, err := dirPrefix()
	if err != nil || len(left) != 1 {
		t.Fatal(left, err)
	}
	variable := jobVariable + filepath.Base(left[0])[len(prefix):]
	tool := exec.Command("sleep", "1000") // started without Pdeathsig by a rank
	tool.Env = append(os.Environ(), variable+"=1")
	if err := tool.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() {
		tool.Process.Kill()
		tool.Wait()
	}
	t.Cleanup(end)
	kill()
	removeDead(dir, prefix)
	if got := glob(t, dir); !slices.Equal(got, left) {
		t.Fatalf("left in TempDir: %q, want %q", got, left)
	}
	end()
	untilLeft(t, dir, nil)
}
