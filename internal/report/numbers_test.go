package report

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"shardlease/internal/experiment"
	"shardlease/internal/figures"
)

// Trap 3 of the pipeline, second part: whatever looks like a measured value is asked for and not typed in. Numbers of sections and the
// settings of a campaign are none.
func TestTemplatesHoldNoMeasuredValue(t *testing.T) {
	list, err := Templates("../../paper")
	if err != nil {
		t.Fatal(err)
	}
	action := regexp.MustCompile(`(?s)\{\{.*?\}\}`)
	section := regexp.MustCompile(`(?m)^#+ .*$|sections? [0-9.]+(?: and [0-9.]+)*|[0-9.]+(?: 节)?[ ，。）]*节|第 [0-9]+ 节|与 [0-9.]+ 节`)
	value := regexp.MustCompile(`[0-9]+\.[0-9]+`)
	settings := []string{"1.2"} // how long the campaign's target sleeps
	for _, name := range list {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		prose := section.ReplaceAllString(action.ReplaceAllString(string(text), ""), "")
		for _, v := range value.FindAllString(prose, -1) {
			if !slices.Contains(settings, v) {
				t.Errorf("%s: %s is typed in by hand; ask the run for it", filepath.Base(name), v)
			}
		}
	}
}

// Trap 3, third part: another value in results.json is another value in the page, wherever a metric is shown.
func TestEveryMetricOfThePageComesFromTheResults(t *testing.T) {
	if _, err := figures.NewRenderer(figures.ScriptPath("../..")); err != nil {
		t.Skipf("building the templates needs the charting script: %v", err)
	}
	list, err := Templates("../../paper")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(list[0])
	if err != nil {
		t.Fatal(err)
	}
	run := sealed(t, experiment.Full, string(text))
	page, err := HTML(Options{Root: "../..", Run: run, Template: list[0], Out: filepath.Join(t.TempDir(), "report.html")})
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile(`<a class="ev" href="[^"]*/raw\.csv" title="([a-z]+)\.([a-z0-9&#;]+(?:\.[a-z0-9&#;]+)*): ([0-9.]+)`).FindAllStringSubmatch(string(page), -1)
	if len(shown) < 100 {
		t.Fatalf("only %d metrics are shown", len(shown))
	}
	for _, m := range shown {
		metrics, err := experiment.ReadMetrics(filepath.Join(run, m[1]))
		if err != nil {
			t.Fatal(err)
		}
		metric, ok := metrics.Get(strings.ReplaceAll(m[2], "&#95;", "_"))
		if !ok || experiment.Number(metric.Value) != m[3] {
			t.Errorf("the page says %s.%s is %s, the results say %v", m[1], m[2], m[3], metric.Value)
		}
	}
}
