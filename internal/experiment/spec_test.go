package experiment

import (
	"strings"
	"testing"
)

type testParams struct {
	Rounds int `yaml:"rounds"`
}

const goodFile = `title: A title
section: "8.2"
full: {minutes: 3, params: {rounds: 30}}
smoke: {minutes: 0.5, params: {rounds: 7}}
claims:
  - id: M1
    sentence: Something is counted.
    section: "8.2"
    status: checked
    metric: one.count
    report: 64
    band: {exact: 64}
    why: A count.
  - id: M2
    sentence: Not claimed.
    section: "10"
    status: not_claimed
    why: The report says so.
`

func TestGoodFileLoads(t *testing.T) {
	spec, params, err := Load[testParams]("x", []byte(goodFile))
	if err != nil {
		t.Fatal(err)
	}
	if params[Full].Rounds != 30 || params[Smoke].Rounds != 7 || len(spec.Claims) != 2 || spec.Minutes[Smoke] != 0.5 {
		t.Errorf("loaded %+v %+v", spec, params)
	}
}

func TestLongScaleIsFullScaleUnlessDeclared(t *testing.T) {
	spec, params, err := Load[testParams]("x", []byte(goodFile))
	if err != nil {
		t.Fatal(err)
	}
	if params[Long].Rounds != 30 || spec.Minutes[Long] != 3 {
		t.Errorf("undeclared: %+v %+v", spec.Minutes, params)
	}
	file := strings.Replace(goodFile, "claims:", "long: {minutes: 90, params: {rounds: 900}}\nclaims:", 1)
	if spec, params, err = Load[testParams]("x", []byte(file)); err != nil {
		t.Fatal(err)
	}
	if params[Long].Rounds != 900 || spec.Minutes[Long] != 90 || params[Full].Rounds != 30 {
		t.Errorf("declared: %+v %+v", spec.Minutes, params)
	}
}

// Each fault is one sentence that begins with the file and, where the decoder knows it, the line.
func TestFaultsOfTheFileAreNamedWithTheirLine(t *testing.T) {
	for name, tc := range map[string]struct{ old, new, want string }{
		"unknown field":        {"report: 64", "reprot: 64", `experiment.yaml:11: unknown field "reprot"`},
		"unknown parameter":    {"rounds: 30", "round: 30", `experiment.yaml:3: unknown field "round"`},
		"wrong type":           {"rounds: 30", "rounds: many", "experiment.yaml:3: cannot unmarshal"},
		"not yaml":             {"title: A title", "title: [A", "experiment.yaml:"},
		"band open":            {"band: {exact: 64}", "band: {}", `experiment.yaml:6: claim "M1": band is open at both ends`},
		"band empty":           {"band: {exact: 64}", "band: {low: 2, high: 1}", `experiment.yaml:6: claim "M1": band is empty`},
		"band both":            {"band: {exact: 64}", "band: {exact: 64, low: 1}", `band is either exact`},
		"band not finite":      {"band: {exact: 64}", "band: {high: .inf}", `band has an end that is not finite`},
		"band not a number":    {"band: {exact: 64}", "band: {low: .nan}", `band has an end that is not finite`},
		"band missing":         {"band: {exact: 64}", "feeds: [a]", `experiment.yaml:6: claim "M1": band is missing`},
		"reason missing":       {"why: A count.", "feeds: [a]", `experiment.yaml:6: claim "M1": why is missing`},
		"metric missing":       {"metric: one.count", "feeds: [a]", `metric is missing`},
		"section missing":      {"section: \"8.2\"\n    status: checked", "status: checked", `section of the report is missing`},
		"unknown status":       {"status: checked", "status: done", `status "done" is none of`},
		"id twice":             {"id: M2", "id: M1", `experiment.yaml:14: claim "M1": this id is used twice`},
		"title missing":        {"title: A title", "title: \"\"", `experiment.yaml:1: title is missing`},
		"minutes missing":      {"minutes: 3, ", "", `experiment.yaml:3: expected minutes at full scale`},
		"band without verdict": {"status: not_claimed", "status: not_claimed\n    band: {low: 1}", `a band makes no sense`},
		"flag of a claim":      {"report: 64", "flag: some_flag\n    report: 64", `flag "some_flag" must be`},
		"two documents":        {"why: The report says so.\n", "why: x\n---\ntitle: y\n", `more than one document`},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(goodFile, tc.old) {
				t.Fatalf("the good file has no %q", tc.old)
			}
			_, _, err := Load[testParams]("x", []byte(strings.Replace(goodFile, tc.old, tc.new, 1)))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want it to contain %q", err, tc.want)
			}
			if strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "experiments/x/experiment.yaml") {
				t.Errorf("not one sentence with its place in front: %q", err)
			}
		})
	}
}

func TestEmptyFileIsRefused(t *testing.T) {
	if _, _, err := Load[testParams]("x", nil); err == nil {
		t.Fatal("an empty file was accepted")
	}
}
