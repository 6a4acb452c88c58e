//go:build mpi

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"shardlease/internal/campaign"
	"shardlease/pkg/mpirun"
)

// direct starts three ranks with mpirun itself, rank 0 so late that mpirun would have killed it if another had just left. change is shell
// text that each rank runs before.
func direct(t *testing.T, change string, args ...string) *exec.Cmd {
	t.Helper()
	launcher, err := mpirun.Find(t.Context())
	if err != nil {
		t.Skipf("needs Open MPI: %v", err)
	}
	rank := program(t, args...)
	// -q keeps mpirun from adding its own page, which it does to every code but 0.
	argv := []string{"-q", "-n", "3", "--oversubscribe", "--mca", "btl", "vader,self", "--mca", "btl_vader_single_copy_mechanism", "none",
		"sh", "-c", `test "$OMPI_COMM_WORLD_RANK" != 0 || sleep 2; ` + change + ` exec "$0" "$@"`}
	cmd := exec.Command(launcher.Path, append(argv, rank.Args...)...)
	cmd.Env = rank.Env
	if os.Geteuid() == 0 {
		cmd.Env = append(cmd.Env, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	}
	return cmd
}

func TestRanksThatCannotBeginSayWhyInOneSentence(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	standalone := func(args ...string) []string { return append([]string{"standalone", "-i", dir}, args...) }
	const onlyRank2 = `test "$OMPI_COMM_WORLD_RANK" != 2 || export `
	for name, c := range map[string]struct {
		change string
		args   []string
		code   int
		want   string
	}{
		"bad option":            {"", standalone("-t", "nan", "--", "cat"), campaign.ExitUsage, "shardlease: --timeout is NaN"},
		"unknown option":        {"", standalone("--nonsense", "--", "cat"), campaign.ExitUsage, "shardlease: unknown flag"},
		"bad environment":       {"export SYMCC_WORK_LEASE_TTL=x;", []string{"hybrid", "-a", "main", "-o", dir, "-n", "symcc", "--", "cat"}, campaign.ExitUsage, "shardlease: SYMCC_WORK_LEASE_TTL"},
		"bad on one rank":       {onlyRank2 + "SYMCC_STANDALONE_RESULT_MAX_BYTES=0;", standalone("--", "cat"), campaign.ExitBudget, "shardlease: rank 2: budget out of range"},
		"no input":              {"", []string{"standalone", "-i", dir + "/none", "--", "cat"}, campaign.ExitNoInput, "shardlease: input directory"},
		"wrong number of ranks": {"", standalone("--ranks", "4", "--", "cat"), campaign.ExitUnavailable, "shardlease: mpi: wrong world size"},
		"unusable output":       {"", standalone("-o", file, "--", "cat"), campaign.ExitCantCreate, "not a directory"},
		"unusable TMPDIR":       {onlyRank2 + "TMPDIR=" + file + ";", standalone("-o", dir+"/out", "--", "cat"), campaign.ExitCantCreate, "shardlease: rank 2: a directory for the runs of the target"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, code := output(t, direct(t, c.change, c.args...))
			if code != c.code || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 || stdout != "" {
				t.Errorf("code %d, want %d; stderr %q, stdout %q", code, c.code, stderr, stdout)
			}
		})
	}
}
