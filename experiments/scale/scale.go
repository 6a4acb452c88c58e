// Package scale measures what a heartbeat period costs against the number of leases and of shards, fits the report's cost model to it, and
// computes how many masters one store could carry.
package scale

import (
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"

	"shardlease/experiments/scale/raw"
	"shardlease/internal/child"
	"shardlease/internal/evidence"
	"shardlease/internal/experiment"
)

//go:embed experiment.yaml
var files embed.FS

// params are the parameters of experiment.yaml.
type params struct {
	WarmUp     int            `yaml:"warm_up_rounds"`
	Cases      []raw.Case     `yaml:"cases"`
	Simulation raw.Simulation `yaml:"simulation"`
}

// Scale is the experiment.
type Scale struct {
	spec   *experiment.Spec
	params map[experiment.Scale]params
}

// New reads the experiment's file.
func New() *Scale {
	spec, p := experiment.MustLoad[params]("scale", files)
	return &Scale{spec, p}
}

// Spec returns the experiment's declaration.
func (x *Scale) Spec() *experiment.Spec { return x.spec }

const workload = "scale-workload"

// Programs names the workload; it is a program of its own so that nothing of the pipeline runs beside what is measured.
func (x *Scale) Programs() []experiment.Program {
	return []experiment.Program{{Name: workload, Package: "./experiments/scale/workload"}}
}

// Run writes the plan and has the workload measure it. The simulation is no part of the run: Reduce computes it from the raw files.
func (x *Scale) Run(ctx context.Context, env *experiment.Env) error {
	p := x.params[env.Scale]
	program := filepath.Join(env.Bin, workload)
	hash, err := evidence.HashFile(program)
	if err != nil {
		return err
	}
	plan := raw.Plan{Seed: env.Seed, Scale: string(env.Scale), WarmUp: p.WarmUp, Cases: p.Cases, Simulation: p.Simulation, SHA256: hash}
	if env.Rounds > 0 {
		for i := range plan.Cases {
			plan.Cases[i].Rounds = env.Rounds
		}
	}
	data, err := experiment.EncodeJSON(plan)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(env.Dir, raw.PlanFile), data, 0o644); err != nil {
		return err
	}
	env.Progress(experiment.Tick{Done: 0, Total: 1, What: fmt.Sprintf("%d cases in interleaved rounds", len(plan.Cases))})
	args := []string{"-root", filepath.Join(env.Work, "scale"), "-dir", env.Dir}
	if err := os.Mkdir(args[1], 0o755); err != nil {
		return err
	}
	if err := child.Run(ctx, child.Cmd{Name: program, Args: args, Stdout: env.Log, Stderr: env.Log}); err != nil {
		return err
	}
	env.Progress(experiment.Tick{Done: 1, Total: 1, What: "done"})
	return nil
}
