// Package restart runs real campaigns on Open MPI whose ranks are killed and stopped, whose launcher is killed and whose disk is filled, and runs
// them again with the same epoch until they are done.
package restart

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"shardlease/internal/experiment"
	"shardlease/internal/host"
	"shardlease/pkg/mpirun"
)

//go:embed experiment.yaml
var files embed.FS

type params struct {
	Campaigns [][]string `yaml:"campaigns"` // the fault of each job; after them the campaign is left alone
	Processes int        `yaml:"processes"`
	PerMaster int        `yaml:"workers_per_master"`
	Seeds     int        `yaml:"seeds"`
	TTL       int        `yaml:"ttl_s"`
	Sleep     string     `yaml:"target_sleep"`
	MaxIdle   float64    `yaml:"max_idle_s"`
	Grace     int        `yaml:"grace_s"` // of shutdown and finalization each
}

// Restart is the experiment.
type Restart struct {
	spec   *experiment.Spec
	params map[experiment.Scale]params
}

// New reads the experiment's file.
func New() *Restart {
	spec, p := experiment.MustLoad[params]("restart", files)
	return &Restart{spec, p}
}

// Spec returns the experiment's declaration.
func (r *Restart) Spec() *experiment.Spec { return r.spec }

// Programs names the campaign and its target.
func (r *Restart) Programs() []experiment.Program {
	return []experiment.Program{
		{Name: "shardlease", Package: "./cmd/shardlease", Tags: "mpi"},
		{Name: "restart-target", Package: "./experiments/restart/target"},
	}
}

// Run runs the campaigns one after the other.
func (r *Restart) Run(ctx context.Context, env *experiment.Env) error {
	p := r.params[env.Scale]
	launcher, err := mpirun.Find(ctx)
	if err != nil {
		return err
	}
	if err := sweepDisks(); err != nil {
		return err
	}
	for n, faults := range p.Campaigns {
		env.Progress(experiment.Tick{Done: n, Total: len(p.Campaigns), What: "campaign with " + strings.Join(faults, ", ")})
		name := fmt.Sprintf("campaign-%d", n+1)
		c := &campaign{params: p, env: env, launcher: launcher, dir: filepath.Join(env.Dir, name), work: filepath.Join(env.Work, name),
			rng: mathrand.New(mathrand.NewPCG(env.Seed, uint64(n))), mark: markerVariable + "=" + rand.Text()}
		if err := c.run(ctx, faults); err != nil {
			return fmt.Errorf("campaign %d: %w", n+1, err)
		}
	}
	env.Progress(experiment.Tick{Done: len(p.Campaigns), Total: len(p.Campaigns), What: "done"})
	return nil
}

// campaign is one of them: work is thrown away, dir keeps what is recorded.
type campaign struct {
	params
	env       *experiment.Env
	launcher  *mpirun.Launcher
	dir, work string
	out       string // the output directory
	rng       *mathrand.Rand
	epoch     string
	mark      string // in the environment of every process of the campaign
	disk      *disk  // nil unless one is to be filled
	Campaign
}

// mostJobs is when a campaign that does not end is given up; the claims will say so.
const mostJobs = 4

func (c *campaign) run(ctx context.Context, faults []string) (err error) {
	if err := errors.Join(os.MkdirAll(c.dir, 0o755), os.MkdirAll(filepath.Join(c.work, "in"), 0o755), os.MkdirAll(filepath.Join(c.work, "tmp"), 0o755)); err != nil {
		return err
	}
	for i := range c.params.Seeds {
		text := fmt.Sprintf("seed %d: %016x\n", i, c.rng.Uint64())
		if err := os.WriteFile(filepath.Join(c.work, "in", fmt.Sprintf("seed-%02d", i)), []byte(text), 0o644); err != nil {
			return err
		}
	}
	id := make([]byte, 32)
	for i := range id {
		id[i] = byte(c.rng.Uint32())
	}
	c.epoch, c.out = hex.EncodeToString(id), filepath.Join(c.work, "out")
	c.Campaign = Campaign{MPI: c.launcher.Version, Processes: c.params.Processes, Seeds: c.params.Seeds, TTLS: float64(c.TTL),
		Jobs: []Job{}, Objects: []Object{}, Skipped: []string{}}
	masters := (c.params.Processes - 1 + c.PerMaster - 1) / c.PerMaster
	c.Workers = c.params.Processes - min(masters, (c.params.Processes-1)/3)
	if faults, err = c.prepareDisk(faults); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.disk.remove()) }()
	for n := 0; n < len(faults)+mostJobs; n++ {
		fault := none
		if n < len(faults) {
			fault = faults[n]
		}
		job, err := c.job(ctx, fault)
		if err != nil {
			return err
		}
		c.Jobs = append(c.Jobs, job)
		if job.ExitCode == 0 {
			break
		}
	}
	if c.Objects, err = objects(c.out); err != nil {
		return err
	}
	left, err := filepath.Glob(filepath.Join(c.out, ".*standalone-work-*"))
	if err != nil {
		return err
	}
	c.Epochs = len(left)
	return c.keep()
}

// prepareDisk puts the output on a small disk if one is to be filled; without the right to mount, these faults are left out and that is recorded.
func (c *campaign) prepareDisk(faults []string) (kept []string, err error) {
	for _, f := range faults {
		if f != fillDisk {
			kept = append(kept, f)
			continue
		}
		if c.disk == nil {
			d, err := newDisk()
			if errors.Is(err, os.ErrPermission) {
				c.Skipped = append(c.Skipped, fmt.Sprintf("%s: needs the right to mount a tmpfs: %v", f, err))
				fmt.Fprintf(c.env.Log, "skipped: %s\n", c.Skipped[len(c.Skipped)-1])
				continue
			}
			if err != nil {
				return nil, err
			}
			c.disk, c.out = d, filepath.Join(d.dir, "out")
		}
		kept = append(kept, f)
	}
	return kept, nil
}

func (c *campaign) keep() error {
	data, err := experiment.EncodeJSON(c.Campaign)
	if err != nil {
		return err
	}
	errs := []error{os.WriteFile(filepath.Join(c.dir, campaignFile), data, 0o644)}
	for _, name := range []string{executionsFile, outputFile} {
		data, err := os.ReadFile(filepath.Join(c.work, name))
		text := host.WithoutHome(strings.NewReplacer(c.out, "$OUT", c.work, "$WORK", c.env.Root, "$ROOT").Replace(string(data)))
		errs = append(errs, err, os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o644))
	}
	return errors.Join(errs...)
}

// objects lists the corpus.
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
		o := Object{Name: e.Name(), SHA256: fmt.Sprintf("%x", sha256.Sum256(data))}
		if words := strings.Fields(string(data)); len(words) == 3 && words[0] == "mark" {
			o.Mark = words[1]
		}
		list = append(list, o)
	}
	return list, nil
}

// wait polls until done tells that it is, or ctx or the limit ends it.
func wait(ctx context.Context, limit time.Duration, done func() bool) bool {
	for end := time.Now().Add(limit); !done(); {
		if time.Now().After(end) {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
	return true
}
