package reboot

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"shardlease/internal/experiment"
)

func good() Raw {
	cells := func(bad int) Result {
		return Result{Cycles: []Cycle{{Marks: 9, Mode: "none"}}, Cells: []Cell{{Mode: "none", AfterAck: true, States: 5, Bad: bad}, {Mode: "all", States: 5}}}
	}
	return Raw{Scale: "smoke", Runs: []Run{{"ext4", product, cells(0)}, {"ext4", nodir, cells(2)}, {"ext4", lying, cells(1)}}}
}

// written is a folder with r as its raw file.
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

// A good run passes, and each fault fails the claim it is about and no other.
func TestEachFaultFailsItsClaim(t *testing.T) {
	for claim, plant := range map[string]func(r *Raw){
		"none": func(*Raw) {},
		"RB1":  func(r *Raw) { r.Runs[0].Result.Cycles[0].Fault = "lost" },
		"RB2":  func(r *Raw) { r.Runs[0].Result.Cells[1].Bad = 1 },
		"RB3":  func(r *Raw) { r.Runs[1].Result.Cells[0].Bad = 0 },
		"RB4":  func(r *Raw) { c := r.Runs[2].Result.Cells; c[0].Bad, c[1].Bad = 0, 5 },
	} {
		r := good()
		plant(&r)
		for id, v := range verdicts(t, r) {
			if want := map[bool]experiment.Result{true: experiment.Fail, false: experiment.Pass}[id == claim]; v.Verdict != want {
				t.Errorf("planted %s: %s is %s (%s)", claim, id, v.Verdict, v.Reason)
			}
		}
	}
}

// A machine whose disk does not mount shows nothing: it is no loss, and no proof either.
func TestADiskThatDoesNotMountDecidesNothing(t *testing.T) {
	r := good()
	r.Runs[0].Result.Hung, r.Runs[2].Result.Hung = 2, 1
	r.Runs[0].Result.Cycles[0].Fault, r.Runs[0].Result.Cycles[0].Unmountable = "mount: bad superblock", true
	metrics, err := New().Reduce(written(t, r))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"cycles.faults": 0, "cycles.unmountable": 1, "boots.hung": 3} {
		i := slices.IndexFunc(metrics.Metrics, func(m experiment.Metric) bool { return m.Name == name })
		if i < 0 || metrics.Metrics[i].Value != want {
			t.Errorf("%s is not %v: %+v", name, want, metrics.Metrics)
		}
	}
	if v := verdicts(t, r)["RB1"]; v.Verdict != experiment.Inconclusive {
		t.Errorf("%+v", v)
	}
	if boots, found := r.boots(); boots != 1 || found != 0 {
		t.Errorf("%d of %d boots found everything", found, boots)
	}
}

func TestWithoutQemuNothingIsDecided(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	x := New()
	env := &experiment.Env{Root: t.TempDir(), Dir: t.TempDir(), Work: t.TempDir(), Scale: experiment.Smoke, Log: t.Output(), Progress: func(experiment.Tick) {}}
	if err := x.Run(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	var r Raw
	if err := experiment.ReadJSON(filepath.Join(env.Dir, rawFile), &r); err != nil {
		t.Fatal(err)
	}
	for id, v := range verdicts(t, r) {
		if v.Verdict != experiment.Inconclusive || !strings.Contains(v.Reason, "qemu") {
			t.Errorf("%s: %s, %s", id, v.Verdict, v.Reason)
		}
	}
}

// One machine is killed, booted and swept, and each claim decided. The kernel is the one that an earlier run has downloaded.
func TestExperimentHoldsAtSmallScale(t *testing.T) {
	if testing.Short() {
		t.Skip("boots several emulated machines: half a minute")
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skip("needs qemu-system-x86: ", err)
	}
	if _, err := os.Stat(filepath.Join(root, ".build", "kernel", "unpacked")); err != nil {
		t.Skip("needs the kernel that go tool mage exp:reboot downloads: ", err)
	}
	x, bin := New(), t.TempDir()
	x.params[experiment.Smoke] = params{FileSystems: []string{"ext4"}, Cycles: 1, Batches: 4, Acks: 2, TwinAcks: 2}
	p := x.Programs()[0]
	build := exec.Command("go", "build", "-tags", p.Tags, "-o", filepath.Join(bin, p.Name), p.Package)
	build.Dir = filepath.Join(root, p.Module)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	env := &experiment.Env{Root: root, Dir: t.TempDir(), Work: t.TempDir(), Bin: bin, Scale: experiment.Smoke, Seed: 3, Log: t.Output(),
		Progress: func(experiment.Tick) {}}
	if err := x.Run(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	var r Raw
	if err := experiment.ReadJSON(filepath.Join(env.Dir, rawFile), &r); err != nil {
		t.Fatal(err)
	}
	for id, v := range verdicts(t, r) {
		if v.Verdict != experiment.Pass {
			t.Errorf("%s: %s, %s", id, v.Verdict, v.Reason)
		}
	}
}

func TestFiguresShowWhatSurvives(t *testing.T) {
	r := good()
	for i := range r.Runs {
		r.Runs[i].Result.Cells = nil
		for _, mode := range modes {
			bad := 0
			if r.Runs[i].Kind != product {
				bad = 3
			}
			r.Runs[i].Result.Cells = append(r.Runs[i].Result.Cells, Cell{Mode: mode, AfterAck: true, States: 4, Bad: bad}, Cell{Mode: mode, States: 9, Bad: 9})
		}
	}
	groups, states, err := r.survival()
	if err != nil || states != 60 || len(groups) != 5 {
		t.Fatalf("%d groups, %d states, %v", len(groups), states, err)
	}
	for _, g := range groups {
		if len(g.Bars) != 3 || g.Bars[0].Value != 100 || g.Bars[1].Value != 25 || g.Bars[1].Name != "no directory sync" {
			t.Errorf("%+v", g)
		}
	}
	drawn, err := Figures(written(t, r))
	if err != nil || len(drawn) != 1 || drawn[0].ID != "reboot-survival" || !strings.Contains(drawn[0].Caption, "1 of 1 boots") {
		t.Fatalf("%+v, %v", drawn, err)
	}
	for _, c := range New().Spec().Claims {
		for _, feed := range c.Feeds {
			if feed != drawn[0].ID && !strings.HasPrefix(feed, "table-") {
				t.Errorf("claim %s feeds %s, which is not drawn", c.ID, feed)
			}
		}
	}
	r.Runs = append(r.Runs, Run{"xfs", product, r.Runs[0].Result})
	if groups, _, err := r.survival(); err != nil || groups[0].Bars[0].Name != "product, ext4" || groups[0].Bars[3].Name != "product, xfs" {
		t.Errorf("%+v, %v", groups, err)
	}
	r.Runs[1].Result.Cells = r.Runs[1].Result.Cells[:2]
	if _, err := Figures(written(t, r)); err == nil || !strings.Contains(err.Error(), "no directory sync, ext4: no crash state") {
		t.Errorf("%v", err)
	}
}

func TestWithoutQemuNothingIsDrawn(t *testing.T) {
	if drawn, err := Figures(written(t, Raw{Scale: "smoke", Skipped: "qemu-system-x86_64 is missing"})); err != nil || len(drawn) != 0 {
		t.Errorf("%+v, %v", drawn, err)
	}
}

// The rig is another module, whose types can't be imported here. A field that it counts and nobody reads broke the experiment at its end.
func TestACellHasAllThatTheRigCounts(t *testing.T) {
	source, err := os.ReadFile("../powercut/rig/sweep/sweep.go")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(source), "type Tally struct {")
	text, _, _ = strings.Cut(text, "}")
	tags := regexp.MustCompile(`json:"(\w+)"`).FindAllStringSubmatch(text, -1)
	if !found || len(tags) < 3 {
		t.Fatalf("the rig's tally is not there: %q", text)
	}
	known := map[string]bool{}
	for i := range reflect.TypeFor[Cell]().NumField() {
		known[reflect.TypeFor[Cell]().Field(i).Tag.Get("json")] = true
	}
	for _, tag := range tags {
		if !known[tag[1]] {
			t.Errorf("the rig counts %q, which a cell does not have", tag[1])
		}
	}
}
