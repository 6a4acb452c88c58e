package powercut

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shardlease/internal/experiment"
)

// good is what a run without a fault in product or checks leaves.
func good() Raw {
	r := Raw{Scale: "smoke", Skipped: map[string]string{}}
	for _, fs := range fileSystems {
		sweep := func(kind string, bad int) Run {
			return Run{FileSystem: fs, Strategy: "serial", Command: "sweep", Kind: kind, Sweep: &Sweep{Operations: 7, Cells: []Cell{
				{"none", true, Tally{States: 4, Bad: bad}}, {"all", true, Tally{States: 4}}, {"none", false, Tally{States: 2}},
			}, Again: []Cell{{"none", true, Tally{States: 300, Unmountable: 1}}}}}
		}
		broken := func(kind string, bad int) Run {
			return Run{FileSystem: fs, Strategy: "serial", Command: "broken", Kind: kind, Breakages: []Breakage{
				{Kind: "data", Hit: true, Failed: 1, Tally: Tally{States: 5, Bad: bad}}, {Kind: "flush", Hit: false, Tally: Tally{States: 5}},
			}}
		}
		r.Runs = append(r.Runs, sweep(product, 0), sweep(nodir, 4), sweep(nofile, 3), sweep(lying, 1), broken(product, 0), broken(retry, 5))
	}
	return r
}

func verdicts(t *testing.T, r Raw) map[string]experiment.Verdict {
	t.Helper()
	x := New()
	metrics, err := x.Reduce(written(t, r))
	if err != nil {
		t.Fatal(err)
	}
	list, err := experiment.Decide(x.Spec(), metrics, experiment.Noisy)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]experiment.Verdict{}
	for _, v := range list {
		found[v.Claim] = v
	}
	return found
}

func written(t *testing.T, r Raw) string {
	t.Helper()
	dir := t.TempDir()
	data, err := experiment.EncodeJSON(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, rawFile), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAGoodRunPassesEachClaim(t *testing.T) {
	for id, v := range verdicts(t, good()) {
		if v.Verdict != experiment.Pass {
			t.Errorf("%s: %s, %s", id, v.Verdict, v.Reason)
		}
	}
}

// Each claim fails on the fault it is about, and no other claim does.
func TestEachFaultFailsItsClaim(t *testing.T) {
	sweepOf := func(r *Raw, fs, kind string) *Sweep {
		for _, run := range r.Runs {
			if run.FileSystem == fs && run.Kind == kind && run.Sweep != nil {
				return run.Sweep
			}
		}
		panic(fs + kind)
	}
	brokenOf := func(r *Raw, fs, kind string) *Breakage {
		for _, run := range r.Runs {
			if run.FileSystem == fs && run.Kind == kind && run.Breakages != nil {
				return &run.Breakages[0]
			}
		}
		panic(fs + kind)
	}
	for name, tc := range map[string]struct {
		claim string
		plant func(r *Raw)
	}{
		"a lost record":                      {"PC1", func(r *Raw) { sweepOf(r, "ext4", product).Cells[2].Bad = 1 }},
		"images that don't mount":            {"PC10", func(r *Raw) { sweepOf(r, "btrfs", product).Again[0].Unmountable = 100 }},
		"a record lost by a second cut":      {"PC4", func(r *Raw) { sweepOf(r, "xfs", product).Again[0].Bad = 1 }},
		"a twin without directory syncs":     {"PC5", func(r *Raw) { sweepOf(r, "xfs", nodir).Cells[0].Bad = 0 }},
		"a twin without file syncs":          {"PC6", func(r *Raw) { sweepOf(r, "ext4", nofile).Cells[0].Bad = 0 }},
		"a lying disk":                       {"PC7", func(r *Raw) { sweepOf(r, "ext4", lying).Cells[0].Bad = 0 }},
		"a lying disk, seen in mode all":     {"PC7", func(r *Raw) { c := sweepOf(r, "ext4", lying).Cells; c[0].Bad, c[1].Bad = 0, 4 }},
		"a record lost after a failed write": {"PC8", func(r *Raw) { brokenOf(r, "btrfs", product).Bad = 1 }},
		"a twin that tries again":            {"PC9", func(r *Raw) { brokenOf(r, "xfs", retry).Bad = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			r := good()
			tc.plant(&r)
			for id, v := range verdicts(t, r) {
				if want := map[bool]experiment.Result{true: experiment.Fail, false: experiment.Pass}[id == tc.claim]; v.Verdict != want {
					t.Errorf("%s: %s, want %s (%s)", id, v.Verdict, want, v.Reason)
				}
			}
		})
	}
}

func TestWhatTheHostCanNotDoIsInconclusiveWithTheReason(t *testing.T) {
	r := Raw{Scale: "smoke", Skipped: map[string]string{"ext4": "no root", "xfs": "no root", "btrfs": "no root"}}
	for id, v := range verdicts(t, r) {
		if v.Verdict != experiment.Inconclusive || !strings.Contains(v.Reason, "no root") {
			t.Errorf("%s: %s, %s", id, v.Verdict, v.Reason)
		}
	}
	if list, err := Figures(written(t, r)); err != nil || len(list) != 0 {
		t.Errorf("%d figures, %v", len(list), err)
	}
	r = good()
	r.Skipped["xfs"] = "no mkfs.xfs"
	var kept []Run
	for _, run := range r.Runs {
		if run.FileSystem != "xfs" {
			kept = append(kept, run)
		}
	}
	r.Runs = kept
	for id, v := range verdicts(t, r) {
		if want := map[bool]experiment.Result{true: experiment.Inconclusive, false: experiment.Pass}[id == "PC2"]; v.Verdict != want {
			t.Errorf("without XFS, %s: %s (%s)", id, v.Verdict, v.Reason)
		}
	}
}

func TestFiguresShowWhatSurvives(t *testing.T) {
	list, err := Figures(written(t, good()))
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || !strings.Contains(string(list[0].Option), "lying disk") {
		t.Errorf("%d figures", len(list))
	}
	r := good()
	r.Runs[1].Sweep.Cells = nil
	if _, err := Figures(written(t, r)); err == nil || !strings.Contains(err.Error(), "no directory sync") {
		t.Errorf("a bar without a state behind it: %v", err)
	}
}

func TestABenchIsTheSameForTheSameFolderOfRuns(t *testing.T) {
	if a, b := bench("/x/runs/work-1.partial"), bench("/x/runs/work-2.partial"); a != b {
		t.Errorf("%s and %s: the next run would not find what a killed one has left", a, b)
	}
	if a, b := bench("/x/runs/work-1.partial"), bench("/y/runs/work-1.partial"); a == b {
		t.Errorf("two folders of runs share %s", a)
	}
}

// The whole experiment, at the smallest size at which each claim can be decided, on one file system.
func TestExperimentHoldsAtSmallScale(t *testing.T) {
	if why := unusable(t.Context(), "ext4"); why != "" {
		t.Skip(why)
	}
	x := New()
	x.params[experiment.Smoke] = params{FileSystems: []string{"ext4"}, Strategies: []string{"serial"}, BreakWith: []string{"serial"}, Seeds: 1, Batches: 5,
		Points: map[string]int{"ext4": 4}, Acks: 4, Again: 1, AgainPoints: 1, TwinAcks: 4, Breakages: 1}
	bin := t.TempDir()
	p := x.Programs()[0]
	build := exec.Command("go", "build", "-o", filepath.Join(bin, p.Name), p.Package)
	build.Dir = filepath.Join("..", "..", p.Module)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	work := filepath.Join(t.TempDir(), "work-1.partial")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	var last experiment.Tick
	env := &experiment.Env{Dir: t.TempDir(), Work: work, Bin: bin, Scale: experiment.Smoke, Seed: 3, Log: t.Output(),
		Progress: func(tick experiment.Tick) { last = tick }}
	if err := x.Run(context.WithoutCancel(t.Context()), env); err != nil {
		t.Fatal(err)
	}
	if last.Total == 0 || last.Done != last.Total {
		t.Errorf("the last progress is %+v", last)
	}
	if _, err := os.Stat(bench(work)); err == nil {
		t.Errorf("%s is still there", bench(work))
	}
	metrics, err := x.Reduce(env.Dir)
	if err != nil {
		t.Fatal(err)
	}
	list, err := experiment.Decide(x.Spec(), metrics, experiment.Noisy)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range list {
		if v.Verdict != experiment.Pass && v.Claim != "PC2" && v.Claim != "PC3" { // the other file systems
			t.Errorf("%s: %s, %s", v.Claim, v.Verdict, v.Reason)
		}
	}
}

// What is run follows from parameters and seed alone, and each strategy is swept with all its twins.
func TestJobsAreTheSameEachTime(t *testing.T) {
	x := New()
	for scale, p := range x.params {
		first, second := p.jobs("xfs", 7), p.jobs("xfs", 7)
		kinds := map[string]int{}
		for i := range first {
			if first[i].name() != second[i].name() || !slices.Equal(first[i].args, second[i].args) {
				t.Fatalf("%s: job %d is %v and then %v", scale, i, first[i], second[i])
			}
			kinds[first[i].Command+" "+first[i].Kind]++
		}
		n := len(p.Strategies)
		want := map[string]int{"sweep product": n * p.Seeds, "sweep nodir": n, "sweep nofile": n, "sweep lying": n,
			"broken product": len(p.BreakWith), "broken retry": len(p.BreakWith)}
		if !maps.Equal(kinds, want) {
			t.Errorf("%s: %v, want %v", scale, kinds, want)
		}
	}
}
