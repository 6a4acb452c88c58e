// Package figures draws the pipeline's figures.
//
// A Figure is an ECharts option, built on go-echarts and kept as JSON: the single source of each of its forms. Renderer
// turns it into SVG in process, by running the pinned ECharts release in goja; HTML and Index put that picture on pages that
// need no network. The same option gives the same bytes on every machine.
//
// Three decisions shape the builders. Every axis range is computed here and not by ECharts, so that direct labels can be
// spread without overlap. Every number is checked: NaN and infinities are errors that name the cell. And all JavaScript
// that an option may carry is in functions.go; user-supplied text is never code, neither in the option nor in a page.
package figures

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
)

// Figure is one finished figure. Option is the ECharts option as JSON; functions in it have the form that go-echarts gives
// them ("__f__...__f__") and are known to this package.
type Figure struct {
	ID, Title, Caption string
	Width, Height      int // CSS pixels
	Option             []byte
}

// Spec is what the caller says about any figure besides its data. Zero sizes mean the builder's own.
type Spec struct {
	ID       string // lower-case letters, digits, '-' and '_'; names files and elements
	Title    string // what the figure shows, one line
	Subtitle string // how it was measured, one line; may be empty
	Caption  string // what to see in it; not drawn
	Width    int
	Height   int
}

// Interval is a confidence interval; both ends are finite.
type Interval struct{ Low, High float64 }

// Colours of Okabe and Ito, told apart by colour-blind readers and in grey print, on white.
const (
	Vermillion = "#D55E00"
	Blue       = "#0072B2"
	Green      = "#009E73"
	Purple     = "#A8588B" // the palette's reddish purple, darkened for text on white
	Orange     = "#C98500" // its orange, likewise
	Sky        = "#3A94C9" // its sky blue, likewise
	Ink        = "#1A1A1A"
	Grey       = "#6B6B6B"
	Faint      = "#E3E3E3"
)

// cycle is the order in which unnamed colours and symbols are given out: scalar first, batch second.
var (
	colorCycle  = []string{Vermillion, Blue, Green, Purple, Orange, Sky, Ink}
	symbolCycle = []string{"circle", "triangle", "diamond", "rect", "pin", "roundRect", "arrow"}
)

// FontFamily is the only family used in figures: the first font that has the glyph is taken.
const FontFamily = "DejaVu Sans, Noto Sans CJK SC, sans-serif"

// ErrNotFinite matches every error about a NaN or an infinity.
var ErrNotFinite = errors.New("not a finite number")

var idPattern = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)

func (s Spec) check() error {
	switch {
	case !idPattern.MatchString(s.ID):
		return fmt.Errorf("figure id %q: use lower-case letters, digits, '-' and '_'", s.ID)
	case s.Title == "":
		return fmt.Errorf("figure %q has no title", s.ID)
	case s.Width < 0 || s.Height < 0:
		return fmt.Errorf("figure %q: negative size %dx%d", s.ID, s.Width, s.Height)
	}
	return nil
}

// sized fills in the sizes left to the builder.
func (s Spec) sized(width, height int) Spec {
	if s.Width == 0 {
		s.Width = width
	}
	if s.Height == 0 {
		s.Height = height
	}
	return s
}

// cells checks numbers and remembers the first fault, so that builders read straight on.
type cells struct {
	figure string
	err    error
}

func (c *cells) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("figure %q: %w", c.figure, fmt.Errorf(format, args...))
	}
}

// finite reports whether v may be drawn; the cell names v in the error.
func (c *cells) finite(v float64, cell string, args ...any) bool {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		c.fail("%s is %v: %w", fmt.Sprintf(cell, args...), v, ErrNotFinite)
		return false
	}
	return true
}

// interval checks that the interval is finite and holds v. A nil interval is one that was not measured.
func (c *cells) interval(i *Interval, v float64, cell string, args ...any) {
	if i == nil {
		return
	}
	name := fmt.Sprintf(cell, args...)
	if c.finite(i.Low, "%s, low end", name) && c.finite(i.High, "%s, high end", name) && (i.Low > v || v > i.High) {
		c.fail("%s: interval [%g, %g] does not hold %g", name, i.Low, i.High, v)
	}
}

// Smoke returns the figure with "SMOKE" written across it: what a small-scale run drew must never be taken for a result.
func (f Figure) Smoke() (Figure, error) {
	var option map[string]json.RawMessage
	if err := json.Unmarshal(f.Option, &option); err != nil {
		return Figure{}, fmt.Errorf("figure %q: option: %w", f.ID, err)
	}
	mark, err := json.Marshal(map[string]any{
		"type": "text", "left": "center", "top": "middle", "rotation": 0.38, "z": 100, "silent": true,
		"style": map[string]any{
			"text": "SMOKE", "fill": "rgba(213,94,0,0.16)", "fontWeight": "bold", "fontFamily": FontFamily,
			"fontSize": min(f.Width/5, f.Height/3),
		},
	})
	if err != nil {
		return Figure{}, err
	}
	option["graphic"] = mark
	f.Option, err = json.Marshal(option)
	return f, err
}
