// Package powercut cuts the power of real file systems that hold lease tables, and breaks their disks (beyond the report's section
// 10.1). The work is done by the rig, a program in a module of its own, so that its FUSE library is no dependency of this project.
package powercut

import (
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"shardlease/internal/child"
	"shardlease/internal/experiment"
)

//go:embed experiment.yaml
var files embed.FS

// params are the parameters of experiment.yaml. Numbers of cuts are per sweep.
type params struct {
	FileSystems []string       `yaml:"file_systems"`
	Strategies  []string       `yaml:"strategies"` // content strategies of the product, and one-flush (renewals, on serial contents)
	Every       []string       `yaml:"every"`      // strategies for which each position is cut, instead of points and acks
	BreakWith   []string       `yaml:"break_with"` // strategies for which the disk is broken as well
	Seeds       int            `yaml:"seeds"`      // product sweeps
	Batches     int            `yaml:"batches"`
	Points      map[string]int `yaml:"points"` // by file system: their recoveries take different times
	Acks        int            `yaml:"acks"`
	Again       int            `yaml:"again"` // states that are cut a second time
	AgainPoints int            `yaml:"again_points"`
	TwinAcks    int            `yaml:"twin_acks"`
	Breakages   int            `yaml:"breakages"` // of each kind of request
}

// PowerCut is the experiment.
type PowerCut struct {
	spec   *experiment.Spec
	params map[experiment.Scale]params
}

// New reads the experiment's file.
func New() *PowerCut {
	spec, p := experiment.MustLoad[params]("powercut", files)
	return &PowerCut{spec, p}
}

// Spec returns the experiment's declaration.
func (x *PowerCut) Spec() *experiment.Spec { return x.spec }

const rig = "powercut-rig"

// Programs names the rig.
func (x *PowerCut) Programs() []experiment.Program {
	return []experiment.Program{{Name: rig, Module: "experiments/powercut/rig", Package: "."}}
}

// What a run of the rig stands for: the product, or something broken on purpose.
const (
	product = "product"
	nodir   = "nodir"
	nofile  = "nofile"
	lying   = "lying"
	retry   = "retry"
)

// oneFlush stands in the list of strategies for one-flush renewals.
const oneFlush = "one-flush"

// job is one run of the rig.
type job struct {
	Run
	args []string
}

// jobs lists all runs of a file system that can be used.
func (p params) jobs(fs string, seed uint64) []job {
	var list []job
	add := func(command, strategy, kind string, seed uint64, args ...string) {
		args = append([]string{command, "-fs", fs, "-seed", strconv.FormatUint(seed, 10), "-batches", strconv.Itoa(p.Batches)}, args...)
		if strategy == oneFlush {
			args = append(args, "-one-flush")
		} else {
			args = append(args, "-strategy", strategy)
		}
		list = append(list, job{Run{FileSystem: fs, Strategy: strategy, Command: command, Kind: kind, Seed: seed}, args})
	}
	number := strconv.Itoa
	for _, strategy := range p.Strategies {
		for i := range p.Seeds {
			args := []string{"-points", number(p.Points[fs]), "-acks", number(p.Acks), "-again", number(p.Again), "-again-points", number(p.AgainPoints)}
			if slices.Contains(p.Every, strategy) {
				args = append(args, "-every")
			}
			add("sweep", strategy, product, seed+uint64(i), args...)
		}
		for _, twin := range []string{nodir, nofile} {
			add("sweep", strategy, twin, seed, "-acks", number(p.TwinAcks), "-twin", twin)
		}
		add("sweep", strategy, lying, seed, "-acks", number(p.TwinAcks), "-lying")
		if !slices.Contains(p.BreakWith, strategy) {
			continue
		}
		args := []string{"-n", number(p.Breakages), "-acks", "2"}
		if fs == "btrfs" { // else it keeps a record inside its metadata, where a failed write stops the whole file system
			args = append(args, "-o", "max_inline=0")
		}
		add("broken", strategy, product, seed, args...)
		add("broken", strategy, retry, seed, append(args, "-twin", retry)...)
	}
	return list
}

// Run runs the rig for each file system that this host can use. Where it can't, the reason is recorded instead.
func (x *PowerCut) Run(ctx context.Context, env *experiment.Env) error {
	p := x.params[env.Scale]
	out := Raw{Scale: string(env.Scale), Skipped: map[string]string{}}
	var jobs []job
	for _, fs := range p.FileSystems {
		if why := unusable(ctx, fs); why != "" {
			fmt.Fprintf(env.Log, "%s: %s\n", fs, why)
			out.Skipped[fs] = why
			continue
		}
		jobs = append(jobs, p.jobs(fs, env.Seed)...)
	}
	if len(jobs) > 0 {
		if err := x.runAll(ctx, env, jobs); err != nil {
			return err
		}
	}
	for _, j := range jobs {
		out.Runs = append(out.Runs, j.Run)
	}
	data, err := experiment.EncodeJSON(out)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(env.Dir, rawFile), data, 0o644)
}

// runAll runs the jobs on as many benches as there are processors, each with a directory of its own.
func (x *PowerCut) runAll(ctx context.Context, env *experiment.Env, jobs []job) (err error) {
	base := bench(env.Work)
	workers := min(runtime.NumCPU(), len(jobs))
	defer func() { err = errors.Join(err, cleanUp(context.WithoutCancel(ctx), env, base)) }()
	if err := cleanUp(ctx, env, base); err != nil { // what a killed run has left
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	todo := make(chan int, len(jobs))
	for i := range jobs {
		todo <- i
	}
	close(todo)
	prog := newProgress(env, len(jobs))
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range todo {
				if ctx.Err() != nil {
					return
				}
				if err := x.runOne(ctx, env, &jobs[i], filepath.Join(base, strconv.Itoa(w)), prog.of(i, jobs[i].name())); err != nil {
					cancel(fmt.Errorf("%s: %w", jobs[i].name(), err))
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (j *job) name() string {
	return fmt.Sprintf("%s %s, %s, strategy %s, seed %d", j.FileSystem, j.Command, j.Kind, j.Strategy, j.Seed)
}

func (x *PowerCut) runOne(ctx context.Context, env *experiment.Env, j *job, dir string, log *progressWriter) error {
	result := filepath.Join(env.Work, fmt.Sprintf("%x.json", sha256.Sum256([]byte(j.name()))))
	args := append(j.args, "-dir", dir, "-out", result)
	if err := child.Run(ctx, child.Cmd{Name: filepath.Join(env.Bin, rig), Args: args, Stderr: log}); err != nil {
		return err
	}
	log.done()
	return j.read(result)
}

// bench is the directory of all benches: always the same one for the same folder of runs, so that the next run finds what a
// killed one has left; in memory if there is room for the images.
func bench(work string) string {
	runs := filepath.Dir(work)
	const memory, room = "/dev/shm", 2 << 30
	var st unix.Statfs_t
	if err := unix.Statfs(memory, &st); err == nil && st.Bavail*uint64(st.Bsize) > room {
		return filepath.Join(memory, fmt.Sprintf("shardlease-powercut-%x", sha256.Sum256([]byte(runs)))[:len(memory)+32])
	}
	return filepath.Join(runs, "powercut.partial")
}

// cleanUp undoes the benches below base, however many an earlier run has had.
func cleanUp(ctx context.Context, env *experiment.Env, base string) error {
	entries, err := os.ReadDir(base)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, child.Run(ctx, child.Cmd{Name: filepath.Join(env.Bin, rig), Args: []string{"cleanup", filepath.Join(base, e.Name())}, Stderr: env.Log}))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(base)
}
