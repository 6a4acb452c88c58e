package figures

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"shardlease/internal/figures/browsertest"
)

// nasty is a name that breaks careless pages: markup, quotes, a backslash, a line end, and what go-echarts takes for code.
const nasty = "a&b'c\"d\\e\nf</script><script>alert(1)</script>"

func nastyFigure(t *testing.T) Figure {
	t.Helper()
	f, err := Bars(Spec{ID: "nasty", Title: nasty, Subtitle: nasty, Caption: nasty}, Axis{Name: nasty},
		Group{nasty, []Bar{{Name: nasty, Value: 3}, {Name: "__f__(function(){throw 1})__f__", Value: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestNamesStayText(t *testing.T) {
	r, f := renderer(t), nastyFigure(t)
	svg := mustSVG(t, r, f)
	if strings.Contains(svg, "<script") {
		t.Error("a name became an element of the picture")
	}
	if !strings.Contains(svg, "__f__(function(){throw 1})__f__") {
		t.Error("a name that looks like a function is not drawn as text")
	}
	page, err := HTML(f, []byte(svg), "echarts.min.js")
	if err != nil {
		t.Fatal(err)
	}
	index, err := Index(IndexPage{Title: nasty, Intro: nasty, Entries: []Entry{{f, []byte(svg), "nasty.html"}},
		Verdicts: []Verdict{{Claim: nasty, Sentence: nasty}}, Links: []Link{{nasty, "javascript:alert(1)"}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string][]byte{"page": page, "index": index} {
		if bytes.Contains(p, []byte("<script>alert")) || bytes.Contains(p, []byte(`href="javascript:`)) {
			t.Errorf("%s: a name became code", name)
		}
	}
}

var address = regexp.MustCompile(`(?i)(?:https?:)?//[a-z0-9]`)

// Trap 1 of the pipeline, in figures.
func TestPagesNameNoHost(t *testing.T) {
	r := renderer(t)
	for _, f := range demos(t) {
		svg := []byte(mustSVG(t, r, f))
		page, err := HTML(f, svg, "../assets/echarts.min.js")
		if err != nil {
			t.Fatal(err)
		}
		index, err := Index(IndexPage{Title: "t", Entries: []Entry{{f, svg, "x.html"}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range [][]byte{page, index} {
			p = bytes.ReplaceAll(p, []byte("http://www.w3.org/2000/svg"), nil) // the name space, which nobody fetches
			p = bytes.ReplaceAll(p, []byte("http://www.w3.org/1999/xlink"), nil)
			if m := address.Find(p); m != nil {
				t.Errorf("%s names a host: %s", f.ID, m)
			}
		}
	}
}

func TestBrowserShowsPagesFromDiskWithoutNetwork(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser three times; run without -short")
	}
	r, dir := renderer(t), t.TempDir()
	write := func(name string, data []byte, err error) string {
		t.Helper()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	f := nastyFigure(t)
	svg := []byte(mustSVG(t, r, f))
	script, err := os.ReadFile(ScriptPath("../.."))
	write("echarts.min.js", script, err)
	page, err := HTML(f, svg, "echarts.min.js")
	live := write("live.html", page, err)
	page, err = HTML(f, svg, "not-there.min.js")
	still := write("still.html", page, err)
	page, err = Index(IndexPage{Title: "Run", Entries: []Entry{{f, svg, "live.html"}}})
	index := write("index.html", page, err)

	for _, tc := range []struct {
		page string
		live bool
	}{{live, true}, {still, false}, {index, false}} {
		dom, console, shot := browsertest.Open(t, tc.page)
		if console != "" {
			t.Errorf("%s: console says %s", filepath.Base(tc.page), console)
		}
		if got := strings.Contains(dom, `<p id="mode">Interactive chart`); got != tc.live {
			t.Errorf("%s: interactive is %v", filepath.Base(tc.page), got)
		}
		if share := browsertest.Inked(t, shot); share < 0.02 {
			t.Errorf("%s: only %.2f %% of the page is inked: no picture", filepath.Base(tc.page), 100*share)
		}
	}
}

// The browser test must be able to fail: a page with a script error is noticed.
func TestBrowserTestNoticesAnError(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser; run without -short")
	}
	page := filepath.Join(t.TempDir(), "bad.html")
	if err := os.WriteFile(page, []byte("<p>x</p><script src=missing.js></script><script>nothing()</script>"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, console, _ := browsertest.Open(t, page); !strings.Contains(console, "nothing is not defined") {
		t.Errorf("console is %q", console)
	}
}
