package experiments

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"shardlease/internal/evidence"
	"shardlease/internal/experiment"
	"shardlease/internal/host"
)

// side is one of two runs being compared.
type side struct {
	id       evidence.Identity
	facts    host.Facts
	verdicts []experiment.Verdict
}

func readSide(name string) (s side, err error) {
	dir, err := locate(name)
	if err != nil {
		return s, err
	}
	if s.id, err = evidence.Info(dir); err != nil {
		return s, fail(Usage, "%s is no run: %w", name, err)
	}
	return s, errors.Join(
		experiment.ReadJSON(filepath.Join(dir, "env.json"), &s.facts),
		experiment.ReadJSON(filepath.Join(dir, evidence.VerdictsFile), &s.verdicts),
	)
}

// Compare shows two runs side by side, a reviewer's against the reference, say, and marks where a verdict changed.
func Compare(a, b string) error {
	left, err := readSide(a)
	if err != nil {
		return err
	}
	right, err := readSide(b)
	if err != nil {
		return err
	}
	table(os.Stdout, factRows(left, right))
	fmt.Println()
	rows, changed := comparison(left.verdicts, right.verdicts)
	table(os.Stdout, rows)
	fmt.Printf("%d verdicts changed\n", changed)
	return nil
}

// factRows shows which machine and code each run had, where they differ.
func factRows(a, b side) [][]string {
	rows := [][]string{{"", "A", "B"}, {"run", a.id.Name, b.id.Name}}
	for _, g := range []struct {
		name string
		a, b map[string]string
	}{{"cpu", a.facts.CPU, b.facts.CPU}, {"system", a.facts.System, b.facts.System}, {"file system", a.facts.FileSystem, b.facts.FileSystem},
		{"device", a.facts.Device, b.facts.Device}, {"go", a.facts.Go, b.facts.Go}, {"git", a.facts.Git, b.facts.Git}} {
		for _, key := range slices.Sorted(maps.Keys(g.a)) {
			if g.a[key] != g.b[key] {
				rows = append(rows, []string{g.name + " " + key, g.a[key], g.b[key]})
			}
		}
	}
	return append(rows, []string{"host", string(a.facts.Suitability), string(b.facts.Suitability)})
}

// missing stands for the verdict of a run that has not got the claim.
const missing = "-"

func comparison(a, b []experiment.Verdict) (rows [][]string, changed int) {
	rows = [][]string{{"claim", "A", "interval", "verdict", "B", "interval", "verdict", ""}}
	find := func(list []experiment.Verdict, like experiment.Verdict) (experiment.Verdict, bool) {
		i := slices.IndexFunc(list, func(v experiment.Verdict) bool { return v.Experiment == like.Experiment && v.Claim == like.Claim })
		if i < 0 {
			return experiment.Verdict{Verdict: missing}, false
		}
		return list[i], true
	}
	row := func(claim string, left, right experiment.Verdict) {
		mark := ""
		switch {
		case left.Verdict == missing:
			mark = "only in B"
		case right.Verdict == missing:
			mark = "only in A"
		case left.Verdict != right.Verdict:
			mark = "CHANGED"
			changed++
		}
		rows = append(rows, []string{claim, optional(left.Value), interval(left), string(left.Verdict), optional(right.Value), interval(right), string(right.Verdict), mark})
	}
	for _, left := range a {
		right, _ := find(b, left)
		row(left.Claim, left, right)
	}
	for _, right := range b {
		if left, ok := find(a, right); !ok {
			row(right.Claim, left, right)
		}
	}
	return rows, changed
}
