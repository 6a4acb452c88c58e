package vm

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeQemu puts a script in qemu's place. It finds the number of starts so far in $n.
func fakeQemu(t *testing.T, script string) Spec {
	t.Helper()
	dir := t.TempDir()
	count := filepath.Join(dir, "starts")
	text := "#!/bin/sh\necho start >>" + count + "\nn=$(grep -c . " + count + ")\n" + script + "\n"
	if err := os.WriteFile(filepath.Join(dir, Qemu), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return Spec{Console: filepath.Join(dir, "console")}
}

func TestAMachineThatHangsAtItsBootIsStartedAgain(t *testing.T) {
	s := fakeQemu(t, `if [ $n -gt 2 ]; then echo '{"ready":true}'; fi; exec sleep 100`)
	m, hung, err := boot(t.Context(), s, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	m.Kill()
	if hung != 2 {
		t.Errorf("%d hung boots, want 2", hung)
	}
}

func TestAMachineThatAlwaysHangsIsGivenUp(t *testing.T) {
	s := fakeQemu(t, `exec sleep 100`)
	if err := os.WriteFile(s.Console, []byte("the last words"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, hung, err := boot(t.Context(), s, 100*time.Millisecond)
	if hung != bootTries || !errors.Is(err, errSilent) || !strings.Contains(err.Error(), "the last words") {
		t.Errorf("%d hung boots, %v", hung, err)
	}
}

// Only silence before the guest's first word may be tried again: whatever else goes wrong is a finding.
func TestAMachineThatEndsOrSpeaksNonsenseIsNotStartedAgain(t *testing.T) {
	for _, script := range []string{"exit 3", "echo nonsense; exec sleep 100", "echo '{\"checked\":true}'; exec sleep 100"} {
		s := fakeQemu(t, script)
		if _, hung, err := boot(t.Context(), s, 10*time.Second); err == nil || hung != 0 {
			t.Errorf("%s: %d hung boots, %v", script, hung, err)
		}
	}
}
