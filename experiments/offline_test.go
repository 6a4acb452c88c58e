package experiments

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"shardlease/experiments/micro"
	"shardlease/internal/figures"
	"shardlease/internal/figures/browsertest"
	"shardlease/internal/report"
)

const offlineDir = "SHARDLEASE_TEST_OFFLINE"

const offlineReport = `# Offline

{{summary}}

{{overview}}

{{num "fake.number"}} {{verdict "X1"}}

{{figure "fake-number" "The number."}}

{{section "fake"}}
`

// TestOfflineRun is the child of the test below: it builds programs, runs an experiment at smoke scale, draws, seals, and makes the report.
func TestOfflineRun(t *testing.T) {
	dir := os.Getenv(offlineDir)
	if dir == "" {
		t.Skip("runs only as the child of the test that takes its network away")
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback == 0 {
			t.Fatalf("there is a network: %s", i.Name)
		}
	}
	top, err := root()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := build(t.Context(), top, []entry{{micro.New(), nil}}, os.Stderr); err != nil {
		t.Fatal(err)
	}
	with(t, newFake(t, "fake", 2))
	list := registry()
	list[0].figures = func(string) ([]figures.Figure, error) {
		f, err := figures.Bars(figures.Spec{ID: "fake-number", Title: "The number"}, figures.Axis{Name: "number"},
			figures.Group{Name: "fake", Bars: []figures.Bar{{Name: "number", Value: 2}}})
		return []figures.Figure{f}, err
	}
	registry = func() []entry { return list } // with puts the old one back
	sealed, err := reproduce(t.Context(), Options{Smoke: true, Out: filepath.Join(dir, "runs")})
	if err != nil {
		t.Fatal(err)
	}
	template := filepath.Join(dir, "report.md.tmpl")
	if err := errors.Join(
		os.WriteFile(template, []byte(offlineReport), 0o644),
		report.Build(report.Options{Root: top, Run: sealed, Template: template, Out: report.Output(template), Smoke: true}),
	); err != nil {
		t.Fatal(err)
	}
}

// Traps 1 and 8 of the pipeline: everything works without a network, no page asks a host for anything, a browser shows each without an error, and
// what is made of a smoke run says so.
func TestPagesOfARunAreMadeAndShownWithoutNetwork(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser; run without -short")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a network namespace without interfaces")
	}
	top, err := root()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := figures.NewRenderer(figures.ScriptPath(top)); err != nil {
		t.Skipf("needs the charting script: %v", err)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "unshare", "-n", "--", os.Args[0], "-test.run=^TestOfflineRun$")
	cmd.Env = append(os.Environ(), offlineDir+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	made, err := filepath.Glob(filepath.Join(dir, "runs", "*", "figures", "*"))
	if err != nil || len(made) != 5 { // index, experiment, option, picture and page of the figure
		t.Fatalf("figures of the run: %v, %v", made, err)
	}
	made = append(made, filepath.Join(dir, "report.html"))
	host := regexp.MustCompile(`(?i)(?:https?:)?//[a-z0-9]`)
	for _, name := range made {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		bare := bytes.ReplaceAll(text, []byte("http://www.w3.org/"), nil) // name spaces, which nobody fetches
		if m := host.Find(bare); m != nil {
			t.Errorf("%s names a host: %s", filepath.Base(name), m)
		}
		if filepath.Ext(name) == ".html" {
			shown(t, name, text)
		}
	}
}

// shown opens a page and looks at it as far as a program can.
func shown(t *testing.T, name string, text []byte) {
	t.Helper()
	if !bytes.Contains(text, []byte("SMOKE")) {
		t.Errorf("%s does not say that it is of a smoke run", filepath.Base(name))
	}
	dom, console, shot := browsertest.Open(t, name)
	if console != "" {
		t.Errorf("%s: console says %s", filepath.Base(name), console)
	}
	if !strings.Contains(dom, "<svg") {
		t.Errorf("%s shows no picture", filepath.Base(name))
	}
	if share := browsertest.Inked(t, shot); share < 0.01 {
		t.Errorf("%s: only %.2f %% of the page is inked", filepath.Base(name), 100*share)
	}
}
