// Package mpi runs the report's forced-heartbeat campaign (its section 8.3) on real Open MPI: leases of one second, a
// target that takes longer, two masters that renew for their workers.
package mpi

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"shardlease/internal/evidence"
	"shardlease/internal/experiment"
	"shardlease/internal/host"
	"shardlease/pkg/mpirun"
)

//go:embed experiment.yaml
var files embed.FS

type params struct {
	Campaigns        int     `yaml:"campaigns"`
	Processes        int     `yaml:"processes"`
	WorkersPerMaster int     `yaml:"workers_per_master"`
	Seeds            int     `yaml:"seeds"`
	TTL              int     `yaml:"ttl_s"`
	Shards           int     `yaml:"shards"`
	Sleep            string  `yaml:"target_sleep"`
	Timeout          float64 `yaml:"target_timeout_s"`
	MaxIdle          float64 `yaml:"max_idle_s"`
	WallTimeout      float64 `yaml:"wall_timeout_s"`
	Grace            float64 `yaml:"grace_s"` // of shutdown and finalization each
}

// MPI is the experiment.
type MPI struct {
	spec   *experiment.Spec
	params map[experiment.Scale]params
}

// New reads the experiment's file.
func New() *MPI {
	spec, p := experiment.MustLoad[params]("mpi", files)
	return &MPI{spec, p}
}

// Spec returns the experiment's declaration.
func (m *MPI) Spec() *experiment.Spec { return m.spec }

// Programs names the campaign and its target.
func (m *MPI) Programs() []experiment.Program {
	return []experiment.Program{
		{Name: "shardlease", Package: "./cmd/shardlease", Tags: "mpi"},
		{Name: "mpi-target", Package: "./experiments/mpi/target"},
	}
}

// Run runs the campaigns one after the other.
func (m *MPI) Run(ctx context.Context, env *experiment.Env) error {
	p := m.params[env.Scale]
	launcher, err := mpirun.Find(ctx)
	if err != nil {
		return err
	}
	for n := 1; n <= p.Campaigns; n++ {
		env.Progress(experiment.Tick{Done: n - 1, Total: p.Campaigns, What: fmt.Sprintf("campaign %d of %d", n, p.Campaigns)})
		c := &campaign{params: p, env: env, dir: filepath.Join(env.Dir, "campaign-"+strconv.Itoa(n)), work: filepath.Join(env.Work, strconv.Itoa(n))}
		if err := c.run(ctx, launcher, uint64(n)); err != nil {
			return fmt.Errorf("campaign %d: %w", n, err)
		}
	}
	env.Progress(experiment.Tick{Done: p.Campaigns, Total: p.Campaigns, What: "done"})
	return nil
}

// campaign is one of them: work is thrown away, dir keeps what is recorded.
type campaign struct {
	params
	env       *experiment.Env
	dir, work string
}

func (c *campaign) run(ctx context.Context, launcher *mpirun.Launcher, n uint64) error {
	if err := errors.Join(os.MkdirAll(c.dir, 0o755), os.MkdirAll(filepath.Join(c.work, "in"), 0o755)); err != nil {
		return err
	}
	if err := c.writeSeeds(n); err != nil {
		return err
	}
	launch, err := c.launch(ctx, launcher)
	if err != nil {
		return err
	}
	err = errors.Join(c.write(launchFile, launch), c.keep(statsFile), c.keep(executionsFile), c.keep(stdoutFile), c.keep(stderrFile))
	if err != nil {
		return err
	}
	corpus, err := objects(filepath.Join(c.work, "out"))
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("it never began: exit code %d; see %s of the run", launch.ExitCode, filepath.Join(filepath.Base(c.env.Dir), filepath.Base(c.dir), stderrFile))
	}
	if err != nil {
		return err
	}
	seeds, err := objects(filepath.Join(c.work, "in"))
	if err != nil {
		return err
	}
	return errors.Join(c.write(seedsFile, seeds), c.write(corpusFile, corpus))
}

// writeSeeds makes distinct inputs from the run's seed.
func (c *campaign) writeSeeds(n uint64) error {
	rng := rand.New(rand.NewPCG(c.env.Seed, n))
	for i := range c.Seeds {
		text := fmt.Sprintf("seed %d of campaign %d: %016x\n", i, n, rng.Uint64())
		if err := os.WriteFile(filepath.Join(c.work, "in", fmt.Sprintf("seed-%02d", i)), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// launch runs the campaign to its end. A campaign that fails is recorded like any other: what is made of it is up to
// the claims.
func (c *campaign) launch(ctx context.Context, launcher *mpirun.Launcher) (Launch, error) {
	program, target := filepath.Join(c.env.Bin, "shardlease"), filepath.Join(c.env.Bin, "mpi-target")
	l := Launch{MPI: launcher.Version, Processes: c.Processes, Seeds: c.Seeds, Shards: c.Shards, LeftFolders: []string{}}
	var err error
	if l.SHA256, err = evidence.HashFile(program); err != nil {
		return l, err
	}
	if l.TargetSHA256, err = evidence.HashFile(target); err != nil {
		return l, err
	}
	stdout, err1 := os.Create(filepath.Join(c.work, stdoutFile))
	stderr, err2 := os.Create(filepath.Join(c.work, stderrFile))
	if err := errors.Join(err1, err2); err != nil {
		return l, err
	}
	float := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	result, err := launcher.Run(ctx, mpirun.Job{
		Program: program,
		Args: []string{
			"standalone", "-i", filepath.Join(c.work, "in"), "-o", filepath.Join(c.work, "out"), "-t", float(c.Timeout), "--max-idle", float(c.MaxIdle),
			"--wall-timeout", float(c.WallTimeout), "--workers-per-master", strconv.Itoa(c.WorkersPerMaster), "--ranks", strconv.Itoa(c.Processes),
			"--stats-json", filepath.Join(c.work, statsFile), "--execution-log", filepath.Join(c.work, executionsFile), "--", target, c.Sleep,
		},
		Env: []string{
			"SYMCC_STANDALONE_WORK_LEASE_TTL=" + strconv.Itoa(c.TTL), "SYMCC_STANDALONE_WORK_LEASE_SHARDS=" + strconv.Itoa(c.Shards),
			"SYMCC_SHUTDOWN_GRACE_SEC=" + float(c.Grace), "SYMCC_FINALIZE_GRACE_SEC=" + float(c.Grace),
		},
		Ranks: c.Processes, AllowRoot: os.Geteuid() == 0, Oversubscribe: true,
		Timeout: time.Duration((c.WallTimeout + 4*c.Grace + 30) * float64(time.Second)),
		Stdout:  io.MultiWriter(stdout, c.env.Log), Stderr: io.MultiWriter(stderr, c.env.Log),
	})
	err = errors.Join(err, stdout.Close(), stderr.Close())
	if ctx.Err() != nil {
		return l, err
	}
	var exit *mpirun.ExitError
	if err != nil && (result == nil || !errors.As(err, &exit) && !errors.Is(err, mpirun.ErrSurvivors)) { // survivors are counted below
		return l, err
	}
	l.Argv, l.Env, l.ExitCode, l.WallS = c.hidden(result.Argv), c.hidden(result.Env), result.ExitCode, result.Wall.Seconds()
	l.Root, l.Oversubscribed, l.LeftProcesses = result.Root, result.Oversubscribed, result.Killed
	left, err := filepath.Glob(filepath.Join(c.work, "out", ".standalone-work-*"))
	for _, name := range left {
		l.LeftFolders = append(l.LeftFolders, filepath.Base(name))
	}
	return l, err
}

// hidden replaces the temporary folder, which differs from run to run and may hold a name.
func (c *campaign) hidden(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = c.hide(s)
	}
	return out
}

func (c *campaign) hide(text string) string {
	return host.WithoutHome(strings.ReplaceAll(strings.ReplaceAll(text, c.work, workPlace), c.env.Root, "$ROOT"))
}

// keep copies a file of the campaign. One that is not there is kept as an empty file: the reduction will say what is missing.
func (c *campaign) keep(name string) error {
	data, err := os.ReadFile(filepath.Join(c.work, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(filepath.Join(c.dir, name), []byte(c.hide(string(data))), 0o644)
}

func (c *campaign) write(name string, v any) error {
	data, err := experiment.EncodeJSON(v)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(c.dir, name), data, 0o644)
}

// objects lists the visible regular files of a folder with their hashes.
func objects(dir string) ([]Object, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	list := []Object{}
	for _, e := range entries {
		if !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(data)
		list = append(list, Object{e.Name(), int64(len(data)), hex.EncodeToString(sum[:])})
	}
	slices.SortFunc(list, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}
