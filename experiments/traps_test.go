package experiments

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"shardlease/internal/figures"
)

// The pipeline has eight known traps; whoever looks for the test of one finds it by its number.
func TestEachTrapIsCitedByATest(t *testing.T) {
	cited := regexp.MustCompile(`(?m)^// Traps? (\d)(?: and (\d))?\b`)
	seen := map[string]bool{}
	for _, top := range []string{".", filepath.Join("..", "internal")} {
		err := filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := os.ReadFile(name)
			for _, m := range cited.FindAllSubmatch(text, -1) {
				seen[string(m[1])], seen[string(m[2])] = true, true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []string{"1", "2", "3", "4", "5", "6", "7", "8"} {
		if !seen[n] {
			t.Errorf("no test cites trap %s", n)
		}
	}
}

// Trap 5 of the pipeline, second part: a forgotten or wrong argument is told with the target's own usage, and nothing starts.
func TestForgottenArgumentsExitWithTwoAndSayWhatIsMissing(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the magefile; run without -short")
	}
	for args, want := range map[string]string{
		"compare": "expected 2, got 0", "compare x": "expected 2, got 1", "exp:micro -nonsense": `invalid option "-nonsense"`,
		"verify -dir": `invalid option "-dir"`, "nothing": `Unknown target specified: "nothing"`, "reproduce -rounds=3": "give at least",
	} {
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"tool", "mage"}, strings.Fields(args)...)...)
		cmd.Dir = ".."
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != Usage || !strings.Contains(string(out), want) {
			t.Errorf("mage %s: %v, want exit status %d and %q\n%s", args, err, Usage, want, out)
		}
	}
}

// Trap 2 of the pipeline, against what is committed: each picture of the reference run is drawn again from its option.
func TestPicturesOfTheReferenceRunAreDrawnAgain(t *testing.T) {
	options, err := filepath.Glob(filepath.Join("..", "evidence", "reference-run", "figures", "*.option.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(options) == 0 {
		t.Skip("no reference run is committed yet")
	}
	renderer, err := figures.NewRenderer(figures.ScriptPath(".."))
	if err != nil {
		t.Skipf("needs the charting script: %v", err)
	}
	head := regexp.MustCompile(`^<svg width="(\d+)" height="(\d+)"[^>]*>\s*<title[^>]*>([^<]*)</title>`)
	for _, name := range options {
		base := strings.TrimSuffix(name, ".option.json")
		option, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(base + ".svg")
		if err != nil {
			t.Fatal(err)
		}
		m := head.FindStringSubmatch(string(want))
		if m == nil {
			t.Fatalf("%s.svg begins in another way", base)
		}
		f := figures.Figure{ID: filepath.Base(base), Title: html.UnescapeString(m[3]), Option: option}
		_, err = fmt.Sscan(m[1]+" "+m[2], &f.Width, &f.Height)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := renderer.SVG(f); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s drawn again differs (%v)", f.ID, err)
		}
	}
}
