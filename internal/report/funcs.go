package report

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"shardlease/internal/experiment"
	"shardlease/internal/figures"
)

// builder carries one report while it is made.
type builder struct {
	Options
	run     *run
	words   words
	numbers map[string]int // figures and diagrams seen in the pass before, by id
	seen    map[string]int // in this pass

	forestSVG []byte // drawn once, for both passes
}

// execute fills the template, twice: the second pass knows the numbers of figures that are mentioned before they come.
func (b *builder) execute(source string) (string, error) {
	t, err := template.New(filepath.Base(b.Template)).Option("missingkey=error").Funcs(b.funcs()).Parse(source)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	for pass := range 2 {
		out.Reset()
		b.seen = map[string]int{}
		if err := t.Execute(&out, nil); err != nil {
			return "", err
		}
		if pass == 0 {
			b.numbers = b.seen
		}
	}
	return out.String(), nil
}

// funcs are the functions of the template.
func (b *builder) funcs() template.FuncMap {
	return template.FuncMap{
		"has": b.run.has, "drawn": b.drawn,
		"num": func(key string) (string, error) {
			return b.metric(key, func(m experiment.Metric) string { return figures.Digits(m.Value) })
		},
		"exact": func(key string) (string, error) {
			return b.metric(key, func(m experiment.Metric) string { return experiment.Number(m.Value) })
		},
		"pct": func(key string) (string, error) { return b.metric(key, percent) },
		"ci":  func(key string) (string, error) { return b.metric(key, withInterval) },
		"n": func(key string) (string, error) {
			return b.metric(key, func(m experiment.Metric) string { return strconv.Itoa(m.N) })
		},
		"level": func(key string) (string, error) {
			return b.metric(key, func(m experiment.Metric) string { return fmt.Sprintf("%.1f %%", 100*m.Confidence) })
		},
		"reported": b.reported, "verdict": b.verdict, "fact": func(path string) (string, error) { return b.raw("env.json", path) },
		"raw": b.raw, "seconds": b.seconds, "claims": b.claims, "boundaries": b.boundaries, "summary": b.summary, "overview": b.overview,
		"list": b.run.list, "cell": func(v any) string { return escape(fmt.Sprint(v)) }, "figure": b.figure, "diagram": b.diagram, "forest": b.forest, "ref": b.ref, "tests": b.tests,
		"systems": b.systems, "warnings": b.warnings, "maybe": b.maybe, "file": b.file, "name": name, "section": b.section, "others": b.others,
	}
}

func percent(m experiment.Metric) string {
	text := strconv.FormatFloat(m.Value, 'f', 3, 64)
	if m.Unit != "%" {
		text = strconv.FormatFloat(100*m.Value, 'f', 1, 64)
	}
	return text + " %"
}

func withInterval(m experiment.Metric) string {
	digits := figures.Digits
	if m.Confidence == 0 { // counts
		digits = experiment.Number
	}
	if m.Confidence == 0 && m.Low == m.High {
		return digits(m.Value)
	}
	return digits(m.Value) + " [" + digits(m.Low) + ", " + digits(m.High) + "]"
}

// link is text that leads to the file of the run it was computed from.
func (b *builder) link(text, file, title string) (string, error) {
	to := filepath.Join(b.run.dir, filepath.FromSlash(file))
	if _, err := os.Stat(to); err != nil {
		return "", fmt.Errorf("the evidence of %q is missing: %w", text, err)
	}
	from, err := filepath.Abs(filepath.Dir(b.Out))
	if err == nil {
		to, err = filepath.Abs(to)
	}
	if err == nil {
		to, err = filepath.Rel(from, to)
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(`<a class="ev" href="%s" title="%s">%s</a>`, escape(filepath.ToSlash(to)), escape(title), escape(text)), nil
}

// escape makes text safe in HTML and in a Markdown table cell.
func escape(s string) string {
	s = html.EscapeString(strings.Join(strings.Fields(s), " "))
	return strings.NewReplacer("|", "&#124;", "*", "&#42;", "_", "&#95;", "`", "&#96;").Replace(s)
}

func (b *builder) metric(key string, format func(experiment.Metric) string) (string, error) {
	m, file, err := b.run.metric(key)
	if err != nil {
		return "", err
	}
	title := fmt.Sprintf("%s: %v %s, n = %d, %s", key, m.Value, m.Unit, m.N, file)
	if m.Confidence > 0 {
		title = fmt.Sprintf("%s: %v [%v, %v] %s, n = %d, %.1f %% interval, %s", key, m.Value, m.Low, m.High, m.Unit, m.N, 100*m.Confidence, file)
	}
	return b.link(format(m), file, title)
}

// name is a long name of code, with places where a narrow column may break it.
func name(v any) string {
	text := camel.ReplaceAllString(escape(fmt.Sprint(v)), "$1<wbr>$2")
	return "<code>" + strings.ReplaceAll(text, "&#95;", "&#95;<wbr>") + "</code>"
}

// file is a link to a file of the run, for tables that are made of all of it.
func (b *builder) file(name string) (string, error) {
	if !filepath.IsLocal(name) {
		return "", fmt.Errorf("%q is not a file of the run", name)
	}
	return b.link(name, name, name)
}

// reported is the report's own value of a claim.
func (b *builder) reported(id string) (string, error) {
	c, err := b.run.claim(id)
	if err != nil {
		return "", err
	}
	if c.Report == nil {
		return "", fmt.Errorf("claim %s holds no value of the report", id)
	}
	return b.link(strconv.FormatFloat(*c.Report, 'f', -1, 64), "claims.json", "claim "+id+", report section "+c.Section)
}

func (b *builder) verdict(id string) (string, error) {
	v, err := b.run.verdict(id)
	if err != nil {
		return "", err
	}
	link, err := b.link(string(v.Verdict), "verdicts.json", v.Claim+": "+v.Reason)
	return fmt.Sprintf(`<span class="%s">%s</span>`, v.Verdict, link), err
}

func (b *builder) raw(file, path string) (string, error) {
	v, err := b.run.lookup(file, path)
	if err != nil {
		return "", err
	}
	var text string
	switch v := v.(type) {
	case string:
		text = v
	case float64:
		text = experiment.Number(v)
	case bool:
		text = strconv.FormatBool(v)
	default:
		return "", fmt.Errorf("%s: %q is no single value", file, path)
	}
	return b.link(text, file, file+": "+path)
}

// seconds is how long a step of the run took.
func (b *builder) seconds(step string) (string, error) {
	steps, err := b.run.list("steps.json")
	if err != nil {
		return "", err
	}
	total, found := 0.0, false
	for _, s := range steps {
		if s["name"] == step {
			took, _ := s["seconds"].(float64)
			total, found = total+took, true
		}
	}
	if !found {
		return "", fmt.Errorf("the run has no step %q", step)
	}
	return b.link(strconv.FormatFloat(total, 'f', 0, 64), "steps.json", "step "+step)
}

// list reads a JSON file that is a list of objects, for a template to range over. Their values are text of the run: write them with cell.
func (r *run) list(file string) ([]map[string]any, error) {
	if !filepath.IsLocal(file) {
		return nil, fmt.Errorf("%q is not a file of the run", file)
	}
	var out []map[string]any
	return out, experiment.ReadJSON(filepath.Join(r.dir, file), &out)
}

var blankLines = regexp.MustCompile(`\n\s*\n+`)

// figure puts a figure of the run into the text, numbered. The picture is the one that was sealed with the run.
func (b *builder) figure(id, caption string) (string, error) {
	return b.picture("measured", id, caption, filepath.Join(b.run.dir, "figures", id+".svg"))
}

// drawn reports whether the run has a figure, for those that need what not every host has, such as another file system.
func (b *builder) drawn(id string) bool {
	_, err := os.Stat(filepath.Join(b.run.dir, "figures", id+".svg"))
	return err == nil
}

// diagram does the same for a drawing of diagrams/, which belongs to the code and not to a run.
func (b *builder) diagram(id, caption string) (string, error) {
	return b.picture("diagram", id, caption, filepath.Join(b.Root, "diagrams", id+".svg"))
}

// show numbers a picture and puts it into the text.
func (b *builder) show(class, id, caption string, svg []byte) (string, error) {
	if b.seen[id] != 0 {
		return "", fmt.Errorf("figure %q is shown twice; mention it with ref", id)
	}
	b.seen[id] = len(b.seen) + 1
	// A blank line would end the HTML block for the Markdown parser.
	text := blankLines.ReplaceAllString(string(svg), "\n")
	if i := strings.Index(text, "<svg"); i > 0 { // an XML declaration has no place inside HTML
		text = text[i:]
	}
	return fmt.Sprintf("<figure class=\"%s\" id=\"fig-%s\">\n%s\n<figcaption><b>%s %d.</b> %s</figcaption>\n</figure>", class, id,
		strings.TrimSpace(text), b.words.figure, b.seen[id], html.EscapeString(caption)), nil
}

// ref mentions a figure by its number.
func (b *builder) ref(id string) (string, error) {
	n, ok := b.numbers[id]
	if b.numbers != nil && !ok {
		return "", fmt.Errorf("figure %q is mentioned and never shown", id)
	}
	return fmt.Sprintf(`<a href="#fig-%s">%s %d</a>`, id, b.words.figure, n), nil
}

// specs gives the experiments of a table: those named, or all.
func (b *builder) specs(names []string) ([]*experiment.Spec, error) {
	var out []*experiment.Spec
	for _, s := range b.run.specs {
		if len(names) == 0 || slices.Contains(names, s.Name) {
			out = append(out, s)
		}
	}
	for _, n := range names {
		if !b.run.has(n) {
			return nil, fmt.Errorf("the run has no experiment %q", n)
		}
	}
	return out, nil
}
