package report

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"shardlease/internal/evidence"
	"shardlease/internal/experiment"
	"shardlease/internal/figures"
)

const nasty = "a <script>alert(1)</script> | & \"b\" *c*"

// sealed makes a sealed run whose claims and metrics are enough for the templates given; each value is a different number.
func sealed(t *testing.T, scale experiment.Scale, templates ...string) string {
	t.Helper()
	metrics := map[string]*experiment.Metrics{}
	pictures, cited := map[string]bool{}, map[string]bool{}
	value := 1.0
	add := func(name, metric string) {
		if metrics[name] == nil {
			metrics[name] = &experiment.Metrics{Experiment: name}
		}
		if _, ok := metrics[name].Get(metric); !ok {
			value += 0.125
			metrics[name].Metrics = append(metrics[name].Metrics, experiment.Metric{Name: metric, Value: value, Low: value - 0.01, High: value + 0.01, N: 30, Confidence: 0.957, Samples: "raw.csv"})
		}
	}
	for _, tmpl := range templates {
		for _, m := range key.FindAllStringSubmatch(tmpl, -1) {
			switch m[1] {
			case "num", "exact", "pct", "ci", "n", "level":
				name, metric, _ := strings.Cut(m[2], ".")
				add(name, metric)
			case "systems":
				add(m[2], "n64k1.batch."+m[3])
				add(m[2], "n64k1.one_flush."+m[3])
				add(m[2], "n1024k8.batch."+m[3])
			case "figure":
				pictures[m[2]] = true
			case "reported", "verdict":
				cited[m[2]] = true
			case "has": // an experiment of which nothing else is asked needs some metric to be there
				name := m[2]
				if metrics[name] != nil {
					continue
				}
				metrics[name] = &experiment.Metrics{Experiment: name, Metrics: []experiment.Metric{experiment.Exact("x", 1, "", "raw.csv")}}
			}
		}
	}
	run, err := evidence.Create(filepath.Join(t.TempDir(), "runs"), evidence.Identity{Commit: "0123456789", Scale: scale, Start: time.Unix(0, 0)})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	one := 1.0
	var specs []*experiment.Spec
	var verdicts []experiment.Verdict
	for name, m := range metrics {
		must(m.Finish())
		must(run.WriteJSON(name+"/"+experiment.ResultsFile, m))
		must(run.Write(name+"/raw.csv", []byte("1\n")))
		must(run.WriteJSON(name+"/cases.json", []any{map[string]any{"name": nasty, "subject": "library", "invariants": []string{"G1"}, "fault": nasty, "injected": 1, "surfaced": 1, "checks": []any{}}}))
		must(run.WriteJSON(name+"/directed.json", []any{map[string]any{"report": nasty, "package": "p", "test": "T", "passed": true}}))
		must(run.Write(name+"/workload.json", []byte(`{"records": 64}`)))
		spec := &experiment.Spec{Name: name, Claims: []experiment.Claim{{ID: "X1", Sentence: nasty, Status: experiment.NotClaimed, Section: "10", Why: nasty}}}
		first := m.Metrics[0].Name
		ids := sorted(cited)
		if name != "micro" { // ids of claims are unique in a run
			ids = nil
		}
		for _, id := range ids {
			c := experiment.Claim{ID: id, Sentence: nasty, Section: "8.2", Status: experiment.Checked, Metric: first, Report: &one, Band: &experiment.Band{Exact: &one}}
			spec.Claims = append(spec.Claims, c)
			verdicts = append(verdicts, experiment.Verdict{Claim: id, Experiment: name, Verdict: experiment.Pass, Value: &one, Low: &one, High: &one, Report: &one, Reason: nasty})
		}
		specs = append(specs, spec)
	}
	for id := range pictures {
		must(run.Write("figures/"+id+".svg", []byte("<svg xmlns=\"http://www.w3.org/2000/svg\">\n\n<title>"+id+"</title></svg>\n")))
	}
	must(run.WriteJSON("env.json", map[string]any{"suitability": "SUITABLE", "cpu": map[string]any{"model": "m", "cores": "2"},
		"file_system": map[string]any{"type": "ext4"}, "device": map[string]any{"name": "vda", "write_cache": "write back"}, "system": map[string]any{"kernel": "6"}}))
	must(run.WriteJSON("steps.json", []map[string]any{{"name": "micro", "seconds": 61.4}}))
	must(run.WriteJSON(evidence.ClaimsFile, specs))
	must(run.WriteJSON(evidence.VerdictsFile, verdicts))
	dir, err := run.Seal()
	must(err)
	return dir
}

// build makes a report of a template given as text.
func build(t *testing.T, run, tmpl string, smoke bool) (string, error) {
	t.Helper()
	dir := t.TempDir()
	name := filepath.Join(dir, "report.md.tmpl")
	if err := os.WriteFile(name, []byte(tmpl), 0o644); err != nil {
		t.Fatal(err)
	}
	html, err := HTML(Options{Root: "../..", Run: run, Template: name, Out: Output(name), Smoke: smoke})
	return string(html), err
}

const small = "# T\n\n{{if has \"micro\"}}{{num \"micro.a.speedup\"}}{{end}} {{figure \"f1\" \"caption\"}}\n"

func TestPaperTemplatesAskForTheSameNumbersAndBuild(t *testing.T) {
	list, err := Templates("../../paper")
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, name := range list {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
		if want, got := strings.Join(Keys(texts[0]), "\n"), strings.Join(Keys(string(text)), "\n"); got != want {
			t.Errorf("%s and %s ask for different keys:\n%s\n\n%s", list[0], name, want, got)
		}
	}
	if len(list) < 2 {
		t.Errorf("templates: %v", list)
	}
	if _, err := figures.NewRenderer(figures.ScriptPath("../..")); err != nil {
		t.Skipf("building them needs the charting script: %v", err)
	}
	run := sealed(t, experiment.Full, texts...)
	for _, name := range list {
		o := Options{Root: "../..", Run: run, Template: name, Out: filepath.Join(t.TempDir(), "report.html")}
		first, err := HTML(o)
		if err != nil {
			t.Fatal(err)
		}
		again, err := HTML(o)
		if err != nil || !bytes.Equal(first, again) {
			t.Errorf("%s: built again it differs (%v)", name, err)
		}
		if bytes.Contains(first, []byte("<script")) || regexp.MustCompile(`(?:src|href)="(?:https?:)?//`).Match(first) {
			t.Errorf("%s: the report has code or needs another host", name)
		}
		if bytes.Contains(first, []byte("{{")) || bytes.Contains(first, []byte("&lt;a class")) || bytes.Contains(first, []byte("&lt;svg")) {
			t.Errorf("%s: markup was escaped or left over", name)
		}
	}
}

// Trap 3 of the pipeline, first part.
func TestUnknownKeysStopTheBuildAndKeepTheOldReport(t *testing.T) {
	run := sealed(t, experiment.Full, small)
	for tmpl, want := range map[string]string{
		`{{num "micro.a.sped"}}`:                 `no such metric; there are a.speedup`,
		`{{num "nano.a.speedup"}}`:               `no experiment nano`,
		`{{num "speedup"}}`:                      `not of the form`,
		`{{fact "cpu.speed"}}`:                   `"speed" is missing`,
		`{{raw "../run.json" "a"}}`:              `not a file of the run`,
		`{{raw "nothing.json" "a"}}`:             `no such file`,
		`{{reported "M99"}}`:                     `no claim "M99"`,
		`{{reported "X1"}}`:                      `no value of the report`,
		`{{verdict "X1"}}`:                       `no verdict`,
		`{{claims "nano"}}`:                      `no experiment "nano"`,
		`{{figure "f9" "c"}}`:                    `figure "f9"`,
		`{{figure "f1" "c"}}{{figure "f1" "c"}}`: `shown twice`,
		`{{ref "f1"}}`:                           `never shown`,
		`{{tests "G99"}}`:                        `no test below pkg/ cites G99`,
		`{{seconds "nano"}}`:                     `no step "nano"`,
		`{{nothing}}`:                            `"nothing" not defined`,
	} {
		dir := t.TempDir()
		name := filepath.Join(dir, "report.md.tmpl")
		old := []byte("the report that was there")
		if err := errors.Join(os.WriteFile(name, []byte("# T\n\n"+tmpl), 0o644), os.WriteFile(Output(name), old, 0o644)); err != nil {
			t.Fatal(err)
		}
		err := Build(Options{Root: "../..", Run: run, Template: name, Out: Output(name)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want it to say %q", tmpl, err, want)
		}
		if now, err := os.ReadFile(Output(name)); err != nil || !bytes.Equal(now, old) {
			t.Errorf("%s: the old report is gone (%v)", tmpl, err)
		}
	}
}

func TestNumbersLeadToTheirEvidence(t *testing.T) {
	run := sealed(t, experiment.Full, small)
	page, err := build(t, run, small, false)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`<a class="ev" href="([^"]+)" title="([^"]+)">1\.12</a>`).FindStringSubmatch(page)
	if m == nil || !strings.HasSuffix(m[1], "/micro/raw.csv") || !strings.Contains(m[2], "n = 30") {
		t.Errorf("the number's link is %q", m)
	}
}

func TestTextOfTheRunIsNotMarkup(t *testing.T) {
	tmpl := small + "\n{{verdict \"M1\"}}\n\n{{overview}}\n\n{{section \"micro\"}}\n\n{{boundaries}}\n"
	page, err := build(t, sealed(t, experiment.Full, tmpl), tmpl, false)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(page, "<script") || strings.Contains(page, "<em>c</em>") || strings.Count(page, "<td>a &lt;script&gt;") < 3 {
		t.Error("a sentence of a claim became markup")
	}
}

// Trap 8 of the pipeline, in the report.
func TestSmokeRunsAreRefusedUnlessAskedForAndMarked(t *testing.T) {
	run := sealed(t, experiment.Smoke, small)
	if _, err := build(t, run, small, false); !errors.Is(err, ErrSmoke) {
		t.Errorf("error %v", err)
	}
	page, err := build(t, run, small, true)
	if err != nil || strings.Count(page, "SMOKE") < 2 {
		t.Errorf("the report is not marked (%v)", err)
	}
	full, err := build(t, sealed(t, experiment.Full, small), small, true)
	if err != nil || strings.Contains(full, "SMOKE") {
		t.Errorf("a full run is marked SMOKE (%v)", err)
	}
}

func TestDamagedEvidenceMakesNoReport(t *testing.T) {
	run := sealed(t, experiment.Full, small)
	if err := os.WriteFile(filepath.Join(run, "micro", "raw.csv"), []byte("2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var damage *evidence.DamageError
	if _, err := build(t, run, small, false); !errors.As(err, &damage) || !strings.Contains(err.Error(), "micro/raw.csv") {
		t.Errorf("error %v", err)
	}
}

func TestFiguresAreNumberedInOrderAndMentionedBeforeTheyCome(t *testing.T) {
	tmpl := "# T\n\nSee {{ref \"f2\"}}.{{num \"micro.a.b\"}}\n\n{{figure \"f1\" \"one\"}}\n\n{{figure \"f2\" \"two\"}}\n"
	page, err := build(t, sealed(t, experiment.Full, tmpl), tmpl, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`See <a href="#fig-f2">Figure 2</a>.`, `<b>Figure 1.</b> one`, `<b>Figure 2.</b> two`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
}

func TestForestLeavesOutWhatHasNoRatio(t *testing.T) {
	v := func(claim string, value, report float64) experiment.Verdict {
		return experiment.Verdict{Claim: claim, Sentence: "s", Verdict: experiment.Pass, Value: &value, Low: &value, High: &value, Report: &report}
	}
	none := v("C5", 1, 1)
	none.Report = nil
	f, err := Forest([]experiment.Verdict{v("C1", 0, 0), v("C7", 0, 3), none, v("M1", 64, 64), v("M9", 1.2, 1.943)})
	if err != nil {
		t.Fatal(err)
	}
	for claim, want := range map[string]bool{"C1": false, "C5": false, "C7": false, "M1": true, "M9": true} {
		if got := bytes.Contains(f.Option, []byte(`"`+claim+`: s"`)); got != want {
			t.Errorf("claim %s is drawn: %v", claim, got)
		}
	}
	if _, err := Forest(nil); err == nil {
		t.Error("a figure of nothing was drawn")
	}
}

func TestPDFIsTheSameTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser twice; run without -short")
	}
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Skipf("needs chromium (apt-get install chromium): %v", err)
	}
	name := filepath.Join(t.TempDir(), "report.html")
	page, err := build(t, sealed(t, experiment.Full, small), small, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	for range 2 {
		if err := PDF(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		pdf, err := os.ReadFile(strings.TrimSuffix(name, ".html") + ".pdf")
		if err != nil || !bytes.HasPrefix(pdf, []byte("%PDF-")) {
			t.Fatalf("no PDF: %v", err)
		}
		all = append(all, pdf)
		time.Sleep(1100 * time.Millisecond) // the dates that Chromium writes have seconds
	}
	if !bytes.Equal(all[0], all[1]) {
		t.Error("the two PDFs differ")
	}
}

func TestMissingChromiumIsOneClearSentence(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := PDF(t.Context(), "report.html"); !errors.Is(err, ErrNoBrowser) || !strings.Contains(err.Error(), "apt-get install chromium") {
		t.Errorf("error %v", err)
	}
}
