// Package report makes the published report of a sealed run: a Markdown template whose numbers, tables and figures all come from the
// run's files, then one HTML file that needs nothing else, then a PDF.
//
// Nothing is typed in twice. A template names what it wants ("micro.one.speedup") and gets it with a link to the file that holds
// the raw samples; a name that is not in the run is an error, and an error leaves the report that was there untouched.
//
// Functions of a template, besides those of text/template. KEY is experiment.metric:
//
//	num KEY, exact KEY, pct KEY, ci KEY   the value: three digits, all digits, percent, with its interval
//	n KEY, level KEY                      the number of samples, the confidence level really reached
//	reported CLAIM, verdict CLAIM         the report's own value, the verdict
//	fact PATH, raw FILE PATH, list FILE   a value of env.json, of any JSON file of the run; its elements, to range over
//	file NAME                             a link to a file of the run
//	cell VALUE                            any text of the run, safe in a table
//	name VALUE                            the same for a long name of code
//	claims [EXPERIMENT...], boundaries    tables of what is decided, and of what is not
//	summary, overview, forest CAPTION     all verdicts in a line, by experiment, in a figure
//	figure ID CAPTION, diagram ID CAPTION, ref ID
//	maybe ID CAPTION                      a figure that not every host can draw, or a line that says so
//	systems EXPERIMENT KIND [CASE...]     medians ("ms") or speed-ups ("gain") of all that was timed
//	warnings EXPERIMENT                   what was not measured on this host
//	section EXPERIMENT                    claims, warnings and figures that were not shown yet
//	others EXPERIMENT...                  the specs of those that are not named, to range over
//	tests INVARIANT                       the tests that cite it
//	has EXPERIMENT, drawn FIGURE          whether the run has it
//	seconds STEP
package report

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"

	"shardlease/internal/experiment"
	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
)

// Options say what a report is made of. All paths are absolute or relative to the working folder.
type Options struct {
	Root     string // of the repository: diagrams/ and the tests that are listed lie below it
	Run      string // folder of the sealed run
	Template string // report.md.tmpl, or report.zh.md.tmpl for Chinese
	Out      string // the HTML file; links to evidence are relative to it
	// Smoke allows a run of small scale. The report then says SMOKE on each page.
	Smoke bool
}

// ErrSmoke is returned for a smoke run that was not asked for.
var ErrSmoke = errors.New("this is a smoke run, which is no result: name it to get a report marked SMOKE, or make a full one with `go tool mage reproduce`")

//go:embed page.html
var pageFile string

var page = template.Must(template.New("page").Parse(pageFile))

// Build makes the HTML file. Out is replaced only when all of the new report is there.
func Build(o Options) error {
	data, err := HTML(o)
	if err != nil {
		return err
	}
	return groupcommit.WriteFile(vfs.OS, o.Out, data, 0o644)
}

// HTML makes the report without writing it. The same run and template give the same bytes.
func HTML(o Options) ([]byte, error) {
	run, err := open(o.Run)
	if err != nil {
		return nil, err
	}
	smoke := run.id.Scale == experiment.Smoke
	if smoke && !o.Smoke {
		return nil, fmt.Errorf("%s: %w", run.id.Name, ErrSmoke)
	}
	source, err := os.ReadFile(o.Template)
	if err != nil {
		return nil, err
	}
	b := &builder{Options: o, run: run, words: wordsOf(o.Template)}
	markdown, err := b.execute(string(source))
	if err != nil {
		return nil, err
	}
	body, contents, title, err := render(markdown)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Template, err)
	}
	body = strings.Replace(body, contentsMark, navigation(b.words.contents, contents), 1)
	var out bytes.Buffer
	err = page.Execute(&out, map[string]any{
		"Lang": b.words.lang, "Title": title,
		"Body": template.HTML(body), "Smoke": smoke, "SmokeText": b.words.smoke,
	})
	return out.Bytes(), err
}

// contentsMark stands in a template where the table of contents goes.
const contentsMark = "<!-- contents -->"

func navigation(title string, list []heading) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<nav><b>%s</b>\n", template.HTMLEscapeString(title))
	for _, h := range list {
		fmt.Fprintf(&b, "<a href=\"#%s\">%s</a>\n", template.HTMLEscapeString(h.ID), template.HTMLEscapeString(h.Text))
	}
	return b.String() + "</nav>"
}

// heading is one line of the table of contents.
type heading struct{ ID, Text string }

// render turns Markdown into HTML. HTML in the template is kept: the figures are such.
func render(markdown string) (body string, contents []heading, title string, err error) {
	md := goldmark.New(
		goldmark.WithExtensions(extension.Table, extension.Footnote),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()),
		goldmark.WithRendererOptions(html.WithUnsafe()),
	)
	source := []byte(markdown)
	doc := md.Parser().Parse(text.NewReader(source))
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		h, ok := n.(*ast.Heading)
		if !ok {
			continue
		}
		words := plain(h, source)
		switch id, _ := h.AttributeString("id"); {
		case h.Level == 1 && title == "":
			title = words
		case h.Level == 2:
			contents = append(contents, heading{fmt.Sprintf("%s", id), words})
		}
	}
	if title == "" {
		return "", nil, "", errors.New("there is no title: begin with a line \"# ...\"")
	}
	var out bytes.Buffer
	err = md.Renderer().Render(&out, source, doc)
	return out.String(), contents, title, err
}

// plain is the text of a node without its markup.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok {
			b.Write(t.Segment.Value(source))
		} else {
			b.WriteString(plain(c, source))
		}
	}
	return b.String()
}

// Language is "zh" for a template called *.zh.md.tmpl and "en" for any other.
func Language(template string) string {
	if strings.HasSuffix(template, ".zh.md.tmpl") {
		return "zh"
	}
	return "en"
}

// Output is the name of the HTML file that a template gets: report.md.tmpl gives report.html, beside it.
func Output(template string) string { return strings.TrimSuffix(template, ".md.tmpl") + ".html" }

var key = regexp.MustCompile(`\b(num|exact|pct|ci|n|level|raw|fact|reported|verdict|figure|diagram|seconds|claims|boundaries|tests|list|has|drawn|file|maybe|systems|warnings|section|others)\s+"([^"]+)"(?:\s+"([^"]+)")?`)

// Keys lists what a template asks of the run, sorted and without repeats: two languages of one report must have the same.
func Keys(template string) []string {
	seen := map[string]bool{}
	for _, m := range key.FindAllStringSubmatch(template, -1) {
		k := m[1] + " " + m[2]
		if m[1] == "raw" {
			k += " " + m[3]
		}
		seen[k] = true
	}
	return sorted(seen)
}

// Templates finds the templates in the paper folder, English first.
func Templates(paper string) ([]string, error) {
	list, err := filepath.Glob(filepath.Join(paper, "*.md.tmpl"))
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%s holds no *.md.tmpl", paper)
	}
	return list, err
}
