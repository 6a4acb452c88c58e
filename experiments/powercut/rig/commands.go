package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"shardlease/experiments/powercut/rig/control"
	"shardlease/experiments/powercut/rig/history"
	"shardlease/experiments/powercut/rig/loopdev"
	"shardlease/experiments/powercut/rig/recdisk"
	"shardlease/experiments/powercut/rig/sweep"
	"shardlease/experiments/powercut/rig/vm"
	"shardlease/experiments/powercut/rig/workload"
)

// runWorkload runs one workload against the disk behind the socket, and prints its outcome.
func runWorkload(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("workload", flag.ContinueOnError)
	socket := flags.String("socket", "", "of the disk's process")
	config := flags.String("config", "{}", "the workload as JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var c workload.Config
	if err := json.Unmarshal([]byte(*config), &c); err != nil {
		return fmt.Errorf("-config: %w", err)
	}
	client, err := control.Dial(*socket)
	if err != nil {
		return err
	}
	defer client.Close()
	out, err := workload.Run(ctx, c, func(n history.Note) error { return client.Mark(n) })
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// job is what sweep and broken have in common.
type job struct {
	bench  sweep.Bench
	config workload.Config
	plan   sweep.Plan
	out    string
	start  time.Time
}

// parse reads the common flags, locks the work directory and undoes what an earlier run has left there.
func parse(ctx context.Context, flags *flag.FlagSet, args []string) (*job, func(), error) {
	j := &job{config: workload.Default, plan: sweep.Plan{Keep: 3, Tell: tell()}, start: time.Now()}
	flags.Uint64Var(&j.config.Seed, "seed", j.config.Seed, "of the workload, of the cuts and of what survives")
	flags.IntVar(&j.config.Batches, "batches", j.config.Batches, "steps of each lane of the workload")
	flags.TextVar(&j.config.Strategy, "strategy", j.config.Strategy, "content strategy of the tables: serial, overlapped, wholefs, spare, spare-overlapped, spare-wholefs")
	flags.BoolVar(&j.config.OneFlush, "one-flush", false, "renew all leases of a lane with one flush")
	flags.IntVar(&j.config.Lanes, "lanes", j.config.Lanes, "goroutines of the workload")
	flags.StringVar(&j.config.Twin, "twin", "", fmt.Sprintf("a broken twin in the product's place: one of %v, %v", workload.CutTwins, workload.BrokenDiskTwins))
	name := flags.String("fs", "ext4", "ext4, xfs or btrfs")
	flags.StringVar(&j.bench.Options, "o", "", "mount options")
	flags.StringVar(&j.bench.Dir, "dir", "", "work directory of this program alone; removed before and after")
	flags.StringVar(&j.out, "out", "", "file for the result, one JSON object; default is standard output")
	flags.IntVar(&j.plan.Acks, "acks", 0, "cut positions right after acknowledgements")
	if err := flags.Parse(args); err != nil {
		return nil, nil, err
	}
	if flags.NArg() > 0 {
		return nil, nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if j.bench.Dir == "" {
		return nil, nil, errors.New("-dir is needed")
	}
	var err error
	if j.bench.FS, err = loopdev.Find(*name); err != nil {
		return nil, nil, err
	}
	if j.bench.Self, err = os.Executable(); err != nil {
		return nil, nil, err
	}
	j.plan.Seed = j.config.Seed
	unlock, err := j.bench.Lock(ctx)
	if err != nil {
		return nil, nil, err
	}
	return j, func() {
		if err := errors.Join(j.bench.CleanUp(), unlock()); err != nil {
			fmt.Fprintf(os.Stderr, "rig: clean up: %v\n", err)
		}
	}, nil
}

// tell prints progress lines, which the experiment reads, a few in a second.
func tell() func(done, total int) {
	var last time.Time
	return func(done, total int) {
		if done == total || time.Since(last) > 300*time.Millisecond {
			last = time.Now()
			fmt.Fprintf(os.Stderr, "progress %d/%d\n", done, total)
		}
	}
}

func (j *job) print(v any) (err error) {
	w := io.WriteCloser(os.Stdout)
	if j.out != "" {
		if w, err = os.Create(j.out); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.Close()) }()
	}
	return json.NewEncoder(w).Encode(v)
}

// runSweep records once and sweeps.
func runSweep(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("sweep", flag.ContinueOnError)
	points := flags.Int("points", 0, "cut positions drawn from all")
	every := flags.Bool("every", false, "cut at each position")
	lying := flags.Bool("lying", false, "the disk answers flushes and makes nothing durable")
	again := flags.Int("again", 0, "states in which the power is cut a second time")
	againPoints := flags.Int("again-points", 4, "second cuts in each of them, and as many right after acknowledgements")
	j, done, err := parse(ctx, flags, args)
	if err != nil {
		return err
	}
	defer done()
	j.plan.Every, j.plan.Points, j.plan.Again, j.plan.AgainPoints = *every, *points, *again, *againPoints
	rec, out, err := j.bench.Record(ctx, j.config, recdisk.Faults{Lying: *lying}, "")
	if err != nil {
		return err
	}
	recorded := time.Now()
	rep, err := j.bench.Sweep(ctx, rec, j.config, j.plan)
	if err != nil {
		return err
	}
	return j.print(struct {
		Operations int `json:"operations"`
		sweep.Report
		RecordSeconds float64 `json:"record_s"`
		SweepSeconds  float64 `json:"sweep_s"`
	}{out.Acked, rep, recorded.Sub(j.start).Seconds(), time.Since(recorded).Seconds()})
}

// runBroken lets the disk fail once, at many places.
func runBroken(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("broken", flag.ContinueOnError)
	n := flags.Int("n", 5, "failed flushes, as many failed writes, and as many failed writes of record contents")
	j, done, err := parse(ctx, flags, args)
	if err != nil {
		return err
	}
	defer done()
	all, err := j.bench.Breakages(ctx, j.config, *n, j.plan)
	if err != nil {
		return err
	}
	return j.print(struct {
		Breakages []sweep.Broken `json:"breakages"`
		Seconds   float64        `json:"s"`
	}{all, time.Since(j.start).Seconds()})
}

// cleanUp undoes what a killed rig has left in its directory.
func cleanUp(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("usage: rig cleanup DIR")
	}
	b := sweep.Bench{Dir: args[0]}
	unlock, err := b.Lock(ctx)
	if err != nil {
		return err
	}
	return errors.Join(b.CleanUp(), unlock())
}

// runReboot kills virtual machines in the middle of their work and boots them again, and sweeps the first life's recording.
func runReboot(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("reboot", flag.ContinueOnError)
	kernel := flags.String("kernel", "", "directory into which a linux-image-cloud-amd64 package was unpacked")
	cycles := flags.Int("cycles", 3, "machines to kill")
	points := flags.Int("points", 0, "cut positions drawn from all of the first machine's recording")
	lying := flags.Bool("lying", false, "the disk answers flushes and makes nothing durable")
	j, done, err := parse(ctx, flags, args)
	if err != nil {
		return err
	}
	defer done()
	r := &sweep.Reboot{Bench: j.bench}
	if r.Kernel, err = vm.FindKernel(*kernel); err != nil {
		return err
	}
	undo, err := r.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, undo()) }()
	rec, all, err := r.Cycles(ctx, j.config, *cycles, *lying)
	if err != nil {
		return err
	}
	j.plan.Points = *points
	rep, err := r.Sweep(ctx, rec, j.config, j.plan)
	if err != nil {
		return err
	}
	return j.print(struct {
		Cycles []sweep.Cycle `json:"cycles"`
		Hung   int           `json:"hung"`
		sweep.Report
		Seconds float64 `json:"s"`
	}{all, r.Hung, rep, time.Since(j.start).Seconds()})
}
