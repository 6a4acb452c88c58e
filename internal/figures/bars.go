package figures

import (
	"fmt"
	"math"

	"github.com/go-echarts/go-echarts/v2/opts"
)

// Bar is one value of a group: its interval if measured, and the report's own value to set beside it, if there is one.
type Bar struct {
	Name     string // the same names in each group
	Value    float64
	Interval *Interval
	Report   *float64
}

// Group is a named cluster of bars.
type Group struct {
	Name string
	Bars []Bar
}

// Bars draws groups of bars with direct value labels, whiskers over the bars, and the report's values as diamonds. On a log axis
// bars start at the axis' lower end, one step below the smallest value, so that a 1 is still seen.
func Bars(s Spec, value Axis, groups ...Group) (Figure, error) {
	s = s.sized(760, 420)
	if err := s.check(); err != nil {
		return Figure{}, err
	}
	c := &cells{figure: s.ID}
	lo, hi := checkGroups(c, value, groups)
	if c.err != nil {
		return Figure{}, c.err
	}
	const left, right, bottom = yLabelRoom + 14, 20, 34
	width := s.Width - left - right
	if crowded(width, groups) { // room for labels that run upwards
		if hi *= 1.16; value.Log {
			hi *= math.Pow(hi/lo, 0.14)
		}
	}
	y := barScale(value, lo, hi)
	top := 84
	if s.Subtitle != "" {
		top = 102
	}
	p := newPlot(s)
	g := p.addPanel(left, top, width, s.Height-top-bottom, scale{min: -0.5, max: float64(len(groups)) - 0.5, step: 1}, y)
	hideTicks(p.extra["xAxis"][0])
	drawBars(p, g, groups)
	return p.figure()
}

func checkGroups(c *cells, value Axis, groups []Group) (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	if len(groups) == 0 {
		c.fail("no group")
		return
	}
	for _, gr := range groups {
		if len(gr.Bars) == 0 || len(gr.Bars) != len(groups[0].Bars) {
			c.fail("group %q has %d bars, group %q has %d", gr.Name, len(gr.Bars), groups[0].Name, len(groups[0].Bars))
			return
		}
		for i, b := range gr.Bars {
			where := fmt.Sprintf("group %q, bar %q", gr.Name, b.Name)
			if want := groups[0].Bars[i].Name; b.Name != want {
				c.fail("%s: the first group has %q here", where, want)
			}
			c.finite(b.Value, "%s", where)
			c.interval(b.Interval, b.Value, "%s", where)
			values := []float64{b.Value}
			if b.Interval != nil {
				values = append(values, b.Interval.Low, b.Interval.High)
			}
			if b.Report != nil {
				c.finite(*b.Report, "%s, the report's value", where)
				values = append(values, *b.Report)
			}
			for _, v := range values {
				if value.Log && v <= 0 {
					c.fail("%s: %g can't be drawn on a log axis", where, v)
				}
				lo, hi = math.Min(lo, v), math.Max(hi, v)
			}
		}
	}
	return lo, hi
}

func barScale(value Axis, lo, hi float64) scale {
	if !value.Log {
		value.Zero = true // a bar's length is its value
		return newScale(value, lo, hi*1.06, 6)
	}
	y := newScale(value, lo, hi*1.2, 6)
	if y.min > lo*0.75 {
		y.min /= y.base
	}
	return y
}

// hideTicks silences a value axis that only carries positions.
func hideTicks(extra map[string]any) {
	extra["axisLabel"] = map[string]any{"show": false}
	extra["axisTick"] = map[string]any{"show": false}
	extra["splitLine"] = map[string]any{"show": false}
}

// widestBar is the most room a bar gets, in pixels.
const widestBar = 150

// barStep is the distance of two bars of a group, in groups.
func barStep(width int, groups []Group) float64 {
	room := float64(width) / float64(len(groups))                      // pixels of a group
	return math.Min(0.72/float64(len(groups[0].Bars)), widestBar/room) // a lone group would get bars like walls
}

// crowded reports whether labels side by side would lie over each other.
func crowded(width int, groups []Group) bool {
	const label = 34 // pixels of four digits and a point
	return len(groups[0].Bars) > 1 && barStep(width, groups)*float64(width)/float64(len(groups)) < label
}

func drawBars(p *plot, g panel, groups []Group) {
	n := len(groups[0].Bars)
	step, turned := barStep(g.width, groups), crowded(g.width, groups)
	base := math.Max(g.y.min, 0)
	if g.y.Log {
		base = g.y.min
	}
	var notes []note
	var reports [][]float64
	for i := range n {
		var bars, whiskers [][]float64
		name, color := groups[0].Bars[i].Name, colorCycle[i%len(colorCycle)]
		for k, gr := range groups {
			b := gr.Bars[i]
			at := float64(k) + (float64(i)-float64(n-1)/2)*step
			bars = append(bars, []float64{at - step*0.44, base, at + step*0.44, b.Value})
			topmost := b.Value
			if b.Interval != nil {
				whiskers = append(whiskers, []float64{at, b.Interval.Low, at, b.Interval.High, 6})
				topmost = b.Interval.High
			}
			if b.Report != nil {
				reports = append(reports, []float64{at, *b.Report})
			}
			// Above the whisker, but beside a diamond that would lie under the text.
			text := exact(b.Value)
			if b.Interval != nil {
				text = Digits(b.Value)
			}
			label := note{x: at, y: topmost, text: text, dy: -10, align: "center", size: 12, bold: true, color: color}
			if b.Report != nil {
				if d := (g.y.at(*b.Report) - g.y.at(topmost)) * float64(g.height); d > -9 && d < 28 {
					label.y, label.dy = math.Max(topmost, *b.Report), -15
				}
			}
			if turned {
				label.align, label.dy = "turned", label.dy+3
			}
			notes = append(notes, label)
		}
		p.addCustom(g, name, color, functions.bar, bars, map[string]any{"z": 3, "encode": map[string]any{"x": []int{0, 2}, "y": 3}})
		p.legend = append(p.legend, name)
		if len(whiskers) > 0 {
			p.addCustom(g, name+", interval", Ink, functions.whisker, whiskers,
				map[string]any{"z": 5, "encode": map[string]any{"x": 0, "y": []int{1, 3}}})
		}
	}
	if len(reports) > 0 {
		p.addMarks(g, "the report's value", reports)
		p.legend = append(p.legend, "the report's value")
	}
	for k, gr := range groups {
		notes = append(notes, note{x: float64(k), y: g.y.min, text: gr.Name, dy: 18, align: "center", size: 13})
	}
	p.addNotes(g, notes)
}

// addMarks draws hollow diamonds: values that are not ours.
func (p *plot) addMarks(g panel, name string, at [][]float64) {
	data := make([]opts.ScatterData, len(at))
	for i, xy := range at {
		data[i].Value = xy
	}
	p.add(g, reportSeries(name, data), map[string]any{"z": 6})
}
