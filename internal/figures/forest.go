package figures

import (
	"fmt"
	"math"

	"github.com/go-echarts/go-echarts/v2/charts"
	"github.com/go-echarts/go-echarts/v2/opts"
)

// ForestRow is one claim: what was measured, what the report says, and the band the verdict asks for.
type ForestRow struct {
	Label    string
	Value    float64
	Interval *Interval
	Report   *float64
	Band     *Interval // nil: no band
	Verdict  string    // PASS, FAIL or INCONCLUSIVE, written at the right; may be empty
}

// verdictColor marks verdicts by colour; the word is always written too.
var verdictColor = map[string]string{"PASS": Green, "FAIL": Vermillion, "INCONCLUSIVE": Orange}

// Forest draws one row per claim: value with interval as a dot with whiskers, the report's value as a diamond, the band as grey
// shading. All rows share the axis, so their values must be of one unit, or ratios.
func Forest(s Spec, value Axis, rows ...ForestRow) (Figure, error) {
	s = s.sized(760, 138+27*len(rows))
	if err := s.check(); err != nil {
		return Figure{}, err
	}
	c := &cells{figure: s.ID}
	r := checkRows(c, value, rows)
	if c.err != nil {
		return Figure{}, c.err
	}
	left, right := 24.0, 24.0
	for _, row := range rows {
		left = max(left, textWidth(row.Label, 12, false)+26)
		right = max(right, textWidth(forestText(row), 12, true)+22)
	}
	top := 74
	if s.Subtitle != "" {
		top = 90
	}
	p := newPlot(s)
	x := newScale(value, r.lo, r.hi, 6)
	g := p.addPanel(int(left), top, s.Width-int(left+right), s.Height-top-52, x, scale{min: -0.5, max: float64(len(rows)) - 0.5, step: 1})
	hideTicks(p.extra["yAxis"][0])
	p.extra["yAxis"][0]["inverse"] = true
	p.extra["xAxis"][0]["splitLine"] = map[string]any{"show": true, "lineStyle": map[string]any{"color": Faint}}
	drawForest(p, g, rows)
	return p.figure()
}

func checkRows(c *cells, value Axis, rows []ForestRow) valueRange {
	r := valueRange{math.Inf(1), math.Inf(-1)}
	if len(rows) == 0 {
		c.fail("no row")
	}
	for _, row := range rows {
		where := fmt.Sprintf("row %q", row.Label)
		c.finite(row.Value, "%s", where)
		c.interval(row.Interval, row.Value, "%s", where)
		values := []float64{row.Value}
		if row.Report != nil {
			c.finite(*row.Report, "%s, the report's value", where)
			values = append(values, *row.Report)
		}
		if row.Interval != nil {
			values = append(values, row.Interval.Low, row.Interval.High)
		}
		if row.Band != nil { // an open end is drawn to the edge of the axis
			for _, end := range []float64{row.Band.Low, row.Band.High} {
				if math.IsNaN(end) {
					c.fail("%s, band is NaN: %w", where, ErrNotFinite)
				}
				if !math.IsInf(end, 0) && !(value.Log && end <= 0) {
					values = append(values, end)
				}
			}
		}
		for _, v := range values {
			if value.Log && v <= 0 {
				c.fail("%s: %g can't be drawn on a log axis", where, v)
			}
			r.include(v)
		}
	}
	return r
}

func forestText(r ForestRow) string {
	text := Digits(r.Value)
	if r.Interval != nil {
		text += " [" + Digits(r.Interval.Low) + ", " + Digits(r.Interval.High) + "]"
	}
	if r.Verdict != "" {
		text += "  " + r.Verdict
	}
	return text
}

func drawForest(p *plot, g panel, rows []ForestRow) {
	var bands, whiskers, reports [][]float64
	var dots []opts.ScatterData
	var notes []note
	for i, r := range rows {
		at := float64(i)
		if r.Band != nil {
			lo, hi := math.Max(r.Band.Low, g.x.min), math.Min(r.Band.High, g.x.max)
			bands = append(bands, []float64{lo, at - 0.36, hi, at + 0.36})
		}
		if r.Interval != nil {
			whiskers = append(whiskers, []float64{r.Interval.Low, at, r.Interval.High, at, 5})
		}
		if r.Report != nil {
			reports = append(reports, []float64{*r.Report, at})
		}
		dots = append(dots, opts.ScatterData{Name: r.Label, Value: []float64{r.Value, at}})
		color, ok := verdictColor[r.Verdict]
		if !ok {
			color = Ink
		}
		notes = append(notes,
			note{x: g.x.min, y: at, text: r.Label, dx: -12, align: "right", size: 12},
			note{x: g.x.max, y: at, text: forestText(r), dx: 10, align: "left", size: 12, bold: r.Verdict != "", color: color})
	}
	along := map[string]any{"x": []int{0, 2}, "y": 1}
	if len(bands) > 0 {
		p.addCustom(g, "band of the claim", "#D9E4EC", functions.bar, bands, map[string]any{"z": 1, "encode": along})
		p.legend = append(p.legend, "band of the claim")
	}
	if len(whiskers) > 0 {
		p.addCustom(g, "interval", Blue, functions.whisker, whiskers, map[string]any{"z": 4, "encode": along})
	}
	p.add(g, charts.SingleSeries{
		Name: "measured here, with interval", Type: "scatter", Data: dots, Symbol: "circle", SymbolSize: 7,
		ItemStyle: &opts.ItemStyle{Color: Blue},
	}, map[string]any{"z": 8})
	p.legend = append(p.legend, "measured here, with interval")
	if len(reports) > 0 {
		p.addMarks(g, "the report's value", reports)
		p.legend = append(p.legend, "the report's value")
	}
	p.addNotes(g, notes)
}

// reportSeries is how values of the report look wherever they appear.
func reportSeries(name string, data []opts.ScatterData) charts.SingleSeries {
	return charts.SingleSeries{
		Name: name, Type: "scatter", Data: data, Symbol: "diamond", SymbolSize: 12,
		ItemStyle: &opts.ItemStyle{Color: "#FFFFFF", BorderColor: Ink, BorderWidth: 1.8},
	}
}
