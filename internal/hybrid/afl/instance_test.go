package afl

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeInstance makes the files of an instance "main" whose process is this test, running a target in dir.
func fakeInstance(t *testing.T, commandLine string) (out string) {
	t.Helper()
	out = t.TempDir()
	if err := os.MkdirAll(filepath.Join(out, "main", "queue"), 0o700); err != nil {
		t.Fatal(err)
	}
	writeStats(t, out, os.Getpid(), commandLine)
	return out
}

func writeStats(t *testing.T, out string, pid int, commandLine string) {
	t.Helper()
	write(t, filepath.Join(out, "main", "fuzzer_stats"),
		fmt.Sprintf("fuzzer_pid : %d\nexec_timeout : 20\ncommand_line : %s\n", pid, commandLine))
}

// fakeTools puts an afl-fuzz and an afl-showmap into a directory.
func fakeTools(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"afl-fuzz", "afl-showmap"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAttachTakesTargetModeAndToolsFromTheInstance(t *testing.T) {
	tools := fakeTools(t)
	cases := []struct {
		name, line, exact string
		target            []string
		stdin, qemu       bool
	}{
		{"standard input", "-M main -i in -o out -- /bin/cat", "", []string{"/bin/cat"}, true, false},
		{"file", "-M main -Q -- /bin/cat -n @@", "", []string{"/bin/cat", "-n", "@@"}, false, true},
		{"file in an option", "-M main -- /bin/cat --in=@@", "", []string{"/bin/cat", "--in=@@"}, false, false},
		{"target's own -Q", "-M main -- /bin/cat -Q", "", []string{"/bin/cat", "-Q"}, true, false},
		{"quoted", "-M main -- /bin/cat 'a b'", "", []string{"/bin/cat", "a b"}, true, false},
		{"blank that AFL did not quote", "-M main -- /bin/cat a b", "/bin/cat\na b\n", []string{"/bin/cat", "a b"}, true, false},
		{"arguments of an earlier run", "-M main -- /bin/cat a", "/bin/cat\nold\n", []string{"/bin/cat", "a"}, true, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			out := fakeInstance(t, filepath.Join(tools, "afl-fuzz")+" "+c.line)
			if c.exact != "" {
				write(t, filepath.Join(out, "main", "cmdline"), c.exact)
			}
			inst, err := Attach(t.Context(), out, "main")
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(inst.Target, c.target) || inst.Stdin != c.stdin || inst.QEMU != c.qemu {
				t.Errorf("target %q stdin %v qemu %v, want %q %v %v", inst.Target, inst.Stdin, inst.QEMU, c.target, c.stdin, c.qemu)
			}
			if inst.Showmap != filepath.Join(tools, "afl-showmap") {
				t.Errorf("showmap %s is not the one beside afl-fuzz", inst.Showmap)
			}
			if cwd, _ := os.Getwd(); inst.Dir != cwd || !inst.Running() || inst.Timeout != minTimeout {
				t.Errorf("dir %s running %v timeout %v", inst.Dir, inst.Running(), inst.Timeout)
			}
		})
	}
}

// Each refusal says what is wrong and where, and matches one sentinel, so that the command can choose its exit code.
func TestAttachRefusesWhatCannotWorkInOneSentence(t *testing.T) {
	tools := fakeTools(t)
	good := filepath.Join(tools, "afl-fuzz") + " -M main -- /bin/cat"
	cases := []struct {
		name string
		out  func(t *testing.T) string
		want error
		says string
	}{
		{"no directory", func(t *testing.T) string { return filepath.Join(t.TempDir(), "gone") }, ErrNoInstance, "start afl-fuzz -M main"},
		{"no statistics", func(t *testing.T) string {
			out := fakeInstance(t, good)
			if err := os.Remove(filepath.Join(out, "main", "fuzzer_stats")); err != nil {
				t.Fatal(err)
			}
			return out
		}, ErrNoInstance, "fuzzer_stats"},
		{"half-written statistics", func(t *testing.T) string {
			out := fakeInstance(t, good)
			write(t, filepath.Join(out, "main", "fuzzer_stats"), "fuzzer_pid : 1\n")
			return out
		}, ErrIncomplete, "fuzzer_stats"},
		{"process gone", func(t *testing.T) string {
			out := fakeInstance(t, good)
			writeStats(t, out, endedProcess(t), good)
			return out
		}, ErrNotRunning, "this host"},
		{"target gone", func(t *testing.T) string {
			return fakeInstance(t, filepath.Join(tools, "afl-fuzz")+" -M main -- /no/such/target")
		}, ErrNoTarget, "/no/such/target"},
		{"no target in the command line", func(t *testing.T) string { return fakeInstance(t, good[:len(good)-len("/bin/cat")]) }, nil, "no target after --"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Attach(t.Context(), c.out(t), "main")
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Fatalf("error %v, want %v", err, c.want)
			}
			if !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q does not say %q in one line", err, c.says)
			}
		})
	}
}

func TestAttachNamesThePackageWhenShowmapIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Attach(t.Context(), fakeInstance(t, "/elsewhere/afl-fuzz -M main -- /bin/cat"), "main")
	if !errors.Is(err, ErrNoShowmap) || !strings.Contains(err.Error(), "afl++") {
		t.Errorf("error %v, want ErrNoShowmap with the package to install", err)
	}
}

// endedProcess returns the number of a process that has ended and was waited for.
func endedProcess(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("/bin/true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}
