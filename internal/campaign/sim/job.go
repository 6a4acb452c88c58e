package sim

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"shardlease/internal/campaign"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
	"shardlease/pkg/lease"
)

// patience is how much simulated time a job has before its user kills it.
const patience = 90 * time.Second

// job is one run of mpirun.
type job struct {
	*world
	number  int
	faults  Disturbances // zero when healed
	healed  bool
	cluster *Cluster
	procs   []*crashfs.Process
	script  []scripted
	ops     int             // of file systems
	killAt  int             // the operation before which victim is killed
	victim  int             // a rank, or cutPower
	full    bool            // the disk
	calm    time.Time       // from when on the clocks are left alone: with mistakes for ever, no work would ever end
	pending changers        // of names that no barrier has covered, or failed to cover, yet
	owed    changers        // of names that the disk has forgotten, since another's barrier failed
	failed  map[string]bool // directories in which a barrier has failed
	locks   map[string]int  // lock file of records -> the rank that has a lock in it
	refused refusal
	touched bool // something was done to this job
	lost    bool // a message
	dying   bool // the launcher will kill all ranks
	ended   bool // by force
}

// scripted is something that happens at a given time.
type scripted struct {
	at time.Time
	do func()
}

func newJob(w *world, number int, healed bool) *job {
	j := &job{world: w, number: number, healed: healed, locks: map[string]int{}, pending: changers{}, owed: changers{}, failed: map[string]bool{}, killAt: math.MaxInt}
	if !healed {
		j.faults = w.plan.Disturbances
	}
	w.Jobs++
	return j
}

// run runs the job to its end, checks what it leaves, and makes the disk what the next job finds.
func (j *job) run() {
	opts, ranks := j.options()
	roles, err := campaign.ComputeRoles(ranks, opts.WorkersPerMaster)
	if err != nil {
		panic(err) // options draws no such thing
	}
	j.workers = max(j.workers, roles.WorkerCount())
	j.note("job %d: %d ranks, %d masters, healed %t", j.number, ranks, roles.Masters, j.healed)
	for range ranks {
		j.procs = append(j.procs, j.disk.Process())
	}
	j.cluster, err = New(Config{
		Options: opts, Ranks: ranks, Seed: j.rng.Uint64(), MaxDelay: j.plan.MaxDelay, FS: j.view, Start: j.now, Target: j.target,
		Stdout: io.Discard, Stderr: io.Discard, Copies: j.copies, Env: j.env, Event: j.event(),
	})
	if err != nil {
		panic(err)
	}
	j.plot(ranks, roles.Masters)
	j.loop(j.now.Add(patience))
	root, said := j.cluster.Outcome(0)
	orderly := !j.ended
	for r := range ranks {
		out, done := j.cluster.Outcome(r)
		orderly = orderly && done && out.Orderly
		j.exit(r)
	}
	if !orderly {
		j.Disorderly++
	}
	j.judge(root, said, orderly)
	j.checkDisk(j.disk, "on the disk")
	if p := crashfs.Policy(j.rng.IntN(2)); j.victim == cutPower && j.ended {
		j.disk = j.disk.Crash(p, j.rng.Uint64())
		j.note("power cut, %v policy: %s", p, j.cut())
		j.checkDisk(j.disk, "after the power cut")
	} else {
		j.checkDisk(j.disk.Crash(p, j.rng.Uint64()), "after a power cut at the end of the job")
	}
	if ids := j.epochs(); j.epoch == "" && len(ids) > 0 {
		j.epoch = ids[0]
	}
}

const cutPower = -1

func (j *job) cut() string {
	if j.history == nil {
		return ""
	}
	return j.disk.Cut()
}

// options are those of the job's command line.
func (j *job) options() (o *campaign.Options, ranks int) {
	f := campaign.DefaultFlags()
	f.InputDir, f.OutputDir = inputDir, outputDir
	f.Timeout, f.MaxIdle, f.Target = 3, 0.2, []string{"target"}
	if j.rng.Float64() < j.faults.Wall {
		f.WallTimeout = 3.5 + 3*j.rng.Float64()
		j.touched = true
	}
	masters := j.plan.Masters
	if j.plan.Elastic && !j.healed {
		masters = 1 + j.rng.IntN(3)
	}
	ranks = []int{0, 2 + j.rng.IntN(3), 7 + j.rng.IntN(2), 10}[masters]
	f.WorkersPerMaster = 3
	env := map[string]string{"SYMCC_STANDALONE_WORK_LEASE_TTL": fmt.Sprint(j.plan.TTL.Seconds()), "SYMCC_STANDALONE_WORK_LEASE_SHARDS": fmt.Sprint(j.plan.Shards),
		"SYMCC_STANDALONE_WORK_EPOCH": j.epoch, "SYMCC_SHUTDOWN_GRACE_SEC": "8", "SYMCC_FINALIZE_GRACE_SEC": "2", "SYMCC_STANDALONE_WORK_LOCK_ACQUIRE_TIMEOUT": "0.001"}
	o, err := campaign.NewOptions(f, func(k string) string { return env[k] })
	if err != nil {
		panic(err)
	}
	return o, ranks
}

// env gives a rank its wall clock and its table.
func (j *job) env(rank int, env *campaign.Env) {
	simulated := env.Now
	skew := time.Duration(0)
	if j.plan.Skew > 0 && rank%2 == 1 {
		skew = duration(j.rng.Float64() * j.plan.Skew.Seconds())
	}
	env.Now = func() time.Time { return simulated().Add(j.offset + skew) }
	env.OpenTable = func(root string, opts *lease.Options) (campaign.Table, error) {
		t, err := lease.Open(root, opts)
		return &audited{Table: t, j: j}, err
	}
	if rank == 0 {
		env.Stdout = endWriter{j}
	}
}

func (j *job) event() func(now time.Time, rank int, what string) {
	if j.history == nil {
		return nil
	}
	return func(now time.Time, rank int, what string) {
		j.world.now = now
		j.note("rank %d: %s", rank, what)
	}
}

// loop steps the cluster and carries out the script, until all ranks have ended or are dead.
func (j *job) loop(deadline time.Time) {
	ctx := context.Background()
	for !j.ended {
		at, more := j.cluster.Next()
		for len(j.script) > 0 && (!more || !j.script[0].at.After(at)) {
			next := j.script[0]
			j.script = j.script[1:]
			j.cluster.Wait(next.at)
			j.world.now = j.cluster.Now()
			next.do()
			if j.ended {
				return
			}
			at, more = j.cluster.Next()
		}
		if !more {
			break
		}
		if at.After(deadline) {
			j.note("the user kills the job")
			if !j.lost {
				j.violate(9, "job %d does not end by itself within %s", j.number, patience)
			}
			j.ended = true
			break
		}
		j.world.now = at
		j.cluster.Step(ctx)
		if out, done := j.cluster.Ended(); done && !out.Orderly {
			j.killAllIn(duration(0.5 * j.rng.Float64()))
		} else if done {
			break
		}
	}
	j.world.now = j.cluster.Now()
}

// killAllIn is what the launcher does about a rank that died or gave up, a moment later.
func (j *job) killAllIn(d time.Duration) {
	if j.dying {
		return
	}
	j.dying = true
	j.at(j.now.Add(d), func() {
		j.note("the launcher kills all ranks")
		j.ended = true
	})
}

func (j *job) at(t time.Time, do func()) {
	i, _ := slices.BinarySearchFunc(j.script, t, func(s scripted, t time.Time) int {
		if s.at.After(t) {
			return 1
		}
		return -1
	})
	j.script = slices.Insert(j.script, i, scripted{t, do})
}

// exit is the end of a rank's process.
func (j *job) exit(rank int) {
	j.procs[rank].Kill()
	j.cluster.Kill(rank)
	for name, holder := range j.locks {
		if holder == rank {
			delete(j.locks, name)
		}
	}
}

// judge checks how the job ended, by what rank 0 said if it lived to say it.
func (j *job) judge(out campaign.Outcome, said, orderly bool) {
	if j.healed && (!said || out.Code != campaign.ExitOK) {
		j.violate(10, "the job that was left alone failed: %d, %s", out.Code, out.Reason)
	}
	if !said {
		return
	}
	j.note("job %d ended: %+v", j.number, out)
	switch {
	case strings.Contains(out.Reason, "quiescence was agreed, but"):
		j.violate(7, "job %d: %s", j.number, out.Reason)
	case out.Code == campaign.ExitOK && len(j.epochs()) > 0:
		j.violate(8, "job %d ended well, but the epoch is there", j.number)
	case out.Code != campaign.ExitOK && out.Reason == "":
		j.violate(9, "job %d ended with code %d and no reason", j.number, out.Code)
	case orderly && !j.touched && out.Code != campaign.ExitOK:
		j.violate(9, "job %d failed, though nothing was done to it: %d, %s", j.number, out.Code, out.Reason)
	}
}

// view is the file system of a rank.
func (j *job) view(rank int) vfs.FS {
	return j.procs[rank].WithFaults(func(c *vfs.Call) error { return j.before(rank, c) })
}
