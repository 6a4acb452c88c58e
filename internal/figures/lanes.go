package figures

import (
	"fmt"
	"math"

	"github.com/go-echarts/go-echarts/v2/charts"
	"github.com/go-echarts/go-echarts/v2/opts"
)

// Span is a stretch of a lane in one state.
type Span struct {
	From, To float64
	State    string
}

// Lane is the life of one thing: states as bars, events as ticks (renewals, takeovers).
type Lane struct {
	Label string
	Spans []Span
	Ticks []float64
}

// Lanes draws life-cycles above each other on one time axis. States get their colours in the order in which they are first met;
// ticks is what the ticks are called.
func Lanes(s Spec, time Axis, ticks string, lanes ...Lane) (Figure, error) {
	s = s.sized(760, 140+24*len(lanes))
	if err := s.check(); err != nil {
		return Figure{}, err
	}
	c := &cells{figure: s.ID}
	r := checkLanes(c, lanes)
	if c.err != nil {
		return Figure{}, c.err
	}
	left := 24.0
	for _, l := range lanes {
		left = max(left, textWidth(l.Label, 12, false)+26)
	}
	top := 84
	if s.Subtitle != "" {
		top = 98
	}
	p := newPlot(s)
	g := p.addPanel(int(left), top, s.Width-int(left)-24, s.Height-top-52,
		newScale(time, r.lo, r.hi, 8), scale{min: -0.5, max: float64(len(lanes)) - 0.5, step: 1})
	hideTicks(p.extra["yAxis"][0])
	p.extra["yAxis"][0]["inverse"] = true
	p.extra["xAxis"][0]["splitLine"] = map[string]any{"show": true, "lineStyle": map[string]any{"color": Faint}}
	drawLanes(p, g, ticks, lanes)
	return p.figure()
}

func checkLanes(c *cells, lanes []Lane) valueRange {
	r := valueRange{math.Inf(1), math.Inf(-1)}
	if len(lanes) == 0 {
		c.fail("no lane")
	}
	for _, l := range lanes {
		if len(l.Spans) == 0 && len(l.Ticks) == 0 {
			c.fail("lane %q is empty", l.Label)
		}
		for i, sp := range l.Spans {
			where := fmt.Sprintf("lane %q, span %d (%s)", l.Label, i+1, sp.State)
			if c.finite(sp.From, "%s, start", where) && c.finite(sp.To, "%s, end", where) && sp.To < sp.From {
				c.fail("%s ends at %g, before its start at %g", where, sp.To, sp.From)
			}
			r.include(sp.From)
			r.include(sp.To)
		}
		for i, t := range l.Ticks {
			c.finite(t, "lane %q, tick %d", l.Label, i+1)
			r.include(t)
		}
	}
	return r
}

func drawLanes(p *plot, g panel, ticks string, lanes []Lane) {
	var order []string
	spans := map[string][][]float64{}
	var dots []opts.ScatterData
	var notes []note
	for i, l := range lanes {
		at := float64(i)
		for _, sp := range l.Spans {
			if spans[sp.State] == nil {
				order = append(order, sp.State)
			}
			spans[sp.State] = append(spans[sp.State], []float64{sp.From, sp.To, at, 0.62})
		}
		for _, t := range l.Ticks {
			dots = append(dots, opts.ScatterData{Name: l.Label, Value: []float64{t, at}})
		}
		notes = append(notes, note{x: g.x.min, y: at, text: l.Label, dx: -12, align: "right", size: 12})
	}
	palette := []string{"#7FB6D6", Orange, Green, Grey, Purple, Vermillion}
	for i, state := range order {
		p.addCustom(g, state, palette[i%len(palette)], functions.span, spans[state],
			map[string]any{"z": 2, "encode": map[string]any{"x": []int{0, 1}, "y": 2}})
		p.legend = append(p.legend, state)
	}
	if len(dots) > 0 {
		p.add(g, charts.SingleSeries{
			Name: ticks, Type: "scatter", Data: dots, Symbol: "rect", SymbolSize: []int{2, 13}, ItemStyle: &opts.ItemStyle{Color: Ink},
		}, map[string]any{"z": 5})
		p.legend = append(p.legend, ticks)
	}
	p.addNotes(g, notes)
}
