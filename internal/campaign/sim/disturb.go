package sim

import (
	"context"
	"math"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"time"

	"shardlease/internal/campaign"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/lease"
)

// plot draws what will be done to the job, and when.
func (j *job) plot(ranks, masters int) {
	const span = 6.0 // seconds; most jobs end within it
	later := func() time.Time { return j.now.Add(duration(j.rng.Float64() * span)) }
	j.calm = j.now.Add(duration(span))
	happens := func(chance float64) bool { return j.rng.Float64() < chance }
	j.victim = j.rng.IntN(ranks)
	if happens(j.faults.PowerCut) {
		j.victim = cutPower
		j.killAt = int(logUniform(j.rng, 10, 5000))
	} else if happens(j.faults.Kill) {
		j.killAt = int(logUniform(j.rng, 10, 5000))
	}
	if happens(j.faults.Interrupt) {
		for rank := range masters {
			j.at(later(), func() { j.interrupt(rank) })
		}
	}
	if happens(j.faults.Full) {
		j.at(later(), func() {
			j.note("the disk is full from now on")
			j.full, j.touched = true, true
		})
	}
	for range j.poisson(j.faults.Pauses * span) {
		rank, d := j.rng.IntN(ranks), duration(j.rng.Float64()*3*j.plan.TTL.Seconds())
		j.at(later(), func() {
			j.Pauses++
			j.leasesAtRisk()
			j.note("rank %d stands still for %s", rank, d)
			j.cluster.Pause(rank, j.now.Add(d))
		})
	}
	for range j.poisson(j.faults.Jumps * span) {
		d := duration(logUniform(j.rng, 0.1, 3600))
		if happens(0.5) {
			d = -d
		}
		at := later()
		j.at(at, func() { j.jump(d) })
		if happens(0.5) { // a mistake that is put right
			j.at(at.Add(duration(j.rng.Float64()*2)), func() { j.jump(-d) })
		}
	}
	if !j.healed && j.plan.LateInputs > 0 {
		for range j.plan.LateInputs {
			j.at(later(), func() {
				j.note("another input")
				j.addInput()
			})
		}
	}
}

func (j *job) poisson(mean float64) (n int) {
	for p := j.rng.Float64(); p > math.Exp(-mean); p *= j.rng.Float64() {
		n++
	}
	return n
}

// leasesAtRisk counts what a disturbance may let lapse: each lease may cost an execution.
func (j *job) leasesAtRisk() {
	j.touched = true
	for _, r := range j.look(j.disk).records {
		if r.Status == lease.Leased {
			j.AtRisk++
		}
	}
}

func (j *job) jump(d time.Duration) {
	j.Jumps++
	j.leasesAtRisk()
	j.offset += d
	j.note("all clocks jump by %s", d)
}

// target is world.target, around whose end all clocks may be fast for a moment: a result that comes meanwhile is stale, and when the mistake has been put
// right its lease is alive again, but nobody has it.
func (j *job) target(rng *rand.Rand, job campaign.Job) (campaign.Execution, time.Duration) {
	e, took := j.world.target(rng, job)
	if j.now.Before(j.calm) && j.rng.Float64() < j.faults.Fast {
		d := duration(logUniform(j.rng, 1, 3600))
		from := j.now.Add(duration(j.rng.Float64() * took.Seconds()))
		j.at(from, func() { j.jump(d) })
		j.at(j.now.Add(took+duration(0.3*j.rng.Float64())), func() { j.jump(-d) })
	}
	return e, took
}

func (j *job) interrupt(rank int) {
	if _, done := j.cluster.Outcome(rank); done || j.dying {
		return
	}
	j.Interrupts++
	j.touched = true
	j.note("rank %d is interrupted", rank)
	j.cluster.Interrupt(context.Background(), rank)
}

// copies loses or repeats control messages. MPI does neither, but what the protocol survives is worth knowing. Assignments and results are left
// alone: they are each other's acknowledgement, so without them the job waits for ever.
func (j *job) copies(m campaign.Message) int {
	if m.Tag == campaign.TagWork || m.Tag == campaign.TagResult || m.Tag == campaign.TagStart {
		return 1
	}
	switch p := j.rng.Float64(); {
	case p < j.faults.Loss:
		j.Lost++
		j.lost, j.touched = true, true
		j.note("a message with tag %d from %d to %d is lost", m.Tag, m.From, m.To)
		return 0
	case p < j.faults.Loss+j.faults.Copies:
		j.Repeated++
		return 2
	}
	return 1
}

// before is called before each operation of a rank's file system. It may kill, fail or suspend.
func (j *job) before(rank int, c *vfs.Call) error {
	records := c.Op == vfs.OpLock && filepath.Base(filepath.Dir(c.Name)) == "locks"
	if records && j.refused == (refusal{rank, c.Name, j.now}) {
		return vfs.ErrLocked // the table polls in real time, which must not show
	}
	j.ops++
	j.Operations++
	if j.ops == j.killAt {
		j.strike()
	}
	switch c.Op {
	case vfs.OpUnlock:
		if j.locks[c.Name] == rank {
			delete(j.locks, c.Name)
		}
		return nil
	case vfs.OpClose:
		return nil
	case vfs.OpLock:
		if records {
			return j.await(rank, c.Name)
		}
		return nil
	case vfs.OpRenameNoReplace:
		if filepath.Dir(c.NewName) == outputDir {
			j.checkRetirement()
		}
	}
	j.dawdle(rank, c)
	return j.fail(c)
}

// strike is the end of one rank or of all.
func (j *job) strike() {
	j.touched = true
	if j.victim == cutPower {
		j.PowerCuts++
		j.note("the power is cut")
		for rank := range j.procs {
			j.exit(rank)
		}
		j.ended = true
		return
	}
	if _, done := j.cluster.Outcome(j.victim); done {
		return
	}
	j.Kills++
	j.note("rank %d is killed", j.victim)
	j.exit(j.victim)
	j.killAllIn(duration(j.rng.Float64()))
}

// dawdle makes an operation slow, so that others go on in the middle of a step.
func (j *job) dawdle(rank int, c *vfs.Call) {
	p := j.rng.Float64()
	var d time.Duration
	switch {
	case p < j.faults.Hangs:
		d = duration((0.3 + 2*j.rng.Float64()) * j.plan.TTL.Seconds())
		j.Hangs++
		j.leasesAtRisk()
		j.note("%s %s of rank %d hangs for %s", c.Op, c.Name, rank, d)
	case p < j.faults.Hangs+j.faults.Slow:
		d = duration(0.005 * j.rng.ExpFloat64())
		j.Suspended++
	default:
		return
	}
	j.cluster.Sleep(rank, d)
}

// refusal is a lock that was not acquired, at the time of the last attempt.
type refusal struct {
	rank int
	name string
	at   time.Time
}

// lockPatience is how long a rank waits for a record's lock; the table's own limit is real time and is set as low as it gets.
const lockPatience = 100 * time.Millisecond

// await waits in simulated time while another rank holds a lock in the same lock file.
func (j *job) await(rank int, name string) error {
	for end := j.now.Add(lockPatience); ; {
		holder, taken := j.locks[name]
		if !taken {
			j.locks[name] = rank
			return nil
		}
		if !j.now.Before(end) || j.cluster.ranks[rank].killed {
			j.Errors++
			j.touched = true
			j.note("rank %d gets no lock in %s, where rank %d has one", rank, name, holder)
			j.refused = refusal{rank, name, j.now}
			return vfs.ErrLocked
		}
		j.Suspended++
		j.cluster.Sleep(rank, 2*time.Millisecond)
	}
}

// fail decides over the disk, and keeps account of who is to learn of a barrier that failed: see the package comment.
func (j *job) fail(c *vfs.Call) error {
	var err error
	writes := c.Op == vfs.OpWrite || c.Op == vfs.OpWriteAt || c.Op == vfs.OpMkdir || c.Op == vfs.OpLink || c.Op == vfs.OpOpen && c.Flag&syscall.O_CREAT != 0
	rate := j.faults.Errors
	if c.Op == vfs.OpSync || c.Op == vfs.OpSyncDir {
		rate *= 10 // the failure that is told late, and once
	}
	switch p := j.rng.Float64(); {
	case c.Op == vfs.OpSyncDir && j.owed[c.Name][j.cluster.running]:
		err = syscall.EIO
	case j.full && writes:
		err = syscall.ENOSPC
	case p >= rate:
		j.succeeds(c)
		return nil
	case writes && j.rng.IntN(2) == 0:
		err = syscall.ENOSPC
	default:
		err = syscall.EIO
	}
	if c.Op == vfs.OpSyncDir {
		j.barrierFailed(c.Name)
	}
	j.Errors++
	j.touched = true
	j.note("%s %s fails: %v", c.Op, c.Name, err)
	return err
}

// changers are steps and heartbeat batches that have changed names, by directory.
type changers map[string]map[*task]bool

func (c changers) add(dir string, t *task) {
	if c[dir] == nil {
		c[dir] = map[*task]bool{}
	}
	c[dir][t] = true
}

// succeeds notes what an operation that is about to succeed changes or covers.
func (j *job) succeeds(c *vfs.Call) {
	switch c.Op {
	case vfs.OpSyncDir:
		if j.failed[c.Name] {
			j.AfterFailed++
		}
		delete(j.pending, c.Name)
	case vfs.OpRename, vfs.OpRenameNoReplace, vfs.OpLink:
		j.pending.add(filepath.Dir(c.NewName), j.cluster.running)
	case vfs.OpMkdir, vfs.OpRemove:
		j.pending.add(filepath.Dir(c.Name), j.cluster.running)
	}
}

// barrierFailed makes the failure known to everybody whose changes are forgotten now, at their own barriers.
func (j *job) barrierFailed(dir string) {
	for t := range j.pending[dir] {
		j.owed.add(dir, t)
	}
	delete(j.owed[dir], j.cluster.running)
	delete(j.pending, dir)
	j.failed[dir] = true
}
