package timing

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const sampleOutput = `{"system":"scalar","records":64,"active_shards":1,"round":1,"place":0,"passes":1,"pass_ns":40000000}
{"system":"scalar","records":64,"active_shards":1,"round":0,"place":1,"passes":1,"pass_ns":20000000}
{"system":"one-flush","records":64,"active_shards":1,"round":0,"place":0,"passes":9,"pass_ns":200000}
{"system":"one-flush","records":64,"active_shards":1,"round":1,"place":1,"passes":9,"pass_ns":400000}
{"skipped":"postgresql","reason":"not installed"}
{"chose":"strict-auto","what":"spare"}
`

func write(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.jsonl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestReadPairsSystemsByRound(t *testing.T) {
	r, err := Read(write(t, sampleOutput), "a.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Systems(); !slices.Equal(got, []string{"one-flush", "scalar"}) {
		t.Errorf("systems %v", got)
	}
	if got := r.Times("scalar"); !slices.Equal(got, []float64{20, 40}) {
		t.Errorf("times %v", got)
	}
	if r.Skipped["postgresql"] != "not installed" {
		t.Errorf("skipped %v", r.Skipped)
	}
	if r.Chosen["strict-auto"] != "spare" {
		t.Errorf("chosen %v", r.Chosen)
	}
}

func TestRatioIsPairedAndNamesWhatIsMissing(t *testing.T) {
	r, err := Read(write(t, strings.Repeat(sampleOutput, 4)), "a.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.Ratio("x", "scalar", "one-flush")
	if err != nil || math.Abs(m.Value-100) > 1e-9 {
		t.Errorf("ratio %+v, %v", m, err)
	}
	if _, err := r.Ratio("x", "scalar", "postgresql"); !errors.Is(err, ErrNotTimed) || !strings.Contains(err.Error(), "not installed") {
		t.Errorf("missing system: %v", err)
	}
}

func TestOutputThatIsNotTheBenchsIsRefusedWithItsLine(t *testing.T) {
	for _, text := range []string{"{}\n", `{"system":"a","pass_ns":0}`, `{"unknown":1}`, "half a li"} {
		if _, err := Read(write(t, text), "a.jsonl"); err == nil || !strings.Contains(err.Error(), "a.jsonl:1") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
