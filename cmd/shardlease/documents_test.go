package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The commands that README.md names are run as they stand there.
func TestTheCommandsOfTheREADMEWork(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("`shardlease ([^`]+)`").FindAllStringSubmatch(string(text), -1)
	if len(found) < 4 {
		t.Fatalf("found only %q", found)
	}
	for _, m := range found {
		args := strings.Fields(strings.ReplaceAll(m[1], "DIR", t.TempDir()))
		if stdout, stderr, code := output(t, program(t, args...)); code != 0 || stdout == "" || stderr != "" {
			t.Errorf("shardlease %s: exit code %d, %s%s", m[1], code, stdout, stderr)
		}
	}
}
