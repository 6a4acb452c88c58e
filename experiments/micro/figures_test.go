package micro

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shardlease/experiments/micro/raw"
	"shardlease/internal/experiment"
	"shardlease/internal/figures"
)

// writeRun writes raw files of a made-up run, in which a directory sync takes half of a renewal.
func writeRun(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	w := raw.Workload{Records: 64, Shards: 64, Active: []int{1, 8}, Rounds: 8, Passes: 1, Scale: "full"}
	var rounds []raw.Round
	var passes []raw.Pass
	var syncs []raw.Sync
	for _, active := range w.Active {
		for r := range w.Rounds {
			jitter := int64(r) * 10_000
			batch := int64(64*200_000+active*200_000) + jitter
			rounds = append(rounds,
				raw.Round{Active: active, Kind: raw.AB, Round: r, First: "a", A: 64*400_000 + jitter, B: batch},
				raw.Round{Active: active, Kind: raw.AA, Round: r, First: "b", A: batch, B: batch + jitter})
			passes = append(passes,
				raw.Pass{Active: active, Round: r, Side: raw.Scalar, Records: 64, Wall: 64 * 400_000, File: 64 * 150_000, Dir: 64 * 200_000, FileSyncs: 64, DirSyncs: 64, Rename: 64},
				raw.Pass{Active: active, Round: r, Side: raw.Batch, Records: 64, Wall: batch, File: 64 * 150_000, Dir: int64(active) * 200_000, FileSyncs: 64, DirSyncs: active, Rename: 64})
			for _, side := range []string{raw.Scalar, raw.Batch} {
				syncs = append(syncs, raw.Sync{Active: active, Side: side, Kind: "file", Took: 150_000 + jitter}, raw.Sync{Active: active, Side: side, Kind: "dir", Took: 200_000 + jitter})
			}
		}
	}
	data, err := experiment.EncodeJSON(w)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.WriteFile(filepath.Join(dir, raw.WorkloadFile), data, 0o644),
		raw.WriteRounds(filepath.Join(dir, raw.RoundsFile), rounds), raw.WritePasses(filepath.Join(dir, raw.PassesFile), passes),
		raw.WriteSyncs(filepath.Join(dir, raw.SyncsFile), syncs), raw.WriteKernel(filepath.Join(dir, raw.KernelFile), nil),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestEachFigureThatAClaimFeedsIsDrawn(t *testing.T) {
	all, err := Figures(writeRun(t))
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[string]bool{}
	for _, f := range all {
		drawn[f.ID] = true
	}
	for _, c := range New().Spec().Claims {
		for _, feed := range c.Feeds {
			if strings.HasPrefix(feed, "micro-") && !drawn[feed] {
				t.Errorf("claim %s feeds %s, which is not drawn", c.ID, feed)
			}
		}
	}
}

func TestFiguresShowTheReportsValuesOfTheClaims(t *testing.T) {
	all, err := Figures(writeRun(t))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(f figures.Figure) bool { return f.ID == "micro-model" })
	for _, want := range []string{"[1,1.943]", "[8,1.951]"} {
		if !strings.Contains(string(all[i].Option), want) {
			t.Errorf("the model's figure lacks the report's point %s", want)
		}
	}
}

func TestFiguresOfADamagedRunAreRefused(t *testing.T) {
	dir := writeRun(t)
	if err := os.Remove(filepath.Join(dir, raw.SyncsFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := Figures(dir); err == nil || !strings.Contains(err.Error(), raw.SyncsFile) {
		t.Errorf("error %v does not name the missing file", err)
	}
}
