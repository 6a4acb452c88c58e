package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shardlease/internal/campaign"
)

func TestFaultsFailsTheNamedCallOfARealProgramAndPassesItsExitCodeOn(t *testing.T) {
	if _, stderr, code := output(t, program(t, "faults", "--", "true")); code == exitUnavailable {
		t.Skip("needs seccomp user notification: " + stderr)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file, moved := filepath.Join(dir, "file"), filepath.Join(dir, "moved")
	script := "echo content > " + file + " && mv " + file + " " + moved
	for _, c := range []struct {
		flags []string
		code  int
		want  string // in stderr
		moved bool
	}{
		{[]string{"--trace", "-"}, 0, "rename\t" + file + " -> " + moved + "\trun\n", true},
		{[]string{"--fail", "rename:1:ENOSPC"}, 1, "No space left on device", false},
		{[]string{"--kill", "1"}, 137, "", false},
		{[]string{"--delay", "rename:5ms", "--trace", "-"}, 0, "delayed 5ms", true},
	} {
		os.Remove(file)
		os.Remove(moved)
		args := append([]string{"faults", "--under", dir}, c.flags...)
		_, stderr, code := output(t, program(t, append(args, "--", "sh", "-c", script)...))
		_, err := os.Stat(moved)
		if code != c.code || !strings.Contains(stderr, c.want) || (err == nil) != c.moved {
			t.Errorf("%v: exit code %d, moved %v, stderr %q", c.flags, code, err == nil, stderr)
		}
	}
}

func TestFaultsRefusesBadFlagsInOneSentence(t *testing.T) {
	for want, flags := range map[string][]string{
		"as in fsync:3:EIO":       {"--fail", "fsync:EIO"},
		"EFOO is not the name":    {"--fail", "fsync:1:EFOO"},
		"as in fsync:20ms":        {"--delay", "fsync:fast"},
		`unknown call "fsnyc"`:    {"--watch", "fsnyc"},
		"no such file":            {"--under", "/no/such/directory"},
		`unknown call "nonsense"`: {"--fail", "nonsense:1:EIO"},
	} {
		_, stderr, code := output(t, program(t, append(append([]string{"faults"}, flags...), "--", "true")...))
		if code != 64 || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: exit code %d, stderr %q", flags, code, stderr)
		}
	}
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"no-such-program-anywhere": exitNotFound, "./no-such-program": exitNotFound, plain: exitNoExec, t.TempDir(): exitNoExec} {
		if _, stderr, code := output(t, program(t, "faults", "--", name)); code != want || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, %q", name, code, stderr)
		}
	}
}

func TestFaultsSaysWhenItsTraceIsIncomplete(t *testing.T) {
	_, stderr, code := output(t, program(t, "faults", "--trace", "/dev/full", "--", "touch", filepath.Join(t.TempDir(), "x")))
	if code != campaign.ExitCantCreate || !strings.Contains(stderr, "the trace is incomplete") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}
