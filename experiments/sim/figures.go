package sim

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	"shardlease/internal/campaign/sim"
	"shardlease/internal/experiment"
	"shardlease/internal/figures"
)

// Figures draws the repeated executions against their bound and the seeds that the planted bugs took.
func Figures(dir string) ([]figures.Figure, error) {
	results, err := load(dir)
	if err != nil {
		return nil, err
	}
	var plants []Plant
	if err := experiment.ReadJSON(filepath.Join(dir, plantedFile), &plants); err != nil {
		return nil, err
	}
	duplicates, err := duplicatesFigure(results)
	if err != nil {
		return nil, err
	}
	planted, err := plantedFigure(plants)
	return []figures.Figure{duplicates, planted}, err
}

func duplicatesFigure(results []sim.Result) (figures.Figure, error) {
	seen := map[figures.Point]bool{}
	campaigns := figures.Series{Name: "campaigns", Kind: figures.Marks}
	most := 1.0
	for _, r := range results {
		p := figures.Point{X: float64(r.Bound - r.Items), Y: float64(r.Executions - r.Items)}
		if r.Items == 0 || seen[p] {
			continue
		}
		seen[p] = true
		most = max(most, p.X)
		campaigns.Points = append(campaigns.Points, p)
	}
	slices.SortFunc(campaigns.Points, func(a, b figures.Point) int { return cmp.Or(cmp.Compare(a.X, b.X), cmp.Compare(a.Y, b.Y)) })
	bound := figures.Series{Name: "bound", Kind: figures.Line, Dashed: true, Points: []figures.Point{{X: 0, Y: 0}, {X: most, Y: most}}}
	return figures.XY(figures.Spec{
		ID: "sim-duplicates", Title: "Executions beyond the first, against their bound",
		Subtitle: fmt.Sprintf("%d simulated campaigns; equal ones are drawn once", len(results)),
		Caption:  "The bound is one execution for each worker and job that was cut off, for each lease at risk in a pause, clock jump or hang, and for each disk error. No campaign may lie above the line.",
	}, figures.SideBySide, figures.Panel{
		X: figures.Axis{Name: "executions beyond the first that the bound allows", Zero: true}, Y: figures.Axis{Name: "executions beyond the first", Zero: true},
		Series: []figures.Series{campaigns, bound},
	})
}

func plantedFigure(plants []Plant) (figures.Figure, error) {
	var rows []figures.ForestRow
	for _, p := range plants {
		row := figures.ForestRow{Label: p.Bug, Value: float64(p.Found), Verdict: "PASS", Band: &figures.Interval{Low: 1, High: float64(p.Seeds)}}
		if p.Found == 0 {
			row.Value, row.Verdict = float64(p.Seeds), "FAIL"
		}
		rows = append(rows, row)
	}
	return figures.Forest(figures.Spec{
		ID: "sim-planted", Title: "Seeds until a planted protocol bug was found",
		Subtitle: "the same campaigns on the same code with one deliberate mistake; grey: the seeds within which it has to be found",
		Caption:  "A simulator that finds nothing proves something only if it would have found mistakes. FAIL marks a bug that was not found.",
	}, figures.Axis{Name: "campaigns", Log: true}, rows...)
}
