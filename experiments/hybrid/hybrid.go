// Package hybrid runs the hybrid campaign beside Debian's real AFL++, on a small target of its own, with and without the lease tables.
//
// Three arms, one after the other, each with a fresh afl-fuzz -M on the same seed: two jobs that share lease tables, of which one is
// killed in the middle; the same two jobs without lease tables, as a control that the check for double work sees double work;
// and AFL++ alone. The solver is an honest stand-in for a SymCC-built program (see solver/main.go): what is found says nothing about
// real solvers.
package hybrid

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"shardlease/internal/child"
	"shardlease/internal/experiment"
	"shardlease/internal/host"
	"shardlease/pkg/mpirun"
)

//go:embed experiment.yaml target/target.c
var files embed.FS

type params struct {
	Leased   float64 `yaml:"leased_s"`
	Kill     float64 `yaml:"kill_after_s"`
	Unleased float64 `yaml:"unleased_s"`
	Workers  int     `yaml:"workers"` // of one job
	Shards   int     `yaml:"shards"`
	TTL      float64 `yaml:"ttl_s"`
	Think    string  `yaml:"solver_time"`
}

// Hybrid is the experiment.
type Hybrid struct {
	spec   *experiment.Spec
	params map[experiment.Scale]params
}

// New reads the experiment's file.
func New() *Hybrid {
	spec, p := experiment.MustLoad[params]("hybrid", files)
	return &Hybrid{spec, p}
}

// Spec returns the experiment's declaration.
func (h *Hybrid) Spec() *experiment.Spec { return h.spec }

// Programs names the campaign and the solver.
func (h *Hybrid) Programs() []experiment.Program {
	return []experiment.Program{
		{Name: "shardlease", Package: "./cmd/shardlease", Tags: "mpi"},
		{Name: "hybrid-solver", Package: "./experiments/hybrid/solver"},
	}
}

// Run builds the target and runs the arms.
func (h *Hybrid) Run(ctx context.Context, env *experiment.Env) error {
	p := h.params[env.Scale]
	launcher, err := mpirun.Find(ctx)
	if err != nil {
		return err
	}
	for _, tool := range []string{"afl-fuzz", "afl-cc", "afl-showmap"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%w: install AFL++ (mage setup does; Debian package afl++)", err)
		}
	}
	if err := buildTarget(ctx, env); err != nil {
		return err
	}
	versions := []string{launcher.Version, host.Version(ctx, "afl-cc", "--version")}
	jobs := []string{survivor, victim}
	arms := []armPlan{
		{params: p, name: leased, jobs: jobs, seconds: p.Leased, kill: p.Kill},
		{params: p, name: unleased, jobs: jobs, seconds: p.Unleased},
		{params: p, name: alone}, // as long as the first took
	}
	var took float64
	for i, plan := range arms {
		if plan.name == alone {
			plan.seconds = took
		}
		env.Progress(experiment.Tick{Done: i, Total: len(arms), What: fmt.Sprintf("arm %s, %.0fs", plan.name, plan.seconds)})
		seconds, err := runArm(ctx, env, plan, versions)
		if err != nil {
			return fmt.Errorf("arm %s: %w", plan.name, err)
		}
		if plan.name == leased {
			took = seconds
		}
	}
	env.Progress(experiment.Tick{Done: len(arms), Total: len(arms), What: "done"})
	return nil
}

// Names of the two builds of the target, in Env.Work.
const (
	fuzzTarget = "target.afl"
	observed   = "target.observed"
)

func buildTarget(ctx context.Context, env *experiment.Env) error {
	source, err := files.ReadFile("target/target.c")
	if err != nil {
		return err
	}
	name := filepath.Join(env.Work, "target.c")
	if err := os.WriteFile(name, source, 0o644); err != nil {
		return err
	}
	// -O1: more would turn the leaves' branches into arithmetic.
	for _, build := range []child.Cmd{
		{Name: "afl-cc", Args: []string{"-O1", "-o", fuzzTarget, "target.c"}, Env: []string{"AFL_QUIET=1"}},
		{Name: "cc", Args: []string{"-O1", "-DOBSERVE", "-o", observed, "target.c"}},
	} {
		build.Dir, build.Stdout, build.Stderr = env.Work, env.Log, env.Log
		if err := child.Run(ctx, build); err != nil {
			return fmt.Errorf("build the target: %w", err)
		}
	}
	return nil
}

var errFuzzer = errors.New("afl-fuzz ended by itself")
