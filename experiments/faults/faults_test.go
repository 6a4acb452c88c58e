package faults

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"shardlease/internal/experiment"
)

func TestEveryCaseHoldsOnTheLibrary(t *testing.T) {
	for _, sc := range scenarios() {
		c, err := sc.on(t.Context(), t.TempDir(), library)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range c.Checks {
			if k.Want != k.Got {
				t.Errorf("%s: %s: want %s, got %s\n%s", c.Name, k.What, k.Want, k.Got, c.Trace)
			}
		}
		if !c.held() {
			t.Errorf("%s: %d errors injected, %d surfaced, %d checks", c.Name, c.Injected, c.Surfaced, len(c.Checks))
		}
	}
}

// The checker is shown failing on planted bugs.
func TestEachPlantedBugIsCaughtByEachOfItsCases(t *testing.T) {
	for _, bug := range planted {
		for _, sc := range bug.scenarios {
			c, err := sc.on(t.Context(), t.TempDir(), bug.subject)
			if err != nil {
				t.Fatal(err)
			}
			if c.held() {
				t.Errorf("%s was not caught by %s", bug.name, sc.name)
			}
		}
	}
}

func TestNoInjectedErrorIsHidden(t *testing.T) {
	steps, err := sweep(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) < 20*len(sweepErrors) {
		t.Errorf("only %d operations failed: the sweep looks at nothing", len(steps))
	}
	for _, s := range steps {
		if s.Injected != s.Surfaced || !s.ZeroBatch || s.Lied > 0 {
			t.Errorf("%+v", s)
		}
	}
}

func TestEveryInvariantIsShownByACase(t *testing.T) {
	for n := 1; n <= 9; n++ {
		name := "G" + string(rune('0'+n))
		if !slices.ContainsFunc(scenarios(), func(sc scenario) bool { return slices.Contains(sc.invariants, name) }) {
			t.Errorf("no case shows %s", name)
		}
	}
}

// A renamed test must not silently drop out of the report's nine.
func TestDirectedTestsExist(t *testing.T) {
	reported := 0
	for _, d := range directedTests {
		if d.Report != "" {
			reported++
		}
	}
	if reported != 9 {
		t.Errorf("%d directed tests, the report has 9", reported)
	}
	for _, d := range directedTests {
		names, err := filepath.Glob(filepath.Join("..", "..", d.Package, "*_test.go"))
		if err != nil || len(names) == 0 {
			t.Errorf("%s has no tests (%v)", d.Package, err)
			continue
		}
		found := false
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			found = found || regexp.MustCompile(`(?m)^func `+d.Test+`\(t \*testing\.T\)`).Match(text)
		}
		if !found {
			t.Errorf("%s has no %s", d.Package, d.Test)
		}
	}
}

// Trap 7 of the pipeline, for faults. Reduction must see a broken library, a hidden error and a bug that was not caught.
func TestReductionFailsTheClaimsOfABrokenBuild(t *testing.T) {
	dir := t.TempDir()
	broken, err := oneBarrierPerShard.on(t.Context(), t.TempDir(), barrierRemoved)
	if err != nil {
		t.Fatal(err)
	}
	broken.Subject = library.name // as if the library itself had lost its barrier
	blind := Case{Name: "x", Subject: staleAccepted.name, Checks: []Check{{"a", "1", "1"}}}
	for name, v := range map[string]any{
		casesFile: []Case{broken, blind}, sweepFile: []SweepStep{{Operation: 1, Injected: 1, ZeroBatch: true}}, directedFile: directedTests,
	} {
		if err := write(dir, name, v); err != nil {
			t.Fatal(err)
		}
	}
	f := New()
	m, err := f.Reduce(dir)
	if err != nil {
		t.Fatal(err)
	}
	verdicts, err := experiment.Decide(f.Spec(), m, experiment.Suitable)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"F3", "F4", "F10", "F11", "F13", "F14", "F19"}
	var failed []string
	for _, v := range verdicts {
		if v.Verdict == experiment.Fail {
			failed = append(failed, v.Claim)
		}
	}
	for _, claim := range want {
		if !slices.Contains(failed, claim) {
			t.Errorf("%s did not fail; failed: %s", claim, strings.Join(failed, " "))
		}
	}
}
