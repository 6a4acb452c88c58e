package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"shardlease/internal/campaign"
	"shardlease/internal/hybrid"
	"shardlease/pkg/mpirun"
	"shardlease/pkg/mpirun/mpi"
)

func TestHybridRefusesBadInputInOneSentence(t *testing.T) {
	good := []string{"-a", "main", "-o", t.TempDir(), "-n", "symcc"}
	with := func(args ...string) []string { return append(append([]string{"hybrid"}, good...), args...) }
	for _, c := range []struct {
		args []string
		env  string
		want string
	}{
		{[]string{"hybrid", "-a", "main", "-n", "symcc", "--", "cat"}, "", "-o DIR"},
		{[]string{"hybrid", "-o", "x", "-n", "symcc", "--", "cat"}, "", "-a: name"},
		{[]string{"hybrid", "-o", "x", "-a", "main", "-n", "../x", "--", "cat"}, "", "does not start with a dot"},
		{[]string{"hybrid", "-o", "x", "-a", "main", "-n", "main", "--", "cat"}, "", "a name of our own"},
		{with(), "", "after --"},
		{with("-t", "0", "--", "cat"), "", "--timeout is 0"},
		{with("--ranks", "1", "--", "cat"), "", "--ranks is 1"},
		{with("--", "cat"), "SYMCC_MULTI_MASTER_LEASES=yes", "0 or 1"},
		{with("--", "cat"), "SYMCC_WORK_LEASE_TTL=0.5", "from 1 to 86400"},
		{with("--", "cat"), "SYMCC_MULTI_MASTER_LEASE_SHARDS=5000", "from 1 to 4096"},
		{with("--", "cat"), "SYMCC_MULTI_MASTER_TARGET_LEASE_TTL=x", "number of seconds"},
		{with("--", "cat"), "SYMCC_MULTI_MASTER_LOCK_ACQUIRE_TIMEOUT=0", "from 0.001 to 3600"},
	} {
		cmd := program(t, c.args...)
		cmd.Env = append(cmd.Env, c.env)
		stdout, stderr, code := output(t, cmd)
		if code != campaign.ExitUsage || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 || stdout != "" {
			t.Errorf("%v %s: code %d, stderr %q, stdout %q", c.args, c.env, code, stderr, stdout)
		}
	}
}

func TestLeaseRootsMustDiffer(t *testing.T) {
	cmd := program(t, "hybrid", "-a", "main", "-o", "x", "-n", "symcc", "--", "cat")
	cmd.Env = append(cmd.Env, "SYMCC_MULTI_MASTER_LEASES=1", "SYMCC_MULTI_MASTER_LEASE_DIR=/d", "SYMCC_MULTI_MASTER_TARGET_LEASE_DIR=/d/")
	if _, stderr, code := output(t, cmd); code != campaign.ExitUsage || !strings.Contains(stderr, "a directory each") {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
}

// What only rank 0 can find out ends the whole job in good order, with the documented code from mpirun, one sentence, and statistics.
func TestHybridJobThatCannotAttachEndsWithItsCode(t *testing.T) {
	if !mpi.Enabled {
		t.Skip("needs MPI: built without -tags mpi")
	}
	if _, err := mpirun.Find(t.Context()); err != nil {
		t.Skipf("needs Open MPI: %v", err)
	}
	ended := exec.Command("/bin/true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	if err := os.MkdirAll(filepath.Join(out, "main", "queue"), 0o755); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("fuzzer_pid : %d\ncommand_line : afl-fuzz -M main -- /bin/cat\n", ended.Process.Pid)
	if err := os.WriteFile(filepath.Join(out, "main", "fuzzer_stats"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ instance, want string }{{"nobody", "start afl-fuzz -M nobody"}, {"main", "is not running"}} {
		stats := filepath.Join(t.TempDir(), "stats.json")
		cmd := program(t, "hybrid", "--ranks", "3", "--allow-run-as-root", "-a", c.instance, "-o", out, "-n", "symcc", "--stats-json", stats, "--", "/bin/cat")
		_, stderr, code := output(t, cmd)
		if code != campaign.ExitNoInput || strings.Count(stderr, c.want) != 1 {
			t.Errorf("instance %s: code %d, stderr %q", c.instance, code, stderr)
		}
		data, err := os.ReadFile(stats)
		if err != nil {
			t.Fatal(err)
		}
		var s hybrid.Stats
		if err := json.Unmarshal(data, &s); err != nil || s.ExitCode != campaign.ExitNoInput || s.Acked != 2 || !s.Clean {
			t.Errorf("instance %s: statistics %+v, %v", c.instance, s, err)
		}
	}
}
