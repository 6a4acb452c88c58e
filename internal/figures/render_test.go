package figures

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"shardlease/internal/figures/browsertest"
)

var update = flag.Bool("update", false, "rewrite the golden sums")

// compiled is the one renderer of all tests: compiling the script takes longer than drawing a picture.
var compiled = sync.OnceValues(func() (*Renderer, error) { return NewRenderer(ScriptPath("../..")) })

func renderer(t *testing.T) *Renderer {
	t.Helper()
	r, err := compiled()
	if err != nil {
		t.Skipf("needs the charting script: %v", err)
	}
	return r
}

// pictures holds what was drawn of each option, so that tests which only look at a picture share it.
var pictures sync.Map

// tool skips the test unless the program is installed.
func tool(t *testing.T, name, why string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("needs %s %s: %v", name, why, err)
	}
	return path
}

func mustSVG(t *testing.T, r *Renderer, f Figure) string {
	t.Helper()
	svg, err := cleanSVG(f, mustRaw(t, r, f))
	if err != nil {
		t.Fatal(err)
	}
	return string(svg)
}

// mustRaw draws each figure once for all tests.
func mustRaw(t *testing.T, r *Renderer, f Figure) string {
	t.Helper()
	key := f.ID + string(f.Option)
	if drawn, ok := pictures.Load(key); ok {
		return drawn.(string)
	}
	svg, err := r.raw(f)
	if err != nil {
		t.Fatal(err)
	}
	pictures.Store(key, svg)
	return svg
}

// Trap 2 of the pipeline, first part: the same figure twice.
func TestSameFigureGivesTheSameBytesAlsoConcurrently(t *testing.T) {
	r := renderer(t)
	var wg sync.WaitGroup
	for i, f := range demos(t) {
		if again := demos(t)[i]; !bytes.Equal(f.Option, again.Option) {
			t.Errorf("%s: option differs from build to build", f.ID)
		}
		want := mustSVG(t, r, f)
		wg.Go(func() {
			if got, err := r.SVG(f); err != nil || string(got) != want {
				t.Errorf("%s: drawn again it differs (%v)", f.ID, err)
			}
		})
	}
	wg.Wait()
}

// Trap 2. A new release of a dependency, or another machine, must not change a picture unseen.
func TestPicturesAreThoseThatWereLookedAt(t *testing.T) {
	r := renderer(t)
	var sums strings.Builder
	for _, f := range demos(t) {
		fmt.Fprintf(&sums, "%x  %s.svg\n", sha256.Sum256([]byte(mustSVG(t, r, f))), f.ID)
	}
	golden := filepath.Join("testdata", "pictures.sha256")
	if *update {
		if err := os.WriteFile(golden, []byte(sums.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if sums.String() != string(want) {
		t.Errorf("pictures changed; look at them, then run with -update\n got %s\nwant %s", sums.String(), want)
	}
}

// Trap 2, second part: goja against node, which draws all figures in one process, each in a context of its own.
func TestNodeDrawsTheSameBytes(t *testing.T) {
	r := renderer(t)
	node := tool(t, "node", "for the cross-check of goja")
	dir := t.TempDir()
	script, err := filepath.Abs(ScriptPath("../.."))
	if err != nil {
		t.Fatal(err)
	}
	type order struct {
		Option        string
		Width, Height int
	}
	var orders []order
	for _, f := range demos(t) {
		orders = append(orders, order{string(f.Option), f.Width, f.Height})
	}
	list, err := json.Marshal(orders)
	if err != nil {
		t.Fatal(err)
	}
	program, input := filepath.Join(dir, "draw.js"), filepath.Join(dir, "figures.json")
	if err := errors.Join(os.WriteFile(program, []byte(draw), 0o644), os.WriteFile(input, list, 0o644)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "testdata/ssr.cjs", script, program, input)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var svgs []string
	if err := json.Unmarshal(out, &svgs); err != nil || len(svgs) != len(orders) {
		t.Fatalf("node drew %d of %d figures: %v", len(svgs), len(orders), err)
	}
	for i, f := range demos(t) {
		if want := mustRaw(t, r, f); svgs[i] != want {
			t.Errorf("%s: node and goja differ (%d and %d bytes)", f.ID, len(svgs[i]), len(want))
		}
	}
}

// Trap 2, third part: from a threshold on ECharts draws the first 400 points and forgets the rest, unless told not to. The threshold is
// lowered here, since drawing above the usual 3,000 takes long.
func TestEveryPointIsDrawn(t *testing.T) {
	r := renderer(t)
	const n = 500
	f, err := XY(Spec{ID: "many", Title: "Many points"}, SideBySide,
		Panel{X: Axis{Name: "x"}, Y: Axis{Name: "y"}, Series: []Series{{Name: "s", Points: RoundSeries("s", "", noisy(n, 10, 5, 1)).Points}}})
	if err != nil {
		t.Fatal(err)
	}
	drawn := func(change func(series map[string]any)) int {
		var option map[string]any
		if err := json.Unmarshal(f.Option, &option); err != nil {
			t.Fatal(err)
		}
		option["progressiveThreshold"] = 100
		for _, s := range option["series"].([]any) {
			change(s.(map[string]any))
		}
		g := f
		if g.Option, err = json.Marshal(option); err != nil {
			t.Fatal(err)
		}
		svg := mustSVG(t, r, g)
		// Each mark is a path filled with the series' colour; the label is a text of that colour.
		return strings.Count(svg, `fill="`+Vermillion+`"`) - strings.Count(svg, `">s</text>`)
	}
	if got := drawn(func(map[string]any) {}); got != n {
		t.Errorf("%d of %d points are drawn", got, n)
	}
	if got := drawn(func(s map[string]any) { delete(s, "progressive") }); got >= n {
		t.Errorf("without the setting all %d points are drawn too: this test proves nothing", got)
	}
}

// Trap 2, last part.
func TestWhiskersLieOverTheirBars(t *testing.T) {
	svg := mustSVG(t, renderer(t), demos(t)[1])
	bar := regexp.MustCompile(`<path d="M[0-9. ]+l[0-9. ]+l[-0-9. ]+l[-0-9. ]+Z" fill="(?:` + Vermillion + `|` + Blue + `)"`)
	bars := bar.FindAllStringIndex(svg, -1)
	if len(bars) != 4 {
		t.Fatalf("%d bars are drawn, not 4", len(bars))
	}
	lastBar := bars[3][0]
	whiskers := regexp.MustCompile(`<path d="[^"]*" fill="[^"]*" stroke="`+Ink+`" stroke-width="1.5"`).FindAllStringIndex(svg, -1)
	if lastBar < 0 || len(whiskers) != 4*3 {
		t.Fatalf("last bar at %d, %d whisker lines (want 12)", lastBar, len(whiskers))
	}
	if whiskers[0][0] < lastBar {
		t.Errorf("first whisker at %d, last bar at %d", whiskers[0][0], lastBar)
	}
}

func TestSVGNeedsNoStyleSheetAndKeepsItsIDsApart(t *testing.T) {
	r := renderer(t)
	for _, f := range demos(t) {
		svg := mustSVG(t, r, f)
		for _, bad := range []string{"<style", " style=", " class=", "dominant-baseline", "ecmeta", "\n\n", "undefined", "NaN"} {
			if strings.Contains(svg, bad) {
				t.Errorf("%s contains %q", f.ID, bad)
			}
		}
		for _, m := range elementID.FindAllStringSubmatch(svg, -1) {
			if !strings.HasPrefix(m[1], f.ID+"-") {
				t.Errorf("%s: id %q may collide with that of another picture", f.ID, m[1])
			}
		}
		if !strings.Contains(svg, "DejaVu Sans") {
			t.Errorf("%s: text has no font", f.ID)
		}
	}
}

func TestLibrsvgDrawsThePictures(t *testing.T) {
	rsvg := tool(t, "rsvg-convert", "(apt-get install librsvg2-bin)")
	r := renderer(t)
	for _, f := range demos(t) {
		cmd := exec.Command(rsvg)
		cmd.Stdin = strings.NewReader(mustSVG(t, r, f))
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", f.ID, err)
		}
		if share := browsertest.Inked(t, out); share < 0.01 || share > 0.6 {
			t.Errorf("%s: %.1f %% of the picture is inked", f.ID, 100*share)
		}
	}
}

// Trap 8 of the pipeline, in figures.
func TestSmokeIsWrittenAcrossTheFigure(t *testing.T) {
	f, err := demos(t)[0].Smoke()
	if err != nil {
		t.Fatal(err)
	}
	if svg := mustSVG(t, renderer(t), f); !strings.Contains(svg, ">SMOKE</text>") {
		t.Error("no watermark in the picture")
	}
}

func TestOnlyThePinnedScriptIsAccepted(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "echarts.min.js")
	if _, err := NewRenderer(other); err == nil || !strings.Contains(err.Error(), "go tool mage setup") {
		t.Errorf("a missing script gave %v", err)
	}
	if err := os.WriteFile(other, []byte("var echarts = {}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := NewRenderer(other); err == nil || !strings.Contains(err.Error(), EChartsSHA256) {
		t.Errorf("another script gave %v", err)
	}
}

func TestPackageFileAsksForThePinnedRelease(t *testing.T) {
	text, err := os.ReadFile("npm/package.json")
	if err != nil {
		t.Fatal(err)
	}
	var p struct{ Dependencies map[string]string }
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	if p.Dependencies["echarts"] != EChartsVersion {
		t.Errorf("package.json asks for %q, the renderer for %s", p.Dependencies["echarts"], EChartsVersion)
	}
}

func TestPagesLookForTheScriptWhereSetupPutsIt(t *testing.T) {
	for dir, want := range map[string]string{
		"/repo/evidence/runs/x.partial/figures": "../../../../internal/figures/npm/node_modules/echarts/dist/echarts.min.js",
		"/repo/paper/figures":                   "../../internal/figures/npm/node_modules/echarts/dist/echarts.min.js",
		"/elsewhere/x/figures":                  "assets/echarts.min.js",
	} {
		if got := ScriptHref("/repo", dir); got != want {
			t.Errorf("%s: %s", dir, got)
		}
	}
}
