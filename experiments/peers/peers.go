// Package peers renews the same leases with this project's libraries and with bbolt, SQLite, Pebble and PostgreSQL, on one file system and
// in one interleaved run. The bench itself is a module of its own, so that nobody who uses the libraries downloads the databases.
package peers

import (
	"context"
	"debug/buildinfo"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"shardlease/internal/child"
	"shardlease/internal/experiment"
	"shardlease/internal/host"
)

//go:embed experiment.yaml
var files embed.FS

// params are the parameters of experiment.yaml.
type params struct {
	WarmUp int        `yaml:"warm_up_rounds"`
	Cases  []caseSpec `yaml:"cases"`
}

// caseSpec is one interleaved run.
type caseSpec struct {
	Records int      `yaml:"records"`
	Active  int      `yaml:"active"` // shards that hold records
	Rounds  int      `yaml:"rounds"`
	Systems []string `yaml:"systems"` // nil means all
}

func (c caseSpec) name() string { return fmt.Sprintf("n%dk%d", c.Records, c.Active) }

// Peers is the experiment.
type Peers struct {
	spec   *experiment.Spec
	params map[experiment.Scale]params
}

// New reads the experiment's file.
func New() *Peers {
	spec, p := experiment.MustLoad[params]("peers", files)
	return &Peers{spec, p}
}

// Spec returns the experiment's declaration.
func (x *Peers) Spec() *experiment.Spec { return x.spec }

const benchProgram = "peers-bench"

// Programs names the bench.
func (x *Peers) Programs() []experiment.Program {
	return []experiment.Program{{Name: benchProgram, Module: "experiments/peers/bench", Package: "."}}
}

// versionsFile says which software was measured.
const versionsFile = "versions.json"

// versions is its content.
type versions struct {
	Bench      []string `json:"bench"` // modules with their versions, as linked
	PostgreSQL string   `json:"postgresql"`
}

// Run runs each case; PostgreSQL is started and stopped by the bench, with its data on the same file system.
func (x *Peers) Run(ctx context.Context, env *experiment.Env) error {
	p := x.params[env.Scale]
	for i, c := range p.Cases {
		env.Progress(experiment.Tick{Done: i, Total: len(p.Cases), What: fmt.Sprintf("%d leases in %d shards", c.Records, c.Active)})
		if env.Rounds > 0 {
			c.Rounds = env.Rounds
		}
		if err := runCase(ctx, env, p.WarmUp, c); err != nil {
			return err
		}
	}
	env.Progress(experiment.Tick{Done: len(p.Cases), Total: len(p.Cases), What: "a second process beside each system"})
	if err := bench(ctx, env, trialFile, "-dir", filepath.Join(env.Work, "trial"), "-trial"); err != nil {
		return fmt.Errorf("trial: %w", err)
	}
	linked, err := modules(filepath.Join(env.Bin, benchProgram))
	if err != nil {
		return err
	}
	data, err := experiment.EncodeJSON(versions{
		Bench:      linked,
		PostgreSQL: host.Version(ctx, postgresBin+"/postgres", "--version"),
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(env.Dir, versionsFile), data, 0o644)
}

// modules lists what a Go program was linked from, each with its version.
func modules(program string) ([]string, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, err
	}
	list := []string{"go " + info.GoVersion}
	for _, m := range info.Deps {
		if m.Replace == nil { // the project itself is not a version
			list = append(list, m.Path+" "+m.Version)
		}
	}
	return list, nil
}

// postgresBin is where Debian puts the server's programs.
const postgresBin = "/usr/lib/postgresql/15/bin"

func runCase(ctx context.Context, env *experiment.Env, warmUp int, c caseSpec) error {
	err := bench(ctx, env, c.name()+".jsonl", "-dir", filepath.Join(env.Work, c.name()),
		"-records", strconv.Itoa(c.Records), "-active", strconv.Itoa(c.Active), "-rounds", strconv.Itoa(c.Rounds),
		"-warmup", strconv.Itoa(warmUp), "-seed", strconv.FormatUint(env.Seed, 10), "-systems", strings.Join(c.Systems, ","))
	if err != nil {
		return fmt.Errorf("%d leases in %d shards: %w", c.Records, c.Active, err)
	}
	return nil
}

// bench runs the bench with its output in a file of the evidence.
func bench(ctx context.Context, env *experiment.Env, file string, args ...string) error {
	out, err := os.Create(filepath.Join(env.Dir, file))
	if err != nil {
		return err
	}
	defer out.Close()
	args = append(args, "-postgres", postgresBin)
	if err := child.Run(ctx, child.Cmd{Name: filepath.Join(env.Bin, benchProgram), Args: args, Stdout: out, Stderr: env.Log}); err != nil {
		return err
	}
	return out.Close()
}
