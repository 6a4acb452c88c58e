// Package sim runs simulated campaigns by the thousand, with faults drawn from seeds, and the same campaigns with deliberate mistakes
// in the protocol, which have to be found.
package sim

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"shardlease/internal/campaign/sim"
	"shardlease/internal/child"
	"shardlease/internal/experiment"
)

//go:embed experiment.yaml
var files embed.FS

type params struct {
	Campaigns int `yaml:"campaigns"`
	Replays   int `yaml:"replays"` // seeds whose histories are compared
	Planted   int `yaml:"planted"` // bugs, in the order of their list
}

// Sim is the experiment.
type Sim struct {
	spec   *experiment.Spec
	params map[experiment.Scale]params
}

// New reads the experiment's file.
func New() *Sim {
	spec, p := experiment.MustLoad[params]("sim", files)
	return &Sim{spec, p}
}

// Spec returns the experiment's declaration.
func (s *Sim) Spec() *experiment.Spec { return s.spec }

const program = "sim-campaigns"

// Programs names the simulator.
func (s *Sim) Programs() []experiment.Program {
	return []experiment.Program{{Name: program, Package: "./experiments/sim/campaigns"}}
}

// Run simulates, replays and plants.
func (s *Sim) Run(ctx context.Context, env *experiment.Env) error {
	p := s.params[env.Scale]
	total := p.Campaigns + p.Replays + p.Planted
	bin := filepath.Join(env.Bin, program)
	done := 0
	tick := func(n int, what string) {
		done += n
		env.Progress(experiment.Tick{Done: done, Total: total, What: what})
	}
	const often = 50 // campaigns, which take milliseconds
	results, err := s.simulate(ctx, env, bin, p.Campaigns, func(n int) {
		if n%often == 0 || n == p.Campaigns {
			tick(n-done, "campaigns")
		}
	})
	if err != nil {
		return err
	}
	var replays []Replay
	for i := range p.Replays {
		tick(1, "replays")
		seed := env.Seed + uint64(i)
		first, err := history(ctx, bin, seed)
		if err != nil {
			return err
		}
		again, err := history(ctx, bin, seed)
		if err != nil {
			return err
		}
		replays = append(replays, Replay{seed, bytes.Count(first, []byte("\n")), bytes.Equal(first, again)})
	}
	for _, r := range results {
		if r.Violation == "" {
			continue
		}
		text, err := history(ctx, bin, r.Seed)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(env.Dir, fmt.Sprintf("violation-%d.txt", r.Seed)), text, 0o644); err != nil {
			return err
		}
	}
	plants := []Plant{}
	for _, b := range bugs[:min(p.Planted, len(bugs))] {
		tick(1, "planted bug: "+b.name)
		dir, err := os.MkdirTemp(env.Work, "planted-")
		if err != nil {
			return err
		}
		plant, err := b.plant(ctx, env.Root, dir)
		if err != nil {
			return err
		}
		fmt.Fprintf(env.Log, "planted bug %q: found after %d of %d seeds: %s\n", b.name, plant.Found, plant.Seeds, plant.Violation)
		plants = append(plants, plant)
	}
	if err := write(env.Dir, replaysFile, replays); err != nil {
		return err
	}
	return write(env.Dir, plantedFile, plants)
}

// simulate runs the campaigns on one thread and keeps what the program wrote.
func (s *Sim) simulate(ctx context.Context, env *experiment.Env, bin string, campaigns int, each func(n int)) ([]sim.Result, error) {
	var lines, cost bytes.Buffer
	err := child.Run(ctx, child.Cmd{
		Name: bin, Args: []string{fmt.Sprintf("-seed=%d", env.Seed), fmt.Sprintf("-seeds=%d", campaigns)}, Env: []string{"GOMAXPROCS=1"},
		Stdout: io.MultiWriter(&lines, &lineCounter{each: each}), Stderr: &cost,
	})
	if err != nil {
		return nil, err
	}
	for name, data := range map[string][]byte{campaignsFile: lines.Bytes(), costFile: cost.Bytes()} {
		if err := os.WriteFile(filepath.Join(env.Dir, name), data, 0o644); err != nil {
			return nil, err
		}
	}
	return decode(&lines)
}

func history(ctx context.Context, bin string, seed uint64) ([]byte, error) {
	var out bytes.Buffer
	err := child.Run(ctx, child.Cmd{Name: bin, Args: []string{fmt.Sprintf("-seed=%d", seed), "-history"}, Stdout: &out})
	return out.Bytes(), err
}

// lineCounter calls each with the number of lines written to it so far.
type lineCounter struct {
	n    int
	each func(n int)
}

func (c *lineCounter) Write(p []byte) (int, error) {
	for range bytes.Count(p, []byte("\n")) {
		c.n++
		c.each(c.n)
	}
	return len(p), nil
}

func write(dir, name string, v any) error {
	data, err := experiment.EncodeJSON(v)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), data, 0o644)
}
