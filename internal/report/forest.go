package report

import (
	"fmt"
	"math"
	"os"

	"shardlease/internal/experiment"
	"shardlease/internal/figures"
)

// forestID names the figure of all claims.
const forestID = "claims"

// forest draws all decided claims that the report gives a value for, as ratios to it, and puts the picture into the text. It is the only
// figure that belongs to no experiment, and so the only one that is drawn here.
func (b *builder) forest(caption string) (string, error) {
	f, err := Forest(b.run.verdicts)
	if err != nil {
		return "", err
	}
	if b.run.id.Scale == experiment.Smoke {
		if f, err = f.Smoke(); err != nil {
			return "", err
		}
	}
	if b.forestSVG == nil {
		renderer, err := figures.NewRenderer(figures.ScriptPath(b.Root))
		if err != nil {
			return "", err
		}
		if b.forestSVG, err = renderer.SVG(f); err != nil {
			return "", err
		}
	}
	return b.show("measured", forestID, caption, b.forestSVG)
}

// Forest is the figure of verdicts with a value of the report: ours divided by the report's, with interval and band. Values that are zero
// on either side have no ratio and are left to the table.
func Forest(verdicts []experiment.Verdict) (figures.Figure, error) {
	var rows []figures.ForestRow
	one := 1.0
	for _, v := range verdicts {
		if v.Value == nil || v.Report == nil || *v.Value <= 0 || *v.Report <= 0 || v.Low == nil || *v.Low <= 0 {
			continue
		}
		row := figures.ForestRow{
			Label: short(v.Claim + ": " + v.Sentence), Value: *v.Value / *v.Report, Report: &one, Verdict: string(v.Verdict),
			Band: &figures.Interval{Low: math.Inf(-1), High: math.Inf(1)},
		}
		if *v.Low < *v.High {
			row.Interval = &figures.Interval{Low: *v.Low / *v.Report, High: *v.High / *v.Report}
		}
		if v.Band.Low != nil {
			row.Band.Low = *v.Band.Low / *v.Report
		}
		if v.Band.High != nil {
			row.Band.High = *v.Band.High / *v.Report
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return figures.Figure{}, fmt.Errorf("no verdict has both a value and one of the report")
	}
	return figures.Forest(figures.Spec{
		ID: forestID, Title: "What was measured here, divided by the report's value", Width: 860,
		Subtitle: "dot: ours, with its interval where it is an estimate; diamond: the report; shaded: what the claim allows",
	}, figures.Axis{Name: "ratio to the report's value", Log: true}, rows...)
}

const longestLabel = 46

// short cuts a sentence at a word.
func short(s string) string {
	if r := []rune(s); len(r) > longestLabel {
		cut := longestLabel
		for cut > longestLabel/2 && r[cut] != ' ' {
			cut--
		}
		return string(r[:cut]) + " …"
	}
	return s
}

// picture shows the SVG in a file.
func (b *builder) picture(class, id, caption, file string) (string, error) {
	svg, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("figure %q: %w", id, err)
	}
	return b.show(class, id, caption, svg)
}
