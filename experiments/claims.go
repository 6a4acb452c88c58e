package experiments

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"shardlease/internal/evidence"
	"shardlease/internal/experiment"
	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
)

// The generated part of README lies between these lines.
const (
	claimsBegin = "<!-- claims:begin -->"
	claimsEnd   = "<!-- claims:end -->"
)

// Claims prints all paper claims with the verdicts of the newest run, and brings the README's table up to date.
func Claims() error {
	dir, err := root()
	if err != nil {
		return err
	}
	last, from := newestVerdicts(dir)
	rows := [][]string{{"claim", "status", "section", "metric", "report", "band", "last", "minutes", "feeds", "sentence"}}
	for _, spec := range specs(registry()) {
		for _, c := range spec.Claims {
			verdict := last[spec.Name+"."+c.ID]
			if verdict == "" {
				verdict = "-"
			}
			metric := dashed(c.Metric)
			if c.Metric != "" {
				metric = spec.Name + "." + c.Metric
			}
			rows = append(rows, []string{c.ID, string(c.Status), dashed(c.Section), metric, optional(c.Report), bandText(c), verdict, minutes(spec),
				dashed(strings.Join(c.Feeds, " ")), flagged(c)})
		}
	}
	table(os.Stdout, rows)
	fmt.Printf("minutes: smoke / full; last: %s\n", from)
	return updateReadme(filepath.Join(dir, "README.md"))
}

func newestVerdicts(root string) (byClaim map[string]string, from string) {
	run, err := evidence.Newest(filepath.Join(root, "evidence"))
	if err != nil {
		return nil, "no run yet"
	}
	var list []experiment.Verdict
	if err := experiment.ReadJSON(filepath.Join(run, evidence.VerdictsFile), &list); err != nil {
		return nil, err.Error()
	}
	byClaim = map[string]string{}
	for _, v := range list {
		byClaim[v.Experiment+"."+v.Claim] = string(v.Verdict)
	}
	return byClaim, filepath.Base(run)
}

func bandText(c experiment.Claim) string {
	if c.Band == nil {
		return "-"
	}
	return c.Band.String()
}

func minutes(spec *experiment.Spec) string {
	return experiment.Number(spec.Minutes[experiment.Smoke]) + " / " + experiment.Number(spec.Minutes[experiment.Full])
}

func dashed(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// flagged is the sentence with the report's boundary flag, where it has one.
func flagged(c experiment.Claim) string {
	if c.Flag == "" {
		return c.Sentence
	}
	return c.Sentence + " (" + c.Flag + ")"
}

// readmeTable is the claims as Markdown: what is decided, then what is not. It holds nothing of any run, so that running does not
// change the checkout.
func readmeTable() string {
	var decided, open strings.Builder
	for _, spec := range specs(registry()) {
		for _, c := range spec.Claims {
			sentence := strings.ReplaceAll(c.Sentence, "|", `\|`)
			if !c.Decided() {
				why := strings.ReplaceAll(c.Why, "|", `\|`)
				if c.Flag != "" {
					why += " Flag `" + c.Flag + "`."
				}
				fmt.Fprintf(&open, "| %s | %s | %s | %s | %s |\n", c.ID, sentence, c.Section, strings.ReplaceAll(string(c.Status), "_", " "), why)
				continue
			}
			where := "beyond it"
			if c.Section != "" {
				where = "section " + c.Section
			}
			fmt.Fprintf(&decided, "| %s | %s | %s (%s) | %s | `go tool mage exp:%s` | %s | `%s/results.json` |\n",
				c.ID, sentence, optional(c.Report), where, bandText(c), spec.Name, minutes(spec), spec.Name)
		}
	}
	return "| claim | what is claimed | report | must lie in | command | minutes (smoke / full) | file in the run |\n|---|---|---|---|---|---|---|\n" +
		decided.String() +
		"\n### Not reproduced, or not claimed\n\nThe report's own limits (its section 10 and its seven boundary flags) and the values that belong to its machine.\n\n" +
		"| claim | statement | section | status | why |\n|---|---|---|---|---|\n" + open.String()
}

// updateReadme replaces what lies between the markers. A README without markers is left alone.
func updateReadme(name string) error {
	old, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	text, err := withClaims(old)
	if err != nil || bytes.Equal(text, old) {
		return err
	}
	fmt.Printf("%s: the table of claims was out of date and is written anew\n", filepath.Base(name))
	return groupcommit.WriteFile(vfs.OS, name, text, 0o644)
}

func withClaims(text []byte) ([]byte, error) {
	before, rest, begin := bytes.Cut(text, []byte(claimsBegin))
	_, after, end := bytes.Cut(rest, []byte(claimsEnd))
	switch {
	case !begin && !bytes.Contains(text, []byte(claimsEnd)):
		return text, nil
	case !begin || !end:
		return nil, fmt.Errorf("README.md: %s and %s must both be there, in this order", claimsBegin, claimsEnd)
	}
	return bytes.Join([][]byte{before, []byte(claimsBegin + "\n" + readmeTable() + claimsEnd), after}, nil), nil
}
