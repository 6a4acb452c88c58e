package evidence

import (
	"fmt"

	"shardlease/internal/experiment"
)

// StatementFile is an in-toto Statement v1 with the test-result predicate v0.1. It is not signed, so it states and does
// not attest.
const StatementFile = "statement.intoto.json"

type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     testResult `json:"predicate"`
}

type resource struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

type testResult struct {
	Result        string     `json:"result"` // PASSED, WARNED or FAILED
	Configuration []resource `json:"configuration"`
	PassedTests   []string   `json:"passedTests"`
	WarnedTests   []string   `json:"warnedTests"`
	FailedTests   []string   `json:"failedTests"`
}

// WriteStatement covers every file of the run but SumsFile and itself, so it comes just before Seal.
func (r *Run) WriteStatement(verdicts []experiment.Verdict) error {
	list, err := sums(r.Dir, SumsFile, StatementFile)
	if err != nil {
		return err
	}
	s := statement{
		Type:          "https://in-toto.io/Statement/v1",
		PredicateType: "https://in-toto.io/attestation/test-result/v0.1",
		Predicate:     testResult{PassedTests: []string{}, WarnedTests: []string{}, FailedTests: []string{}},
	}
	for _, f := range list {
		res := resource{f.Path, map[string]string{"sha256": f.SHA256}}
		s.Subject = append(s.Subject, res)
		if f.Path == ClaimsFile {
			s.Predicate.Configuration = append(s.Predicate.Configuration, res)
		}
	}
	if len(s.Predicate.Configuration) == 0 {
		return fmt.Errorf("the run has no %s to state results for", ClaimsFile)
	}
	for _, v := range verdicts {
		id := v.Experiment + "." + v.Claim
		switch v.Verdict {
		case experiment.Pass:
			s.Predicate.PassedTests = append(s.Predicate.PassedTests, id)
		case experiment.Fail:
			s.Predicate.FailedTests = append(s.Predicate.FailedTests, id)
		default:
			s.Predicate.WarnedTests = append(s.Predicate.WarnedTests, id)
		}
	}
	s.Predicate.Result = map[experiment.Result]string{
		experiment.Pass: "PASSED", experiment.Inconclusive: "WARNED", experiment.Fail: "FAILED",
	}[experiment.Worst(verdicts)]
	return r.WriteJSON(StatementFile, s)
}
