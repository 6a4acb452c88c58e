package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"time"

	"shardlease/experiments/powercut/rig/control"
	"shardlease/experiments/powercut/rig/history"
	"shardlease/experiments/powercut/rig/loopdev"
	"shardlease/experiments/powercut/rig/recdisk"
	"shardlease/experiments/powercut/rig/sweep"
	"shardlease/experiments/powercut/rig/workload"
)

func workloadFlags(flags *flag.FlagSet) *workload.Config {
	var c workload.Config
	flags.Uint64Var(&c.Seed, "seed", 1, "of the workload and of the cuts")
	flags.IntVar(&c.Batches, "batches", 25, "steps of the workload")
	flags.IntVar(&c.Items, "items", 12, "work items")
	flags.IntVar(&c.Shards, "shards", 4, "shards of the table")
	flags.StringVar(&c.Twin, "twin", "", "a broken twin in the product's place: nodir, nofile")
	return &c
}

// runWorkload runs one workload against the disk behind the socket.
func runWorkload(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("workload", flag.ContinueOnError)
	c := workloadFlags(flags)
	socket := flags.String("socket", "", "of the disk's process")
	flags.StringVar(&c.Root, "root", "", "directory on the disk")
	if err := flags.Parse(args); err != nil {
		return err
	}
	client, err := control.Dial(*socket)
	if err != nil {
		return err
	}
	defer client.Close()
	return workload.Run(ctx, *c, func(n history.Note) error { return client.Mark(n) })
}

// outcome is one line of the sweep command's output.
type outcome struct {
	FileSystem string `json:"file_system"`
	Twin       string `json:"twin"`
	Lying      bool   `json:"lying_disk"`
	Seed       uint64 `json:"seed"`
	Batches    int    `json:"batches"`
	sweep.Report
	RecordSeconds float64 `json:"record_s"`
	SweepSeconds  float64 `json:"sweep_s"`
}

// runSweep records once and sweeps; it prints one JSON object.
func runSweep(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("sweep", flag.ContinueOnError)
	c := workloadFlags(flags)
	fsName := flags.String("fs", "ext4", "ext4, xfs or btrfs")
	dir := flags.String("dir", "", "work directory of this program alone; removed before and after")
	lying := flags.Bool("lying", false, "the disk answers flushes and makes nothing durable")
	plan := sweep.Plan{Keep: 3}
	flags.IntVar(&plan.Points, "points", 60, "cut positions; 0 means each")
	flags.BoolVar(&plan.Acks, "acks", false, "cut only right after marks")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" {
		return errors.New("-dir is needed")
	}
	fs, err := loopdev.Find(*fsName)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	plan.Seed = c.Seed
	b := sweep.Bench{Self: self, Dir: *dir, FS: fs}
	defer b.CleanUp()
	start := time.Now()
	rec, err := b.Record(ctx, *c, recdisk.Faults{Lying: *lying})
	if err != nil {
		return err
	}
	recorded := time.Now()
	rep, err := b.Sweep(ctx, rec, *c, plan)
	if err != nil {
		return err
	}
	out := outcome{FileSystem: fs.Name, Twin: c.Twin, Lying: *lying, Seed: c.Seed, Batches: c.Batches, Report: rep,
		RecordSeconds: recorded.Sub(start).Seconds(), SweepSeconds: time.Since(recorded).Seconds()}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// cleanUp undoes what a killed sweep has left in its directory.
func cleanUp(_ context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("usage: rig cleanup DIR")
	}
	return sweep.Bench{Dir: args[0]}.CleanUp()
}
