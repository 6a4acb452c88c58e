package figures

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"slices"
)

//go:embed pages/*.html
var pageFiles embed.FS

var pages = template.Must(template.New("").ParseFS(pageFiles, "pages/*.html"))

// HTML makes a figure's own page: the picture first, so that it is seen without any script; where the file scriptHref is there, the
// same option becomes an interactive chart. scriptHref is relative to the page; "" leaves the script out. The page asks no host
// for anything, and no text of the figure can become markup or code.
func HTML(f Figure, svg []byte, scriptHref string) ([]byte, error) {
	return execute("figure.html", map[string]any{
		"Figure": f, "SVG": template.HTML(svg), "Script": scriptHref,
		// The option's JSON has <, > and & escaped, so it can't end its element.
		"Option": template.JS(f.Option), "Reviver": template.JS(reviver), "Version": EChartsVersion,
	})
}

// Verdict is one row of an index page's table, in words.
type Verdict struct {
	Claim, Sentence, Verdict      string
	Value, Interval, Report, Band string
}

// Link leads to a raw file, relative to the page.
type Link struct{ Text, Href string }

// Entry is one figure of an index page. Page is the figure's own page, relative to the index; "" means none.
type Entry struct {
	Figure Figure
	SVG    []byte
	Page   string
}

// IndexPage is what an index shows: of one experiment, or of the whole run.
type IndexPage struct {
	Title, Intro string
	Smoke        bool
	Verdicts     []Verdict
	Entries      []Entry
	Links        []Link
}

// Index makes an index page with all pictures in it.
func Index(p IndexPage) ([]byte, error) {
	type entry struct {
		Figure Figure
		SVG    template.HTML
		Page   string
	}
	var entries []entry
	for _, e := range p.Entries {
		entries = append(entries, entry{e.Figure, template.HTML(e.SVG), e.Page})
	}
	return execute("index.html", map[string]any{"Page": p, "Entries": entries, "Tally": tally(p.Verdicts)})
}

// count is how many claims got a verdict.
type count struct {
	Verdict string
	N       int
}

// tally counts verdicts in the order of their first appearance.
func tally(verdicts []Verdict) []count {
	var out []count
	for _, v := range verdicts {
		i := slices.IndexFunc(out, func(c count) bool { return c.Verdict == v.Verdict })
		if i < 0 {
			i, out = len(out), append(out, count{Verdict: v.Verdict})
		}
		out[i].N++
	}
	return out
}

func execute(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b.Bytes(), nil
}
