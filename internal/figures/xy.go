package figures

import (
	"fmt"
	"math"

	"github.com/go-echarts/go-echarts/v2/charts"
	"github.com/go-echarts/go-echarts/v2/opts"
)

// Point is a value at x, with the interval of its y if that was measured.
type Point struct {
	X, Y     float64
	Interval *Interval
}

// Kind says how a series is drawn.
type Kind int

const (
	Marks     Kind = iota // points only: raw measurements
	Line                  // a line only: a model
	LineMarks             // both: a measured dependency
	Step                  // a staircase: counts over time
)

// Series is one named row of points. It is labelled with its name at its last point; there is no legend to look up.
type Series struct {
	Name   string
	Color  string // "" means the next of the palette
	Kind   Kind
	Dashed bool
	Points []Point
	// Median draws the median of y as a thin line and puts it into the label, with Unit behind the number.
	Median bool
	Unit   string
	// Report says that these are the report's values and not ours: hollow diamonds, as in every figure.
	Report bool
}

// Panel is one pair of axes with its series.
type Panel struct {
	Title  string
	X, Y   Axis
	Series []Series
}

// Layout says how panels share the figure. Panels side by side have one y range, panels above each other one x range.
type Layout int

const (
	SideBySide Layout = iota
	Stacked
)

// XY draws panels of points and lines.
func XY(s Spec, layout Layout, panels ...Panel) (Figure, error) {
	if layout == Stacked {
		s = s.sized(760, 130+190*len(panels))
	} else {
		s = s.sized(760, 420)
	}
	if err := s.check(); err != nil {
		return Figure{}, err
	}
	c := &cells{figure: s.ID}
	ranges := checkPanels(c, panels)
	if c.err != nil {
		return Figure{}, c.err
	}
	p := newPlot(s)
	for i, rect := range place(s, layout, panels) {
		x, y := ranges[i][0], ranges[i][1]
		for _, other := range ranges {
			if layout == Stacked {
				x = x.union(other[0])
			} else {
				y = y.union(other[1])
			}
		}
		pn := panels[i]
		if layout == Stacked && i < len(panels)-1 {
			pn.X.Name = "" // the lowest panel names the shared axis
		}
		g := p.addPanel(rect[0], rect[1], rect[2], rect[3],
			newScale(pn.X, x.lo, x.hi, max(rect[2]/80, 2)).padded(), newScale(pn.Y, y.lo, y.hi, max(rect[3]/55, 2)))
		drawPanel(p, g, pn)
	}
	return p.figure()
}

type valueRange struct{ lo, hi float64 }

func (r valueRange) union(o valueRange) valueRange {
	return valueRange{math.Min(r.lo, o.lo), math.Max(r.hi, o.hi)}
}

func (r *valueRange) include(v float64) { *r = r.union(valueRange{v, v}) }

// checkPanels checks every cell and returns the x and y range of each panel.
func checkPanels(c *cells, panels []Panel) [][2]valueRange {
	if len(panels) == 0 {
		c.fail("no panel")
	}
	ranges := make([][2]valueRange, len(panels))
	for i, pn := range panels {
		empty := valueRange{math.Inf(1), math.Inf(-1)}
		x, y := empty, empty
		if len(pn.Series) == 0 {
			c.fail("panel %q has no series", pn.Title)
		}
		for _, s := range pn.Series {
			if len(s.Points) == 0 {
				c.fail("panel %q, series %q has no points", pn.Title, s.Name)
			}
			for k, pt := range s.Points {
				where := fmt.Sprintf("panel %q, series %q, point %d", pn.Title, s.Name, k+1)
				c.finite(pt.X, "%s, x", where)
				c.finite(pt.Y, "%s, y", where)
				c.interval(pt.Interval, pt.Y, "%s", where)
				lowest := pt.Y
				if pt.Interval != nil {
					lowest = pt.Interval.Low
					y.include(pt.Interval.Low)
					y.include(pt.Interval.High)
				}
				if pn.X.Log && pt.X <= 0 || pn.Y.Log && lowest <= 0 {
					c.fail("%s: (%g, %g) can't be drawn on a log axis", where, pt.X, lowest)
				}
				x.include(pt.X)
				y.include(pt.Y)
			}
		}
		ranges[i] = [2]valueRange{x, y}
	}
	return ranges
}

const labelSize = 12

// place returns left, top, width, height of each panel, with room at the right for the longest direct label.
func place(s Spec, layout Layout, panels []Panel) [][4]int {
	top := 68
	if s.Subtitle != "" {
		top = 88
	}
	room := func(pn Panel) int {
		widest := 0.0
		for _, sr := range pn.Series {
			widest = max(widest, textWidth(sr.label(), labelSize, true))
		}
		return int(widest) + 16
	}
	const left, bottom = yLabelRoom + 14, 52
	rects := make([][4]int, len(panels))
	if layout == Stacked {
		right := 0
		for _, pn := range panels {
			right = max(right, room(pn))
		}
		each := (s.Height - top - bottom + 56) / len(panels)
		for i := range panels {
			rects[i] = [4]int{left, top + 18 + i*each, s.Width - left - right, each - 74}
		}
		return rects
	}
	fixed := 0
	for _, pn := range panels {
		fixed += left + room(pn)
	}
	x, width := 0, (s.Width-fixed)/len(panels)
	for i, pn := range panels {
		rects[i] = [4]int{x + left, top + 18, width, s.Height - top - 18 - bottom}
		x += left + width + room(pn)
	}
	return rects
}

func (s Series) label() string {
	if s.Median {
		return fmt.Sprintf("%s\nmedian %s%s", s.Name, Digits(medianY(s.Points)), s.Unit)
	}
	return s.Name
}

func drawPanel(p *plot, g panel, pn Panel) {
	var labels []note
	var wanted []float64
	for i, s := range pn.Series {
		if s.Color == "" {
			s.Color = colorCycle[i%len(colorCycle)]
		}
		if s.Report {
			s.Color = Ink
		}
		drawSeries(p, g, s, symbolCycle[i%len(symbolCycle)])
		last := s.Points[len(s.Points)-1]
		if s.Median {
			last.Y = medianY(s.Points)
			drawMedian(p, g, s, last.Y)
		}
		labels = append(labels, note{x: g.x.max, y: last.Y, text: s.label(), dx: 8, align: "left", color: s.Color, bold: true, size: labelSize})
		wanted = append(wanted, float64(g.height)*(1-g.y.at(last.Y)))
	}
	gap := labelSize * 1.35
	for _, l := range labels {
		if textLines(l.text) > 1 {
			gap = labelSize * 2.6
		}
	}
	for i, y := range spread(wanted, gap, 0, float64(g.height)) {
		labels[i].dy = y - wanted[i]
	}
	if pn.Title != "" {
		labels = append(labels, note{x: g.x.min, y: g.y.max, text: pn.Title, dx: -yLabelRoom, dy: -34, align: "left", bold: true, size: 13})
	}
	p.addNotes(g, labels)
}

func drawSeries(p *plot, g panel, s Series, symbol string) {
	values := make([]opts.ScatterData, len(s.Points))
	var whiskers [][]float64
	for i, pt := range s.Points {
		values[i].Value = []float64{pt.X, pt.Y}
		if pt.Interval != nil {
			whiskers = append(whiskers, []float64{pt.X, pt.Interval.Low, pt.X, pt.Interval.High, 4})
		}
	}
	series := charts.SingleSeries{
		Name: s.Name, Type: "scatter", Data: values, Symbol: symbol, SymbolSize: markSize(len(s.Points)),
		ItemStyle: &opts.ItemStyle{Color: s.Color},
	}
	extra := map[string]any{"z": 4}
	if s.Report {
		series = reportSeries(s.Name, values)
	} else if s.Kind != Marks {
		line := opts.LineStyle{Color: s.Color, Width: 2}
		if s.Dashed {
			line.Type = "dashed"
		}
		series.Type, series.LineStyle, series.ShowSymbol = "line", &line, opts.Bool(s.Kind == LineMarks)
		if s.Kind == Step {
			series.Step = "end"
		}
		extra["z"] = 3
	}
	p.add(g, series, extra)
	if len(whiskers) > 0 {
		p.addCustom(g, s.Name+", interval", s.Color, functions.whisker, whiskers,
			map[string]any{"z": 5, "encode": map[string]any{"x": []int{0, 2}, "y": []int{1, 3}}})
	}
}

func drawMedian(p *plot, g panel, s Series, median float64) {
	p.add(g, charts.SingleSeries{
		Name: s.Name + ", median", Type: "line", ShowSymbol: opts.Bool(false),
		Data:      []opts.LineData{{Value: []float64{g.x.min, median}}, {Value: []float64{g.x.max, median}}},
		LineStyle: &opts.LineStyle{Color: s.Color, Width: 1, Type: "dashed"},
	}, map[string]any{"z": 2, "silent": true})
}

// markSize keeps a cloud of many points readable.
func markSize(points int) int {
	switch {
	case points > 1000:
		return 3
	case points > 100:
		return 5
	}
	return 8
}
