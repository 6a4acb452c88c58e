package setup

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEveryPackageHasAReasonAndIsNamedOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range packages {
		if p.Why == "" || seen[p.Name] {
			t.Errorf("%s: reason %q, seen before %v", p.Name, p.Why, seen[p.Name])
		}
		seen[p.Name] = true
	}
}

func TestMissingPackageIsFoundMissing(t *testing.T) {
	fakeTool(t, "dpkg-query", "echo installed one\necho not-installed two\necho 'no packages found' >&2\nexit 1")
	got, err := Missing(t.Context(), []string{"one", "two", "three"})
	if err != nil || !slices.Equal(got, []string{"two", "three"}) {
		t.Errorf("missing %v, %v", got, err)
	}
}

func TestSystemWithoutDpkgIsToldWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Missing(t.Context(), []string{"openmpi-bin"})
	if err == nil || !strings.Contains(err.Error(), "openmpi-bin") {
		t.Errorf("error %v", err)
	}
}

func TestMissingToolchainIsNamedWithItsPackage(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := Toolchain(); err == nil || !strings.Contains(err.Error(), "go is not installed") {
		t.Errorf("error %v", err)
	}
}

// The second run must not call the package manager at all.
func TestNothingMissingInstallsNothing(t *testing.T) {
	fakeTool(t, "dpkg-query", "echo installed one")
	fakeTool(t, "apt-get", "exit 1")
	var out bytes.Buffer
	if err := debian(t.Context(), []string{"one"}, &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "one") {
		t.Errorf("said %q", out.String())
	}
}

func TestEachFailedCheckSaysHowToFixIt(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("ECHARTS_JS", filepath.Join(t.TempDir(), "none.js"))
	checks := Doctor(t.Context(), t.TempDir(), filepath.Join(t.TempDir(), "not", "there", "yet"))
	for _, c := range checks {
		if c.Level != OK && (c.Fix == "" || c.Detail == "") {
			t.Errorf("%s is %s with detail %q and fix %q", c.Name, c.Level, c.Detail, c.Fix)
		}
	}
	if Worst(checks) != Bad {
		t.Error("a host without any tool is not FAIL")
	}
}

func fakeTool(t *testing.T, name, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}
