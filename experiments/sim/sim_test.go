package sim

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"shardlease/internal/campaign/sim"
	"shardlease/internal/experiment"
)

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestPlantedBugsAreFound plants two bugs, all of them with SHARDLEASE_LONG=1 (minutes); the experiment plants all. Each takes a build.
func TestPlantedBugsAreFound(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go command: ", err)
	}
	list := bugs[:2]
	if os.Getenv("SHARDLEASE_LONG") != "" {
		list = bugs
	}
	for _, b := range list {
		p, err := b.plant(t.Context(), root(t), t.TempDir())
		if err != nil {
			t.Error(err)
		} else if p.Found == 0 {
			t.Errorf("%s: not found within %d seeds", b.name, b.seeds)
		}
		t.Logf("%s: found after %d of %d seeds: %s", b.name, p.Found, p.Seeds, p.Violation)
	}
}

// Every bug's text must still be in the code; this costs no build.
func TestPlantedBugsFitTheCode(t *testing.T) {
	names := map[string]bool{}
	for _, b := range bugs {
		if _, err := b.overlay(root(t), t.TempDir()); err != nil {
			t.Error(err)
		}
		if names[b.name] {
			t.Errorf("%s is planted twice", b.name)
		}
		names[b.name] = true
	}
}

func TestABugThatNoLongerFitsIsNamed(t *testing.T) {
	_, err := bug{name: "odd", edits: []edit{{quiet, "no such text", ""}}}.overlay(root(t), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "odd: edit 1: the text to replace occurs 0 times in "+quiet) {
		t.Errorf("error %v", err)
	}
}

// raw writes raw files as Run does: two campaigns, one of them over its bound and in violation if bad.
func raw(t *testing.T, bad bool) string {
	t.Helper()
	dir := t.TempDir()
	all := sim.Counts{Jobs: 3, Disorderly: 1, Kills: 1, PowerCuts: 1, Interrupts: 1, Pauses: 1, Jumps: 1, Hangs: 1, Suspended: 1, Errors: 1, Lost: 1, Repeated: 1, Stale: 1, TakenOver: 1}
	results := []sim.Result{{Seed: 7, Items: 4, Executions: 5, Bound: 6, Counts: all}, {Seed: 8, Items: 3, Executions: 3, Bound: 3}}
	plants := []Plant{{Bug: "a", Seeds: 10, Found: 2, Violation: "S1"}, {Bug: "b", Seeds: 10, Found: 10, Violation: "S2"}}
	replays := []Replay{{Seed: 7, Events: 9, Same: true}}
	if bad {
		results[1].Executions, results[1].Violation = 4, "S6: too many"
		plants[1].Found, replays[0].Same = 0, false
	}
	var lines strings.Builder
	for _, r := range results {
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(line, '\n'))
	}
	if err := os.WriteFile(filepath.Join(dir, campaignsFile), []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]any{costFile: Cost{2, 1, 0.1}, plantedFile: plants, replaysFile: replays} {
		if err := write(dir, name, v); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestVerdictsFollowTheRawFiles(t *testing.T) {
	for _, bad := range []bool{false, true} {
		m, err := New().Reduce(raw(t, bad))
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]float64{"campaigns": 2, "violations": 0, "planted.missed": 0, "replays.different": 0, "executions.over_bound": 0, "faults.absent": 0,
			"campaigns_per_cpu_minute": 1200, "repeated_executions": 1}
		if bad {
			want["violations"], want["planted.missed"], want["replays.different"], want["executions.over_bound"], want["repeated_executions"] = 1, 1, 1, 1, 2
		}
		for name, value := range want {
			if got, ok := m.Get(name); !ok || got.Value != value {
				t.Errorf("bad %t: %s is %v, want %v", bad, name, got.Value, value)
			}
		}
		for _, c := range New().Spec().Claims {
			if _, ok := m.Get(c.Metric); c.Decided() && !ok {
				t.Errorf("claim %s has no metric %s", c.ID, c.Metric)
			}
		}
	}
}

func TestEachFigureThatAClaimFeedsIsDrawn(t *testing.T) {
	all, err := Figures(raw(t, true))
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[string]bool{}
	for _, f := range all {
		drawn[f.ID] = true
	}
	for _, c := range New().Spec().Claims {
		for _, feed := range c.Feeds {
			if !drawn[feed] {
				t.Errorf("claim %s feeds %s, which is not drawn", c.ID, feed)
			}
		}
	}
}

func TestTheExperimentRunsAtASmallScale(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go command: ", err)
	}
	e := New()
	e.params[experiment.Smoke] = params{Campaigns: 10, Replays: 1}
	env := &experiment.Env{Root: root(t), Dir: t.TempDir(), Work: t.TempDir(), Bin: t.TempDir(), Scale: experiment.Smoke, Seed: 1, Log: t.Output(), Progress: func(experiment.Tick) {}}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(env.Bin, program), "./experiments/sim/campaigns")
	build.Dir = env.Root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := e.Run(context.Background(), env); err != nil {
		t.Fatal(err)
	}
	m, err := e.Reduce(env.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"campaigns": 10, "violations": 0, "replays.different": 0} {
		if got, _ := m.Get(name); got.Value != want {
			t.Errorf("%s is %v, want %v", name, got.Value, want)
		}
	}
}
