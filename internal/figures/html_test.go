package figures

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
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

// browse opens a page of the disk in Chromium, without any network where that can be arranged, and returns the page as it is
// after its scripts ran, what was logged to the console, and a screenshot.
func browse(t *testing.T, page string) (dom, console string, shot []byte) {
	t.Helper()
	chromium := tool(t, "chromium", "(apt-get install chromium)")
	argv := []string{chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
		"--enable-logging=stderr", "--virtual-time-budget=5000", "--window-size=900,700"}
	if os.Geteuid() == 0 {
		if unshare, err := exec.LookPath("unshare"); err == nil {
			argv = append([]string{unshare, "-n", "--"}, argv...)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	run := func(extra ...string) (string, string) {
		args := append(append(argv[1:len(argv):len(argv)], "--user-data-dir="+t.TempDir()), append(extra, "file://"+page)...)
		cmd := exec.CommandContext(ctx, argv[0], args...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &errs, 5*time.Second
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, errs.Bytes())
		}
		return out.String(), errs.String()
	}
	file := filepath.Join(t.TempDir(), "shot.png")
	dom, log := run("--dump-dom", "--screenshot="+file)
	for line := range strings.SplitSeq(log, "\n") {
		if strings.Contains(line, "CONSOLE") && !strings.Contains(line, "source: chrome://") { // not the browser's own pages
			console += line + "\n"
		}
	}
	shot, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return dom, console, shot
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
		dom, console, shot := browse(t, tc.page)
		if console != "" {
			t.Errorf("%s: console says %s", filepath.Base(tc.page), console)
		}
		if got := strings.Contains(dom, `<p id="mode">Interactive chart`); got != tc.live {
			t.Errorf("%s: interactive is %v", filepath.Base(tc.page), got)
		}
		if share := inked(t, shot); share < 0.02 {
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
	if _, console, _ := browse(t, page); !strings.Contains(console, "nothing is not defined") {
		t.Errorf("console is %q", console)
	}
}
