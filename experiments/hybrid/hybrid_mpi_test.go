//go:build mpi

package hybrid

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"shardlease/internal/child"
	"shardlease/internal/experiment"
	"shardlease/pkg/mpirun"
)

// The whole experiment at small scale, with real afl-fuzz, real Open MPI, two jobs and one kill: every claim must hold, and the figures must
// be drawable. It takes half a minute.
func TestExperimentHoldsAtSmallScale(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	if _, err := exec.LookPath("afl-fuzz"); err != nil {
		t.Skip("needs AFL++ (Debian package afl++): afl-fuzz is not in PATH")
	}
	if _, err := mpirun.Find(t.Context()); err != nil {
		t.Skipf("needs Open MPI: %v", err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	h := New()
	env := &experiment.Env{Root: root, Dir: keep(t, "raw"), Work: t.TempDir(), Bin: t.TempDir(), Scale: experiment.Smoke, Seed: 7,
		Log: os.Stderr, Progress: func(tick experiment.Tick) { t.Log(tick.What) }}
	for _, p := range h.Programs() {
		build := child.Cmd{Name: "go", Args: []string{"build", "-tags", p.Tags, "-o", filepath.Join(env.Bin, p.Name), p.Package}, Dir: root}
		if err := child.Run(t.Context(), build); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { tell(t, env.Dir) })
	if err := h.Run(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	m, err := h.Reduce(env.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, metric := range m.Metrics {
		t.Logf("%-22s %g %s", metric.Name, metric.Value, metric.Unit)
	}
	verdicts, err := experiment.Decide(h.Spec(), m, experiment.Suitable)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range verdicts {
		if v.Verdict != experiment.Pass {
			t.Errorf("%s is %s: %s", v.Claim, v.Verdict, v.Reason)
		}
	}
	if _, err := Figures(env.Dir); err != nil {
		t.Error(err)
	}
}

// tell shows what a failed run has left, which goes with its folder otherwise.
func tell(t *testing.T, dir string) {
	if !t.Failed() {
		return
	}
	for _, pattern := range []string{armFile, "*" + logSuffix, "*" + statsSuffix} {
		names, err := filepath.Glob(filepath.Join(dir, "*", pattern))
		if err != nil {
			t.Error(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			t.Logf("%s (%v):\n%s", name, err, text[max(0, len(text)-8<<10):])
		}
	}
}

// keep is a temporary folder, or the one that SHARDLEASE_KEEP names, for a look at the raw files.
func keep(t *testing.T, name string) string {
	dir := os.Getenv("SHARDLEASE_KEEP")
	if dir == "" {
		return t.TempDir()
	}
	dir = filepath.Join(dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
