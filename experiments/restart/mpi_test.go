package restart

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"shardlease/internal/experiment"
	"shardlease/pkg/mpirun"
)

// TestTheExperimentRunsAtSmokeScale needs Open MPI and takes half a minute, so it runs with SHARDLEASE_LONG=1 only; RESTART_SCALE=full takes minutes.
func TestTheExperimentRunsAtSmokeScale(t *testing.T) {
	if os.Getenv("SHARDLEASE_LONG") == "" {
		t.Skip("takes half a minute: set SHARDLEASE_LONG=1")
	}
	if _, err := mpirun.Find(t.Context()); err != nil {
		t.Skipf("needs Open MPI: %v", err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	e := New()
	env := &experiment.Env{Root: root, Dir: t.TempDir(), Work: t.TempDir(), Bin: t.TempDir(), Scale: experiment.Smoke, Seed: 1, Log: t.Output(), Progress: func(experiment.Tick) {}}
	if s := os.Getenv("RESTART_SCALE"); s != "" {
		env.Scale = experiment.Scale(s)
	}
	for _, p := range e.Programs() {
		build := exec.CommandContext(t.Context(), "go", "build", "-tags", p.Tags, "-o", filepath.Join(env.Bin, p.Name), p.Package)
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if err := e.Run(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	m, err := e.Reduce(env.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range e.Spec().Claims {
		v, ok := m.Get(c.Metric)
		if low, high := c.Band.Limits(); !ok || v.Value < low || v.Value > high {
			t.Errorf("%s: %s is %v, want %s", c.ID, c.Metric, v.Value, c.Band)
		}
	}
	for _, v := range m.Metrics {
		t.Logf("%s = %v [%v, %v] n=%d", v.Name, v.Value, v.Low, v.High, v.N)
	}
	if _, err := Figures(env.Dir); err != nil {
		t.Error(err)
	}
}
