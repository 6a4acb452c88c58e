package afl

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const sampleStats = "start_time        : 1796135050\n" +
	"fuzzer_pid        : 10780\n" +
	"bitmap_cvg        : 61.54%\n" +
	"exec_timeout      : 20\n" +
	"corpus_imported   : 3\n" +
	"command_line      : afl-fuzz -V 3 -M main -i in -o sync -- ./t @@ --x a b\n"

func TestStatisticsOfAFLAreRead(t *testing.T) {
	stats, err := ParseStats([]byte(sampleStats))
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := stats.Number("bitmap_cvg"); !ok || n != 61.54 {
		t.Errorf("bitmap_cvg = %v %v, want 61.54", n, ok)
	}
	if _, ok := stats.Number("no_such_key"); ok {
		t.Error("a missing key has a number")
	}
	if got := stats["command_line"]; got != "afl-fuzz -V 3 -M main -i in -o sync -- ./t @@ --x a b" {
		t.Errorf("command_line = %q", got)
	}
}

func TestEveryProperPrefixOfTheStatisticsIsIncomplete(t *testing.T) {
	for n := range len(sampleStats) {
		if _, err := ParseStats([]byte(sampleStats[:n])); !errors.Is(err, ErrIncomplete) {
			t.Fatalf("first %d bytes: error %v, want ErrIncomplete", n, err)
		}
	}
}

func TestHalfWrittenStatisticsAreReadAgain(t *testing.T) {
	name := filepath.Join(t.TempDir(), "fuzzer_stats")
	write(t, name, sampleStats[:40])
	go func() {
		time.Sleep(readPause)
		_ = os.WriteFile(name, []byte(sampleStats), 0o600) // in place, as old fuzzers do
	}()
	if _, err := ReadStats(t.Context(), name); err != nil {
		t.Fatalf("the file was completed meanwhile, but: %v", err)
	}
}

func TestStatisticsThatStayHalfWrittenAreReportedWithTheirName(t *testing.T) {
	name := filepath.Join(t.TempDir(), "fuzzer_stats")
	write(t, name, sampleStats[:40])
	_, err := ReadStats(t.Context(), name)
	if !errors.Is(err, ErrIncomplete) || !strings.Contains(err.Error(), name) {
		t.Errorf("error %v, want ErrIncomplete with the file's name", err)
	}
	if _, err := ReadStats(t.Context(), name+".gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: error %v, want fs.ErrNotExist", err)
	}
}

func TestCommandLinesAreSplitLikeAShellDoes(t *testing.T) {
	cases := []struct {
		line string
		want []string
	}{
		{`a  b	c`, []string{"a", "b", "c"}},
		{`'a b' "c d"`, []string{"a b", "c d"}},
		{`a\ b 'it''s' ""`, []string{"a b", "its", ""}},
		{`"\"\\x\y" '\'`, []string{`"\x\y`, `\`}},
		{`x"y z"w`, []string{"xy zw"}},
		{`$HOME * ~`, []string{"$HOME", "*", "~"}},
		{``, nil},
	}
	for _, c := range cases {
		got, err := SplitWords(c.line)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v; want %q", c.line, got, err, c.want)
		}
	}
	for _, line := range []string{`'a`, `"a`, `a\`, `"a\"`} {
		if words, err := SplitWords(line); err == nil {
			t.Errorf("%s: %q and no error", line, words)
		}
	}
}

func write(t *testing.T, name, data string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}
