package figures

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-echarts/go-echarts/v2/charts"
	"github.com/go-echarts/go-echarts/v2/opts"
	"github.com/go-echarts/go-echarts/v2/types"
)

// plot collects grids, axes and series, and becomes an option. It adds by its visitor what go-echarts has no field for.
type plot struct {
	spec   Spec
	grids  []opts.Grid
	xs, ys []opts.XAxis // go-echarts has two axis types that differ in nothing used here
	series []charts.SingleSeries
	extra  map[string][]map[string]any // component ("xAxis", "yAxis", "series") -> one map per element, merged into it
	legend []string
}

func newPlot(s Spec) *plot { return &plot{spec: s, extra: map[string][]map[string]any{}} }

// panel is a grid with its axes, in pixels and values.
type panel struct {
	index                    int
	left, top, width, height int
	x, y                     scale
}

// addPanel adds a grid. Where an axis shows no ticks of its own (a category axis), the caller hides them with the extras.
func (p *plot) addPanel(left, top, width, height int, x, y scale) panel {
	g := panel{index: len(p.grids), left: left, top: top, width: width, height: height, x: x, y: y}
	px := func(n int) string { return fmt.Sprint(n) }
	p.grids = append(p.grids, opts.Grid{Left: px(left), Top: px(top), Width: px(width), Height: px(height)})
	p.addAxis("xAxis", &p.xs, g, x, map[string]any{
		"nameLocation": "middle", "nameGap": 30,
		"axisLine": map[string]any{"show": true, "onZero": false, "lineStyle": map[string]any{"color": Ink}},
	})
	p.addAxis("yAxis", &p.ys, g, y, map[string]any{
		// The name lies above the axis, from the left edge of the tick labels: nobody has to tilt the head.
		"nameLocation": "end", "nameGap": 12,
		"nameTextStyle": map[string]any{"align": "left", "color": Ink, "fontSize": 12, "padding": []int{0, 0, 0, -yLabelRoom}},
		"axisLine":      map[string]any{"show": false, "onZero": false},
		"axisTick":      map[string]any{"show": false},
	})
	return g
}

// yLabelRoom is the room for tick labels left of a grid.
const yLabelRoom = 48

func (p *plot) addAxis(component string, list *[]opts.XAxis, g panel, s scale, more map[string]any) {
	kind := "value"
	if s.Log {
		kind = "log"
	}
	*list = append(*list, opts.XAxis{
		Type: kind, Name: s.Name, GridIndex: g.index, Min: s.min, Max: s.max,
		AxisLabel: &opts.AxisLabel{Color: Ink, FontSize: 12, Formatter: functions.tick},
		SplitLine: &opts.SplitLine{Show: opts.Bool(component == "yAxis"), LineStyle: &opts.LineStyle{Color: Faint}},
	})
	extra := map[string]any{"nameTextStyle": map[string]any{"color": Ink, "fontSize": 12}, "minorTick": map[string]any{"show": false}}
	if s.Log {
		extra["logBase"] = s.base
	} else {
		extra["interval"] = s.step
	}
	if len(s.labels) > 0 {
		extra["axisLabel"] = map[string]any{"customValues": s.labels}
		extra["axisTick"] = map[string]any{"customValues": s.labels}
	}
	for key, value := range more {
		if old, ok := extra[key].(map[string]any); ok {
			maps.Copy(old, value.(map[string]any))
			continue
		}
		extra[key] = value
	}
	p.extra[component] = append(p.extra[component], extra)
}

// add adds a series to a panel.
func (p *plot) add(g panel, s charts.SingleSeries, extra map[string]any) {
	s.XAxisIndex, s.YAxisIndex = g.index, g.index
	s.Id = fmt.Sprintf("s%d", len(p.series))
	s.Animation = opts.Bool(false)
	// Without this a series of more than a few thousand points is drawn in steps, and a static picture gets only the first.
	all := map[string]any{"progressive": 0}
	maps.Copy(all, extra)
	p.series = append(p.series, s)
	p.extra["series"] = append(p.extra["series"], all)
}

// addCustom adds a series drawn by one of our functions; each row of data is what the function's comment lists.
func (p *plot) addCustom(g panel, name, color string, draw types.FuncStr, data [][]float64, extra map[string]any) {
	items := make([]opts.CustomData, len(data))
	for i, row := range data {
		items[i].Value = row
	}
	p.add(g, charts.SingleSeries{
		Type: "custom", Name: name, RenderItem: draw, Data: items, ItemStyle: &opts.ItemStyle{Color: color},
	}, extra)
}

// note is text beside a point of a panel.
type note struct {
	x, y   float64
	text   string
	dx, dy float64 // pixels
	align  string  // "left", "center", "right", "turned"
	size   float64
	bold   bool
	color  string
}

// addNotes adds texts, one series a colour. They are part of the picture and not of the data: silent, no tooltip.
func (p *plot) addNotes(g panel, notes []note) {
	byColor := map[string][]opts.CustomData{}
	var order []string
	for _, n := range notes {
		if n.size == 0 {
			n.size = 12
		}
		if n.color == "" {
			n.color = Ink
		}
		if byColor[n.color] == nil {
			order = append(order, n.color)
		}
		bold := 0
		if n.bold {
			bold = 1
		}
		byColor[n.color] = append(byColor[n.color], opts.CustomData{Value: []any{n.x, n.y, n.text, n.dx, n.dy, n.align, n.size, bold}})
	}
	ordinal := func(name string) any { return map[string]any{"name": name, "type": "ordinal"} }
	for _, color := range order {
		p.add(g, charts.SingleSeries{
			Type: "custom", RenderItem: functions.text, Data: byColor[color], ItemStyle: &opts.ItemStyle{Color: color},
		}, map[string]any{
			"silent": true, "z": 10, "clip": false, "encode": map[string]any{"x": 0, "y": 1, "tooltip": []int{}},
			"dimensions": []any{"x", "y", ordinal("text"), "dx", "dy", ordinal("align"), "size", "bold"},
		})
	}
}

// figure finishes the plot.
func (p *plot) figure() (Figure, error) {
	c := charts.NewCustom()
	c.SetGlobalOptions(
		charts.WithInitializationOpts(opts.Initialization{
			ChartID: p.spec.ID, PageTitle: p.spec.Title, Theme: "white", BackgroundColor: "#FFFFFF",
			Width: fmt.Sprintf("%dpx", p.spec.Width), Height: fmt.Sprintf("%dpx", p.spec.Height),
		}),
		charts.WithTitleOpts(opts.Title{
			Title: p.spec.Title, Subtitle: p.spec.Subtitle, Left: "12", Top: "8",
			TitleStyle:    &opts.TextStyle{Color: Ink, FontSize: 15, FontWeight: "bold", FontFamily: FontFamily},
			SubtitleStyle: &opts.TextStyle{Color: Grey, FontSize: 12, FontFamily: FontFamily},
		}),
		charts.WithAnimation(false),
		charts.WithTooltipOpts(opts.Tooltip{Trigger: "item", Formatter: functions.tip}),
		charts.WithGridOpts(p.grids...),
		charts.WithColorsOpts(colorCycle),
	)
	c.XAxisList = p.xs
	c.SetXAxis(p.xs[0].Data) // Validate overwrites the first axis' data with this
	c.MultiSeries = p.series
	c.Accept(visitor{plot: p})
	c.Validate()
	option, err := json.Marshal(c.JSON())
	if err != nil {
		return Figure{}, fmt.Errorf("figure %q: %w", p.spec.ID, err)
	}
	return Figure{
		ID: p.spec.ID, Title: p.spec.Title, Caption: p.spec.Caption, Width: p.spec.Width, Height: p.spec.Height, Option: option,
	}, nil
}

// visitor adds to the option what go-echarts can't say, and takes out what it says unasked.
type visitor struct {
	charts.BaseConfigurationVisitor
	plot *plot
}

func (v visitor) Visit(option map[string]any) {
	p := v.plot
	option["yAxis"] = p.ys
	for component, extras := range p.extra {
		option[component] = merged(option[component], extras)
	}
	option["textStyle"] = map[string]any{"fontFamily": FontFamily, "color": Ink}
	option["tooltip"] = merged([]any{option["tooltip"]}, []map[string]any{{"renderMode": "richText", "confine": true}})[0]
	option["aria"] = map[string]any{"enabled": false} // its text would repeat all data; the page has the title
	delete(option, "toolbox")
	delete(option, "legend")
	if len(p.legend) > 0 {
		option["legend"] = map[string]any{
			"data": p.legend, "top": 52, "right": 16, "itemWidth": 16, "itemHeight": 11, "selectedMode": false,
			"textStyle": map[string]any{"color": Ink, "fontSize": 12, "fontFamily": FontFamily},
		}
	}
}

// merged turns each element of list into a map with its extra keys. The elements are go-echarts structs of strings, numbers
// and lists: encoding them can't fail.
func merged(list any, extras []map[string]any) []map[string]any {
	encoded, err := json.Marshal(list)
	if err != nil {
		panic(fmt.Sprintf("figures: go-echarts element does not encode: %v", err))
	}
	var all []map[string]any
	decoder := json.NewDecoder(strings.NewReader(string(encoded)))
	decoder.UseNumber()
	if err := decoder.Decode(&all); err != nil {
		panic(fmt.Sprintf("figures: go-echarts element does not decode: %v", err))
	}
	for i, extra := range extras {
		for key, value := range extra {
			if old, ok := all[i][key].(map[string]any); ok {
				if add, ok := value.(map[string]any); ok {
					maps.Copy(old, add)
					continue
				}
			}
			all[i][key] = value
		}
	}
	return all
}

// spread moves wanted positions apart so that neighbours are at least gap apart and all stay within lo..hi if they fit.
// It returns the new positions in the order given.
func spread(wanted []float64, gap, lo, hi float64) []float64 {
	order := make([]int, len(wanted))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case wanted[a] < wanted[b]:
			return -1
		case wanted[a] > wanted[b]:
			return 1
		}
		return 0
	})
	placed := slices.Clone(wanted)
	for k, i := range order {
		placed[i] = max(placed[i], lo)
		if k > 0 {
			placed[i] = max(placed[i], placed[order[k-1]]+gap)
		}
	}
	limit := hi
	for k := len(order) - 1; k >= 0; k-- {
		i := order[k]
		placed[i] = min(placed[i], limit)
		limit = placed[i] - gap
	}
	return placed
}
