package figures

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"os"
	"path/filepath"
	"time"

	"github.com/dop251/goja"
)

const (
	// EChartsVersion is the pinned release; a test holds it against npm/package.json.
	EChartsVersion = "5.6.0"
	// EChartsSHA256 is the sum of dist/echarts.min.js of that release.
	EChartsSHA256 = "bf4a223524e40b77c304bec67e1222cf551f14880cf42c69dc046558e11c07b1"
)

var (
	// ErrNoScript is returned when the charting script is not installed.
	ErrNoScript = errors.New("the charting script is not installed; run: go tool mage setup")
	// ErrWrongScript is returned when the script is not the pinned release, byte for byte.
	ErrWrongScript = errors.New("the charting script is not the pinned release")
)

// ScriptPath returns where the charting script is looked for: ECHARTS_JS if set, else where the setup target puts it below the
// repository's root.
func ScriptPath(root string) string {
	if p := os.Getenv("ECHARTS_JS"); p != "" {
		return p
	}
	return filepath.Join(root, installed)
}

var installed = filepath.Join("internal", "figures", "npm", "node_modules", "echarts", "dist", "echarts.min.js")

// ScriptHref is where a page in dir looks for the charting script: for a folder of the repository, where the setup target puts it;
// elsewhere beside the page, for the reader to put it there. The script is never part of evidence.
func ScriptHref(root, dir string) string {
	root, rootErr := filepath.Abs(root)
	dir, dirErr := filepath.Abs(dir)
	up, err := filepath.Rel(dir, root)
	down, downErr := filepath.Rel(root, dir)
	if errors.Join(rootErr, dirErr, err, downErr) != nil || !filepath.IsLocal(down) {
		return "assets/echarts.min.js"
	}
	return filepath.ToSlash(filepath.Join(up, installed))
}

// Renderer draws figures with the pinned ECharts release. Its methods may be called concurrently.
type Renderer struct{ script, draw *goja.Program }

// shim is what ECharts expects of its surroundings and goja lacks. Nothing here may wait or repeat: a picture is drawn in one go.
const shim = `
var setTimeout = function () { return 0; }, setInterval = setTimeout, clearTimeout = function () {}, clearInterval = clearTimeout;
`

// reviver turns the marked strings of go-echarts back into functions. Only at the two keys where this package puts functions:
// a label that looks like one stays text.
const reviver = `function (key, value) {
	if ((key === 'renderItem' || key === 'formatter') && typeof value === 'string') {
		var code = /^__f__([^]*)__f__$/.exec(value);
		if (code) { return Function('return (' + code[1] + ')')(); }
	}
	return value;
}`

// draw is the program that makes a picture of an option; node runs the same text in the cross-check.
var draw = `(function (option, width, height) {
	echarts.setPlatformAPI(` + measureText() + `);
	var chart = echarts.init(null, null, {renderer: 'svg', ssr: true, width: width, height: height});
	chart.setOption(JSON.parse(option, ` + reviver + `));
	return chart.renderToSVGString();
})`

// NewRenderer loads and compiles the script, refusing any but the pinned one.
func NewRenderer(scriptPath string) (*Renderer, error) {
	text, err := os.ReadFile(scriptPath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", scriptPath, ErrNoScript)
	}
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != EChartsSHA256 {
		return nil, fmt.Errorf("%s: %w: want dist/echarts.min.js of echarts %s with SHA-256 %s, not %x",
			scriptPath, ErrWrongScript, EChartsVersion, EChartsSHA256, sum)
	}
	script, err := goja.Compile("echarts.min.js", shim+string(text), false)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", scriptPath, err)
	}
	return &Renderer{script: script, draw: goja.MustCompile("draw.js", draw, false)}, nil
}

// SVG draws a figure. The same figure gives the same bytes, also on other machines.
func (r *Renderer) SVG(f Figure) ([]byte, error) {
	raw, err := r.raw(f)
	if err != nil {
		return nil, err
	}
	return cleanSVG(f, raw)
}

// raw is the picture as ECharts wrote it. Each figure gets a fresh machine: ECharts numbers its elements from a counter that
// outlives a chart, so a second figure in one machine would differ from the same figure drawn first.
func (r *Renderer) raw(f Figure) (string, error) {
	vm := goja.New()
	vm.SetRandSource(rand.New(rand.NewSource(1)).Float64)
	vm.SetTimeSource(func() time.Time { return time.Unix(0, 0).UTC() })
	if _, err := vm.RunProgram(r.script); err != nil {
		return "", fmt.Errorf("figure %q: charting script: %w", f.ID, err)
	}
	v, err := vm.RunProgram(r.draw)
	if err != nil {
		return "", fmt.Errorf("figure %q: %w", f.ID, err)
	}
	call, ok := goja.AssertFunction(v)
	if !ok {
		return "", fmt.Errorf("figure %q: draw.js is not a function", f.ID)
	}
	svg, err := call(goja.Undefined(), vm.ToValue(string(f.Option)), vm.ToValue(f.Width), vm.ToValue(f.Height))
	if err != nil {
		return "", fmt.Errorf("figure %q: %w", f.ID, err)
	}
	return svg.String(), nil
}
