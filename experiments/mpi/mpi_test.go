package mpi

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"shardlease/internal/experiment"
)

// sampleStats is a campaign of two seeds and one child, as the program writes its statistics; the fields this package does
// not use are left out.
const sampleStats = `{"exit_code":0,
 "masters":[{"rank":0,"workers":3,"acked":3,"clean":true,"batches":2,"renewals":5,"directory_syncs":3,"directory_syncs_avoided":2,"failures":0},
            {"rank":1,"workers":3,"acked":3,"clean":true,"batches":1,"renewals":2,"directory_syncs":2,"directory_syncs_avoided":0,"failures":0}],
 "final":{"total_analysis_observations":3,"total_test_cases_generated":3,"external_input_objects":2,"new_interesting_test_cases":1,
  "throughput_tc_per_s":2.5,"masters_used":2,"analysis_by_master":{"0":2,"1":1},"corpus_objects":3,"unfinished":0}}`

func hash(c byte) string { return strings.Repeat(string(c), 64) }

// sample writes the raw files of one campaign after change has edited them.
func sample(t *testing.T, change map[string][2]string) string {
	t.Helper()
	dir := t.TempDir()
	object := func(name, hash string) string {
		return `{"name":"` + name + `","bytes":1,"sha256":"` + hash + `"}`
	}
	var lines []string
	for _, c := range []byte("abc") {
		for _, event := range []string{"start", "end"} {
			lines = append(lines, `{"id":"`+hash(c)+`","fence":1,"rank":2,"event":"`+event+`","time":"2026-08-07T00:00:00Z"}`)
		}
	}
	files := map[string]string{
		statsFile:      sampleStats,
		launchFile:     `{"exit_code":0,"shards":4,"left_folders":[],"left_processes":0}`,
		seedsFile:      "[" + object("s1", hash('a')) + "," + object("s2", hash('b')) + "]",
		corpusFile:     "[" + object(hash('a'), hash('a')) + "," + object(hash('b'), hash('b')) + "," + object(hash('c'), hash('c')) + "]",
		executionsFile: strings.Join(lines, "\n") + "\n",
	}
	if err := os.Mkdir(filepath.Join(dir, "campaign-1"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if c, ok := change[name]; ok {
			if !strings.Contains(text, c[0]) {
				t.Fatalf("%s has no %q", name, c[0])
			}
			text = strings.Replace(text, c[0], c[1], 1)
		}
		if err := os.WriteFile(filepath.Join(dir, "campaign-1", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestIdentitiesHoldOnAGoodCampaignAndCatchEachDamage(t *testing.T) {
	for name, tc := range map[string]struct {
		change map[string][2]string
		metric string
		want   float64
	}{
		"good, conserved":       {nil, "conserved", 1},
		"good, bounded":         {nil, "bounded", 1},
		"good, difference":      {nil, "avoided_is_difference", 1},
		"good, repeated":        {nil, "repeated_executions", 0},
		"good, reduction":       {nil, "reduction", 100 * 2.0 / 7},
		"avoided miscounted":    {map[string][2]string{statsFile: {`"directory_syncs_avoided":2`, `"directory_syncs_avoided":3`}}, "avoided_is_difference", 0},
		"nothing avoided":       {map[string][2]string{statsFile: {`"directory_syncs_avoided":2`, `"directory_syncs_avoided":0`}}, "some_avoided", 0},
		"more syncs than asked": {map[string][2]string{statsFile: {`"directory_syncs":3`, `"directory_syncs":6`}}, "bounded", 0},
		"more syncs per shard":  {map[string][2]string{statsFile: {`"renewals":5,"directory_syncs":3`, `"renewals":50,"directory_syncs":9`}}, "bounded", 0},
		"a master's share":      {map[string][2]string{statsFile: {`{"0":2,"1":1}`, `{"0":2,"1":2}`}}, "conserved", 0},
		"an unfinished object":  {map[string][2]string{statsFile: {`"unfinished":0`, `"unfinished":1`}}, "conserved", 0},
		"a seed that vanished":  {map[string][2]string{corpusFile: {`"sha256":"` + hash('b'), `"sha256":"` + hash('d')}}, "conserved", 0},
		"an execution not made": {map[string][2]string{executionsFile: {hash('c') + `","fence":1,"rank":2,"event":"end"`, hash('c') + `","fence":1,"rank":2,"event":"start"`}}, "conserved", 0},
		"a name that lies":      {map[string][2]string{corpusFile: {`"name":"` + hash('c'), `"name":"` + hash('d')}}, "content_addressed", 0},
		"a worker that hangs":   {map[string][2]string{statsFile: {`"acked":3`, `"acked":2`}}, "clean", 0},
		"an epoch left":         {map[string][2]string{launchFile: {`"left_folders":[]`, `"left_folders":["x"]`}}, "epochs_left", 1},
		"an exit code":          {map[string][2]string{launchFile: {`"exit_code":0`, `"exit_code":75`}}, "exit_code", 75},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := New().Reduce(sample(t, tc.change))
			if err != nil {
				t.Fatal(err)
			}
			if m, ok := got.Get(tc.metric); !ok || m.Value != tc.want {
				t.Errorf("%s is %v, want %v", tc.metric, m.Value, tc.want)
			}
		})
	}
}

func TestCampaignWithoutRecordsIsAnErrorAndNoVerdict(t *testing.T) {
	if _, err := New().Reduce(sample(t, map[string][2]string{statsFile: {`"final":{`, `"final":null,"was":{`}})); err == nil {
		t.Error("a campaign that could not read its records was reduced")
	}
	if _, err := New().Reduce(t.TempDir()); err == nil {
		t.Error("a folder without campaigns was reduced")
	}
}

// The two scales run the same campaign; only its number differs.
func TestClaimsFitTheParametersOfBothScales(t *testing.T) {
	m := New()
	for scale, p := range m.params {
		for _, c := range m.spec.Claims {
			if c.Metric == "observations" && *c.Band.Exact != float64(p.Seeds+1) {
				t.Errorf("%s: %d seeds, but %s wants %v analyses", scale, p.Seeds, c.ID, *c.Band.Exact)
			}
			if c.Metric == "acks" && *c.Band.Exact != float64(p.Processes-2) {
				t.Errorf("%s: %d processes, but %s wants %v workers", scale, p.Processes, c.ID, *c.Band.Exact)
			}
		}
	}
	if m.params[experiment.Smoke].Campaigns >= m.params[experiment.Full].Campaigns {
		t.Error("the smoke scale is not smaller")
	}
}

func TestTargetWritesTheReportsChildAndRefusesBadUse(t *testing.T) {
	program := filepath.Join(t.TempDir(), "target")
	if out, err := exec.Command("go", "build", "-o", program, "./target").CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	dir := filepath.Join(t.TempDir(), "children")
	run := func(outputDir string, args ...string) error {
		cmd := exec.Command(program, args...)
		cmd.Env = append(os.Environ(), "SYMCC_OUTPUT_DIR="+outputDir)
		cmd.Stdin = strings.NewReader("input")
		return cmd.Run()
	}
	if err := run(dir, "0s"); err != nil {
		t.Fatal(err)
	}
	list, err := objects(dir)
	// the hash of the report's child, from its test vectors
	if err != nil || len(list) != 1 || list[0].SHA256 != "1d127fde5c68681f1bfba0c718088ee8b6ee3fde6e9aa6c990783244f1e258b8" {
		t.Errorf("children %v, %v", list, err)
	}
	for i, bad := range [][]string{{}, {"long"}, {"-1s"}, {"1s", "2s"}} {
		if err := run(dir, bad...); err == nil {
			t.Errorf("use %s was accepted: %v", strconv.Itoa(i), bad)
		}
	}
	if err := run("", "0s"); err == nil {
		t.Error("no output folder was accepted")
	}
}
