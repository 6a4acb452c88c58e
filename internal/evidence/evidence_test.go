package evidence

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"shardlease/internal/experiment"
)

var someIdentity = Identity{Commit: "0123456789abcdef", Scale: experiment.Smoke, Seed: 1, Start: time.Date(2026, 8, 7, 1, 2, 3, 0, time.UTC)}

func sealed(t *testing.T) string {
	t.Helper()
	r, err := Create(t.TempDir(), someIdentity)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{ClaimsFile: "[]\n", "micro/raw.csv": "a,b\n1,2\n", "micro-2/z": "", "a.b": "x", "B": "y"} {
		if err := r.Write(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Do(Step{Name: "micro", InputHash: "h"}, "micro", func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.WriteGuide(), r.WriteCrate([]*experiment.Spec{{Name: "micro", Title: "Micro"}}), r.WriteStatement(nil)); err != nil {
		t.Fatal(err)
	}
	dir, err := r.Seal()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSealedRunIsNamedByTimeCommitAndScale(t *testing.T) {
	if got := filepath.Base(sealed(t)); got != "20260807T010203Z-0123456-smoke" {
		t.Errorf("run is called %s", got)
	}
	dirty := someIdentity
	dirty.Dirty, dirty.Scale = true, experiment.Full
	if got := dirty.name(dirty.Start); got != "20260807T010203Z-0123456-dirty" || !runName.MatchString(got) {
		t.Errorf("dirty run is called %s", got)
	}
}

func TestTwoRunsOfOneSecondGetTwoFolders(t *testing.T) {
	root := t.TempDir()
	for range 3 {
		r, err := Create(root, someIdentity)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Seal(); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := list(root, ""); err != nil || len(got) != 3 {
		t.Errorf("folders %v, %v", got, err)
	}
}

// Trap 6 of the pipeline. Every kind of damage must be noticed by Check and by the tools that EVIDENCE.md names.
func TestDamageIsNoticedByUsAndByStandardTools(t *testing.T) {
	write := func(name, text string) func(dir string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644) }
	}
	for name, tc := range map[string]struct {
		damage func(dir string) error
		want   string
		tools  bool // whether the tools' exit status tells
	}{
		"none":         {func(string) error { return nil }, "", false},
		"flipped byte": {write("micro/raw.csv", "a,b\n1,3\n"), "changed: micro/raw.csv", true},
		"deleted":      {func(dir string) error { return os.Remove(filepath.Join(dir, "B")) }, "missing: B", true},
		"added":        {write("micro/more.csv", ""), "added: micro/more.csv", true},
		"CRLF":         {func(dir string) error { return crlf(filepath.Join(dir, SumsFile)) }, "CRLF", true}, // sha256sum of GNU 9 accepts it, comm does not
		"empty list":   {write(SumsFile, ""), "empty", true},
		"no list":      {func(dir string) error { return os.Remove(filepath.Join(dir, SumsFile)) }, "not a sealed run", true},
		"odd name":     {write("micro/a b", ""), "letters, digits", true},
		"link":         {func(dir string) error { return os.Symlink("B", filepath.Join(dir, "C")) }, "regular files only", false},
		"unsorted":     {func(dir string) error { return swapLines(filepath.Join(dir, SumsFile)) }, "out of order", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := sealed(t)
			if err := tc.damage(dir); err != nil {
				t.Fatal(err)
			}
			n, err := Check(dir)
			switch {
			case tc.want == "" && (err != nil || n < 5):
				t.Errorf("%d files, %v", n, err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if name == "none" || tc.tools {
				if noticed := !standardToolsAccept(t, dir); noticed != tc.tools {
					t.Errorf("sha256sum and comm noticed: %v", noticed)
				}
			}
		})
	}
}

func crlf(name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return os.WriteFile(name, bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n")), 0o644)
}

func swapLines(name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	lines[0], lines[1] = lines[1], lines[0]
	return os.WriteFile(name, bytes.Join(lines, nil), 0o644)
}

// standardToolsAccept runs the commands of EVIDENCE.md's first three points, as they stand there.
func standardToolsAccept(t *testing.T, dir string) bool {
	t.Helper()
	for _, tool := range []string{"bash", "sha256sum", "comm", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	blocks := bytes.Split(guide, []byte("```bash\n"))
	for _, block := range blocks[1:4] {
		script, _, _ := bytes.Cut(block, []byte("```"))
		cmd := exec.Command("bash", "-e", "-o", "pipefail", "-c", string(script))
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil || len(out) > 0 {
			t.Logf("%s: %v %s", script, err, out)
			return false
		}
	}
	return true
}

func TestUnsafeNamesAreRefusedBeforeTheyAreWritten(t *testing.T) {
	r, err := Create(t.TempDir(), someIdentity)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "a b", "a\\b", "a\nb", "../x", "/x", "a//b", "ä", "a/./b", ".", ".."} {
		if err := r.Write(name, nil); err == nil {
			t.Errorf("%q was accepted", name)
		}
	}
}

func TestStepIsSkippedOnlyWhenInputsAndOutputsAgree(t *testing.T) {
	root := t.TempDir()
	r, err := Create(root, someIdentity)
	if err != nil {
		t.Fatal(err)
	}
	times := 0
	do := func(input string) bool {
		t.Helper()
		r, err := Resume(root, someIdentity)
		if err != nil {
			t.Fatal(err)
		}
		skipped, err := r.Do(Step{Name: "s", InputHash: input}, "s", func() error {
			times++
			return r.Write("s/out", []byte("1"))
		})
		if err != nil {
			t.Fatal(err)
		}
		return skipped
	}
	raw := filepath.Join(r.Dir, "s", "out")
	if do("a") || !do("a") {
		t.Error("first ran, second was skipped: no")
	}
	if do("b") || !do("b") {
		t.Error("a changed input must run the step again, once")
	}
	now := time.Now().Add(time.Hour)
	if err := os.Chtimes(raw, now, now); err != nil {
		t.Fatal(err)
	}
	if !do("b") {
		t.Error("a touched file with the same content ran the step again")
	}
	if err := os.WriteFile(raw, []byte("2"), 0o644); err != nil {
		t.Fatal(err)
	}
	if do("b") {
		t.Error("a changed output was taken for done")
	}
	if times != 3 {
		t.Errorf("ran %d times", times)
	}
}

func TestFailedStepIsKeptAndRunAgain(t *testing.T) {
	root := t.TempDir()
	r, err := Create(root, someIdentity)
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if _, err := r.Do(Step{Name: "s"}, "", func() error { return broken }); !errors.Is(err, broken) {
		t.Fatalf("error %v", err)
	}
	again, err := Resume(root, someIdentity)
	if err != nil {
		t.Fatal(err)
	}
	if len(again.Steps) != 1 || again.Steps[0].RC != 1 || again.Steps[0].Error != "broken" {
		t.Errorf("steps %+v", again.Steps)
	}
	if skipped, err := again.Do(Step{Name: "s"}, "", func() error { return nil }); skipped || err != nil {
		t.Errorf("skipped %v, %v", skipped, err)
	}
}

func TestResumeTakesOnlyTheSameWork(t *testing.T) {
	root := t.TempDir()
	if _, err := Create(root, someIdentity); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Identity){
		"commit": func(id *Identity) { id.Commit = "f" }, "scale": func(id *Identity) { id.Scale = experiment.Full },
		"rounds": func(id *Identity) { id.Rounds = 9 }, "diff": func(id *Identity) { id.DiffSHA256 = "x" },
	} {
		id := someIdentity
		change(&id)
		if _, err := Resume(root, id); !errors.Is(err, ErrNothingToResume) {
			t.Errorf("other %s: %v", name, err)
		}
	}
}

// Trap 8 of the pipeline, for the paper targets.
func TestSmokeRunNeverStandsInForAFullOne(t *testing.T) {
	dir := sealed(t)
	runs := filepath.Dir(dir)
	evidence := filepath.Dir(runs)
	if err := SetLatest(runs, dir, Identity{Scale: experiment.Smoke, Complete: true}); err != nil {
		t.Fatal(err)
	}
	if got, err := Newest(evidence); err != nil || got != dir {
		t.Errorf("newest is %s, %v", got, err)
	}
	if got, err := FullRun(evidence); err == nil {
		t.Errorf("full run is %s", got)
	}
	if err := SetLatest(runs, dir, Identity{Scale: experiment.Full, Complete: true}); err != nil { // as if somebody had edited latest.json
		t.Fatal(err)
	}
	if _, err := FullRun(evidence); err == nil || !strings.Contains(err.Error(), "can't stand in") {
		t.Errorf("error %v", err)
	}
}

func TestStatementSortsClaimsByVerdict(t *testing.T) {
	r, err := Create(t.TempDir(), someIdentity)
	if err != nil {
		t.Fatal(err)
	}
	verdicts := []experiment.Verdict{
		{Experiment: "m", Claim: "A", Verdict: experiment.Pass}, {Experiment: "m", Claim: "B", Verdict: experiment.Inconclusive},
		{Experiment: "m", Claim: "C", Verdict: experiment.Fail},
	}
	if err := errors.Join(r.WriteJSON(ClaimsFile, []int{}), r.WriteStatement(verdicts)); err != nil {
		t.Fatal(err)
	}
	var s statement
	data, err := os.ReadFile(filepath.Join(r.Dir, StatementFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	p := s.Predicate
	if p.Result != "FAILED" || !slices.Equal(p.PassedTests, []string{"m.A"}) || !slices.Equal(p.WarnedTests, []string{"m.B"}) || !slices.Equal(p.FailedTests, []string{"m.C"}) {
		t.Errorf("predicate %+v", p)
	}
	if len(s.Subject) != 2 || len(p.Configuration) != 1 {
		t.Errorf("subjects %v, configuration %v", s.Subject, p.Configuration)
	}
}
