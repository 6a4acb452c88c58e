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
	rows := [][]string{{"claim", "status", "report", "band", "last", "minutes", "sentence"}}
	for _, spec := range specs(registry()) {
		for _, c := range spec.Claims {
			verdict := last[spec.Name+"."+c.ID]
			if verdict == "" {
				verdict = "-"
			}
			rows = append(rows, []string{c.ID, string(c.Status), optional(c.Report), bandText(c), verdict, minutes(spec), c.Sentence})
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

// readmeTable is the claims as Markdown. It holds nothing of any run, so that running does not change the checkout.
func readmeTable() string {
	var b strings.Builder
	b.WriteString("| claim | what is claimed | report | must lie in | command | minutes (smoke / full) | file in the run |\n")
	b.WriteString("|---|---|---|---|---|---|---|\n")
	var open []string
	for _, spec := range specs(registry()) {
		for _, c := range spec.Claims {
			if !c.Decided() {
				open = append(open, fmt.Sprintf("- %s (%s, section %s): %s %s", c.ID, strings.ReplaceAll(string(c.Status), "_", " "), c.Section, c.Sentence, c.Why))
				continue
			}
			where := "beyond it"
			if c.Section != "" {
				where = "section " + c.Section
			}
			fmt.Fprintf(&b, "| %s | %s | %s (%s) | %s | `go tool mage exp:%s` | %s | `%s/results.json` |\n",
				c.ID, strings.ReplaceAll(c.Sentence, "|", `\|`), optional(c.Report), where, bandText(c), spec.Name, minutes(spec), spec.Name)
		}
	}
	if len(open) > 0 {
		b.WriteString("\nNot decided here:\n\n" + strings.Join(open, "\n") + "\n")
	}
	return b.String()
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
