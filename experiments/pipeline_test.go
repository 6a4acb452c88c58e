package experiments

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"shardlease/internal/evidence"
	"shardlease/internal/experiment"
)

// fake is an experiment that writes one number and reads it back.
type fake struct {
	spec  *experiment.Spec
	value float64
	fail  error
	hang  func(ctx context.Context) error // instead of measuring
	fill  int                             // bytes to write beside the number
	runs  int
}

const fakeFile = `title: Fake
section: "1"
full: {minutes: 1, params: {}}
smoke: {minutes: 1, params: {}}
claims:
  - id: X1
    sentence: The number is at least 1.
    section: "1"
    status: checked
    metric: number
    band: {low: 1}
    why: A test.
`

func newFake(t *testing.T, name string, value float64) *fake {
	spec, _, err := experiment.Load[struct{}](name, []byte(fakeFile))
	if err != nil {
		t.Fatal(err)
	}
	return &fake{spec: spec, value: value}
}

func (f *fake) Spec() *experiment.Spec { return f.spec }

func (f *fake) Run(ctx context.Context, env *experiment.Env) error {
	f.runs++
	if f.hang != nil {
		return f.hang(ctx)
	}
	if f.fail != nil {
		return f.fail
	}
	if st, err := os.Stat(env.Work); err != nil || st.Mode().Perm() != 0o755 {
		return fmt.Errorf("other users can't enter the scratch folder: %v, %w", st.Mode(), err)
	}
	if err := os.WriteFile(filepath.Join(env.Dir, "fill"), make([]byte, f.fill), 0o644); err != nil {
		return err
	}
	env.Progress(experiment.Tick{Done: 1, Total: 1, What: "done"})
	return os.WriteFile(filepath.Join(env.Dir, "raw.txt"), []byte(strconv.FormatFloat(f.value, 'g', -1, 64)), 0o644)
}

func (f *fake) Reduce(dir string) (*experiment.Metrics, error) {
	data, err := os.ReadFile(filepath.Join(dir, "raw.txt"))
	if err != nil {
		return nil, err
	}
	x, err := strconv.ParseFloat(string(data), 64)
	if err != nil {
		return nil, err
	}
	m := &experiment.Metrics{Experiment: f.spec.Name, Metrics: []experiment.Metric{{Name: "number", Value: x, Low: x - 0.5, High: x + 0.5, N: 9, Samples: "raw.txt"}}}
	return m, m.Finish()
}

// with puts the fakes into the registry for the length of the test.
func with(t *testing.T, fakes ...*fake) {
	t.Helper()
	old := registry
	t.Cleanup(func() { registry = old })
	registry = func() []entry {
		var out []entry
		for _, f := range fakes {
			out = append(out, entry{f, nil})
		}
		return out
	}
}

// reproduce runs the registry into out without looking at the host first.
func reproduce(ctx context.Context, o Options) (string, error) {
	dir, err := root()
	if err != nil {
		return "", err
	}
	o.Only = "fakes" // not all experiments, so that no report is made of them
	p := &pipeline{Options: o, root: dir, runs: o.Out, list: registry(), broken: map[string]error{}}
	if _, unlock, err := p.lockAndOpen(ctx); err != nil {
		return "", err
	} else {
		defer unlock()
	}
	sealed, err := p.execute(ctx)
	if err != nil {
		return "", err
	}
	return sealed, p.conclude(sealed)
}

func code(err error) int {
	var e interface{ ExitStatus() int }
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.ExitStatus()
	}
	return Broken
}

func TestExitCodesFollowTheVerdicts(t *testing.T) {
	for _, tc := range []struct {
		value float64
		smoke bool
		fail  error
		want  int
	}{
		{2, false, nil, 0}, {0, false, nil, Failed}, {1, false, nil, Undecided}, {1, true, nil, 0}, {0, true, nil, Failed},
		{2, false, errors.New("no"), Broken},
	} {
		f := newFake(t, "fake", tc.value)
		f.fail = tc.fail
		with(t, f)
		if _, err := reproduce(t.Context(), Options{Smoke: tc.smoke, Out: filepath.Join(t.TempDir(), "runs")}); code(err) != tc.want {
			t.Errorf("%+v: exit code %d (%v)", tc, code(err), err)
		}
	}
}

func TestBrokenExperimentDoesNotStopTheOthersAndIsSealed(t *testing.T) {
	broken, good := newFake(t, "broken", 2), newFake(t, "good", 2)
	broken.fail = errors.New("the disk caught fire")
	with(t, broken, good)
	sealed, err := reproduce(t.Context(), Options{Out: filepath.Join(t.TempDir(), "runs")})
	if code(err) != Broken || sealed == "" {
		t.Fatalf("sealed %q, %v", sealed, err)
	}
	verdicts, err := recompute(t.Context(), sealed)
	if err != nil {
		t.Fatal(err)
	}
	if verdicts[0].Verdict != experiment.Inconclusive || !strings.Contains(verdicts[0].Reason, "caught fire") || verdicts[1].Verdict != experiment.Pass {
		t.Errorf("verdicts %+v", verdicts)
	}
}

// Trap 5 of the pipeline, first part.
func TestSecondRunLeavesTheFirstAlone(t *testing.T) {
	with(t, newFake(t, "fake", 2))
	runs := filepath.Join(t.TempDir(), "runs")
	first, err := reproduce(t.Context(), Options{Out: runs})
	if err != nil {
		t.Fatal(err)
	}
	second, err := reproduce(t.Context(), Options{Out: runs})
	if err != nil || first == second {
		t.Fatalf("second run %s, %v", second, err)
	}
	for _, dir := range []string{first, second} {
		if _, err := evidence.Check(dir); err != nil {
			t.Error(err)
		}
	}
}

// Whoever changes a raw sample and renews the sums is found by the second computation.
func TestVerdictsAreRecomputedFromRawSamples(t *testing.T) {
	with(t, newFake(t, "fake", 2))
	for name, change := range map[string]func(dir string) error{
		"raw sample": func(dir string) error { return os.WriteFile(filepath.Join(dir, "fake", "raw.txt"), []byte("0"), 0o644) },
		"verdict": func(dir string) error {
			name := filepath.Join(dir, evidence.VerdictsFile)
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			return os.WriteFile(name, []byte(strings.Replace(string(data), `"value": 2`, `"value": 3`, 1)), 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			sealed, err := reproduce(t.Context(), Options{Out: filepath.Join(t.TempDir(), "runs")})
			if err != nil {
				t.Fatal(err)
			}
			if err := Verify(t.Context(), sealed); err != nil {
				t.Fatalf("an untouched run: %v", err)
			}
			if err := change(sealed); err != nil {
				t.Fatal(err)
			}
			if err := Verify(t.Context(), sealed); code(err) != Broken {
				t.Errorf("the sums did not notice: %v", err)
			}
			script := `find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum > SHA256SUMS`
			cmd := exec.Command("sh", "-c", script)
			cmd.Dir = sealed
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatal(err, string(out))
			}
			if err := Verify(t.Context(), sealed); code(err) != Broken || !strings.Contains(err.Error(), "not what the raw samples give") {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestTwoRunsDoNotDisturbEachOther(t *testing.T) {
	runs := filepath.Join(t.TempDir(), "runs")
	unlock, err := lock(runs)
	if err != nil {
		t.Fatal(err)
	}
	with(t, newFake(t, "fake", 2))
	if _, err := reproduce(t.Context(), Options{Out: runs}); code(err) != Undecided || !strings.Contains(err.Error(), "another run") {
		t.Errorf("error %v", err)
	}
	unlock()
	if _, err := reproduce(t.Context(), Options{Out: runs}); err != nil {
		t.Error(err)
	}
}

func TestFolderThatCannotBeWrittenIsOneSentence(t *testing.T) {
	with(t, newFake(t, "fake", 2))
	_, err := reproduce(t.Context(), Options{Out: "/proc/self/runs"})
	if code(err) != Undecided || !strings.Contains(err.Error(), "-out") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
}

func TestWrongUseIsToldBeforeAnythingStarts(t *testing.T) {
	for name, err := range map[string]error{
		"rounds":     Reproduce(t.Context(), Options{Rounds: 3}),
		"experiment": Reproduce(t.Context(), Options{Only: "none"}),
		"run":        Verify(t.Context(), "no-such-run"),
		"compare":    Compare("no-such-run", "another"),
		"nothing": func() error {
			with(t, newFake(t, "fake", 2))
			_, err := reproduce(t.Context(), Options{Resume: true, Out: t.TempDir()})
			return err
		}(),
	} {
		if code(err) != Usage {
			t.Errorf("%s: exit code %d, %v", name, code(err), err)
		}
	}
}

// A disk that fills up in the middle ends in one sentence; nothing half-written is taken for a run.
func TestFullDiskLeavesNoSealedRun(t *testing.T) {
	runs := t.TempDir()
	if err := syscall.Mount("tmpfs", runs, "tmpfs", 0, "size=256k"); err != nil {
		t.Skip("needs the right to mount a small file system:", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(runs, 0); err != nil {
			t.Error(err)
		}
	})
	f := newFake(t, "fake", 2)
	f.fill = 1 << 20
	with(t, f)
	if _, err := reproduce(t.Context(), Options{Out: runs}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("error %v", err)
	}
	entries, err := os.ReadDir(runs)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasSuffix(e.Name(), ".partial") {
			t.Errorf("%s looks like a sealed run", e.Name())
		}
	}
}

func TestSmokeAndLongExcludeEachOther(t *testing.T) {
	with(t, newFake(t, "fake", 2))
	if err := Reproduce(t.Context(), Options{Smoke: true, Long: true, Out: filepath.Join(t.TempDir(), "runs")}); code(err) != Usage {
		t.Errorf("exit code %d (%v)", code(err), err)
	}
}

func TestLongScaleIsDecidedLikeFullScale(t *testing.T) {
	with(t, newFake(t, "fake", 1)) // inconclusive
	sealed, err := reproduce(t.Context(), Options{Long: true, Out: filepath.Join(t.TempDir(), "runs")})
	if code(err) != Undecided {
		t.Errorf("exit code %d (%v)", code(err), err)
	}
	if id, err := evidence.Info(sealed); err != nil || id.Scale != experiment.Long {
		t.Errorf("scale %q, %v", id.Scale, err)
	}
}
