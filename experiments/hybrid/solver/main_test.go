package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

func TestSolvePutsTheWantedBytesIn(t *testing.T) {
	got := solve([]byte("abcdefgh"), []byte("word 4 875770417\nmore 10\nnoise\nword 6 1\nword x 1\nmore 3\n"))
	want := []string{"abcd1234", "abcdefgh\x00\x00"}
	if len(got) != len(want) || string(got[0]) != want[0] || string(got[1]) != want[1] {
		t.Errorf("solved %q, want %q", got, want)
	}
}

// From a seed that is all wrong, run after run on its own outputs, the stand-in reaches the crash. It observes, it does not know the tree.
func TestStandInReachesTheCrash(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("needs a C compiler")
	}
	target := filepath.Join(t.TempDir(), "observed")
	if text, err := exec.Command(cc, "-DOBSERVE", "-o", target, "../target/target.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	work := []string{"xxxx"}
	for n := 0; n < len(work) && n < 1000; n++ {
		out := t.TempDir()
		t.Setenv("SYMCC_OUTPUT_DIR", out)
		input := filepath.Join(out, "..", "input")
		if err := os.WriteFile(input, []byte(work[n]), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("SYMCC_INPUT_FILE", input)
		if err := run(0, "", []string{target}); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(out, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if crashes(t, target, data) {
				return
			}
			if !slices.Contains(work, string(data)) {
				work = append(work, string(data))
			}
		}
	}
	t.Errorf("no crash after %d inputs", len(work))
}

func crashes(t *testing.T, target string, input []byte) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), observeLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, target)
	cmd.Stdin = bytes.NewReader(input)
	err := cmd.Run()
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGABRT
}
