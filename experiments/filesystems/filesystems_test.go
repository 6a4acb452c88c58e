package filesystems

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shardlease/internal/experiment"
)

// plain are times in milliseconds that satisfy every claim.
var plain = map[string]float64{
	"scalar": 30, "batch": 18, "strict-overlapped": 12, "strict-wholefs": 8, "strict-spare": 9, "strict-spare-overlapped": 5,
	"strict-spare-wholefs": 2, "strict-spare-wholefs-again": 2, "strict-auto": 2.1, "one-flush": 0.3, "one-flush-again": 0.3, "limit-fdatasync": 0.25,
}

func rawRuns(t *testing.T, change func(fs string, ms map[string]float64)) string {
	dir := t.TempDir()
	for _, fs := range []string{"ext4", "xfs", "btrfs", "overlay", "tmpfs", "lat5"} {
		ms := map[string]float64{}
		for s, v := range plain {
			ms[s] = v
		}
		if fs == "lat5" {
			ms["scalar"], ms["batch"] = 640, 330
		}
		change(fs, ms)
		var b strings.Builder
		for round := range 12 {
			for s, v := range ms {
				fmt.Fprintf(&b, `{"system":%q,"records":64,"active_shards":1,"round":%d,"place":0,"passes":1,"pass_ns":%f}`+"\n", s, round, v*1e6*(1+0.01*float64(round%3)))
			}
		}
		if err := os.WriteFile(filepath.Join(dir, fs+".jsonl"), []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func failing(t *testing.T, dir string) []string {
	t.Helper()
	x := New()
	m, err := x.Reduce(dir)
	if err != nil {
		t.Fatal(err)
	}
	list, err := experiment.Decide(x.Spec(), m, experiment.Suitable)
	if err != nil {
		t.Fatal(err)
	}
	var bad []string
	for _, v := range list {
		if v.Verdict != experiment.Pass {
			bad = append(bad, v.Claim)
		}
	}
	return bad
}

func TestClaimsHoldWhereEveryFileSystemDoes(t *testing.T) {
	if bad := failing(t, rawRuns(t, func(string, map[string]float64) {})); bad != nil {
		t.Errorf("not passed: %v", bad)
	}
}

func TestOneFileSystemOnWhichAutoChoosesWronglyFails(t *testing.T) {
	dir := rawRuns(t, func(fs string, ms map[string]float64) {
		if fs == "btrfs" {
			ms["strict-auto"] = 36
		}
	})
	if bad := failing(t, dir); !slices.Equal(bad, []string{"FS4", "FS5"}) {
		t.Errorf("not passed: %v", bad)
	}
}

func TestALostSpeedUpFails(t *testing.T) {
	dir := rawRuns(t, func(fs string, ms map[string]float64) {
		if fs == "xfs" {
			ms["scalar"] = 6
		}
		if fs == "lat5" {
			ms["batch"] = 600
		}
	})
	if bad := failing(t, dir); !slices.Equal(bad, []string{"FS1", "FS6"}) {
		t.Errorf("not passed: %v", bad)
	}
}

func TestFiguresDrawWhatWasTimed(t *testing.T) {
	list, err := Figures(rawRuns(t, func(string, map[string]float64) {}))
	if err != nil || len(list) != 3 {
		t.Errorf("%d figures, %v", len(list), err)
	}
}

func TestPathsReachTheShellAsArgumentsOnly(t *testing.T) {
	argv := mounted{kind: "ext4", options: "loop", source: "/a b/$(x)", dir: "/d"}.command("bench", []string{"-dir", "/d"})
	if !slices.Contains(argv, "/a b/$(x)") || strings.Contains(argv[6], "/") {
		t.Errorf("command %q", argv)
	}
}
