package experiments

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"shardlease/internal/experiment"
)

// A claim is cited by its id alone, in tables and figures.
func TestClaimsHaveDistinctIDsOverAllExperiments(t *testing.T) {
	seen := map[string]string{}
	for _, spec := range specs(registry()) {
		for _, c := range spec.Claims {
			if seen[c.ID] != "" {
				t.Errorf("%s is a claim of %s and of %s", c.ID, seen[c.ID], spec.Name)
			}
			seen[c.ID] = spec.Name
		}
	}
}

// What the report says it does not show must be said here as well: its section 10, item by item, and its seven flags.
func TestEveryBoundaryOfTheReportIsListed(t *testing.T) {
	var sections, flags []string
	for _, spec := range specs(registry()) {
		for _, c := range spec.Claims {
			if c.Status == experiment.NotClaimed {
				sections, flags = append(sections, c.Section), append(flags, c.Flag)
			}
		}
	}
	for item := 1; item <= 8; item++ {
		if section := fmt.Sprintf("10.%d", item); !slices.Contains(sections, section) {
			t.Errorf("no claim says that section %s is not claimed", section)
		}
	}
	for _, flag := range []string{"physical_power_cut_tested", "coverage_benchmark", "solver_throughput_benchmark", "real_program_performance_benchmark",
		"atomic_multi_file_visibility", "global_exactly_once", "upstream_qsym_python_tests_built"} {
		if n := len(slices.DeleteFunc(slices.Clone(flags), func(f string) bool { return f != flag })); n != 1 {
			t.Errorf("the flag %s is listed %d times", flag, n)
		}
	}
}

func TestTableOfClaimsInReadmeIsCurrent(t *testing.T) {
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Skip("there is no README.md yet:", err)
	}
	again, err := withClaims(text)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, again) {
		t.Error("the table differs from the experiments' files: run `go tool mage claims`")
	}
}

func TestTableOfClaimsNeedsBothMarkers(t *testing.T) {
	for text, ok := range map[string]bool{
		"no markers": true, claimsBegin + "\nold\n" + claimsEnd + "\nrest": true,
		claimsBegin: false, claimsEnd: false, claimsEnd + claimsBegin: false,
	} {
		got, err := withClaims([]byte(text))
		if (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
		if ok && text != "no markers" && (!bytes.Contains(got, []byte("| claim |")) || bytes.Contains(got, []byte("\nold\n")) || !bytes.HasSuffix(got, []byte("\nrest"))) {
			t.Errorf("%q became %q", text, got)
		}
	}
}
