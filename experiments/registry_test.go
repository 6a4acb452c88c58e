package experiments

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
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
