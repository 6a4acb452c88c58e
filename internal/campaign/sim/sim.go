// Package sim runs whole campaigns in one thread: the masters and workers of package campaign over an in-memory network, a simulated clock
// and any vfs.FS. Everything is drawn from one seed and happens in a fixed order, so a run replays exactly, to the last byte written.
//
// A [Cluster] is one job. Run draws a whole campaign from a seed: jobs that crash, are stopped and restarted with the same epoch on a disk that fails,
// until one is left alone and has to finish; see [Plan] for what may happen, and [Invariants] for what must hold.
//
// # A barrier that fails, and those of others
//
// A barrier that fails makes the disk forget every name that it should have covered, whoever changed it. Reads go on showing these names, and the next
// barrier of the directory, of whatever process, succeeds and covers nothing of them (package crashfs). That is what is simulated. Three
// kinds of others have to do with it:
//
//   - Who changes names after the failure has new ones, which its own barrier covers.
//   - Who only reads may see a record that is forgotten. It was acknowledged to nobody, since its writer's barrier failed, and nothing that is
//     acknowledged to another rests on it. A lease or a renewal makes its readers wait. A lease taken from a holder costs that holder its result.
//     A begun commit is begun once more before it is redone. A done record was written over a commit that is durable, after its children were: if a power cut
//     takes it back, the commit is redone. It may even be what lets the epoch retire; then it goes with the epoch. Objects are
//     different, since a done record does rest on them: so masters make what others have published durable by copies of their own (campaign.Corpus.Settle),
//     and so does a later job with the folders of the epoch (campaign.OpenEpoch).
//   - Who has changed names before the failure, and runs its own barrier after it, is the one that no care of its own can help: told that all is well, it
//     would acknowledge what is forgotten. Here its barrier fails too: this is what is left of assumption A3 of package groupcommit. File systems
//     with a journal keep to it by stopping when the journal can't be written. Linux tells a failure to each descriptor that was open when it happened; but
//     a directory is opened for its barrier only, so that is no help.
package sim

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"shardlease/internal/campaign"
	"shardlease/pkg/groupcommit/vfs"
)

// Target stands for the target program: what it does with a job, and for how long. It is called once an execution.
type Target func(rng *rand.Rand, job campaign.Job) (campaign.Execution, time.Duration)

// Config describes a campaign.
type Config struct {
	Options  *campaign.Options
	Ranks    int
	Seed     uint64
	MaxDelay time.Duration // of a message
	FS       func(rank int) vfs.FS
	Start    time.Time
	Skew     func(rank int) time.Duration // of a rank's wall clock; nil means none
	Target   Target
	Stdout   io.Writer
	Stderr   io.Writer
	// Copies is how often a message is delivered: 0 loses it, 2 repeats it; nil means always once.
	Copies func(m campaign.Message) int
	// Env changes a rank's environment before it starts; nil means no change.
	Env func(rank int, env *campaign.Env)
	// Event is called for each event before it is handled, with a line of the history; nil means no history.
	Event func(now time.Time, rank int, what string)
}

// Cluster is a running campaign.
type Cluster struct {
	cfg     Config
	now     time.Time
	net     *campaign.Network
	rng     *rand.Rand
	ranks   []*rankState
	running *task
}

// rankState is one rank: its actor, and what it is waiting for.
type rankState struct {
	actor       campaign.Actor
	step        *task            // suspended
	posted      []campaign.Event // while step was suspended
	wake        time.Time
	lane        *campaign.Lane
	batch       *task // suspended
	exec        *campaign.Execution
	execDue     time.Time
	pausedUntil time.Time
	done        bool
	killed      bool
}

// New starts a campaign; nothing happens before the first Step.
func New(cfg Config) (*Cluster, error) {
	roles, err := campaign.ComputeRoles(cfg.Ranks, cfg.Options.WorkersPerMaster)
	if err != nil {
		return nil, err
	}
	c := &Cluster{cfg: cfg, now: cfg.Start, net: campaign.NewNetwork(cfg.Ranks, cfg.Seed, cfg.MaxDelay), rng: rand.New(rand.NewPCG(cfg.Seed, 1))}
	for rank := range cfg.Ranks {
		skew := time.Duration(0)
		if cfg.Skew != nil {
			skew = cfg.Skew(rank)
		}
		var key [32]byte
		for i := range key {
			key[i] = byte(c.rng.Uint32())
		}
		env := &campaign.Env{FS: cfg.FS(rank), Now: func() time.Time { return c.now.Add(skew) }, Rand: rand.NewChaCha8(key), Stdout: cfg.Stdout, Stderr: cfg.Stderr}
		if cfg.Env != nil {
			cfg.Env(rank, env)
		}
		r := &rankState{wake: cfg.Start}
		if roles.IsMaster(rank) {
			r.actor = campaign.NewMaster(cfg.Options, env, roles, rank)
		} else {
			r.actor = campaign.NewWorker(cfg.Options, env, roles, rank)
		}
		c.ranks = append(c.ranks, r)
	}
	return c, nil
}

// Now is the simulated time.
func (c *Cluster) Now() time.Time { return c.now }

// Pause stops a rank until the given time, as SIGSTOP does: its messages, timers and executions wait.
func (c *Cluster) Pause(rank int, until time.Time) { c.ranks[rank].pausedUntil = until }

// kinds of event, in the order in which simultaneous ones of a rank happen.
const (
	none    = iota
	resumed // of a suspended step
	posted
	message
	executed
	beat
	tick
)

// next is a rank's earliest event.
func (c *Cluster) next(rank int) (at time.Time, kind int) {
	r := c.ranks[rank]
	if r.done || r.killed {
		return time.Time{}, none
	}
	consider := func(t time.Time, k int) {
		if t.Before(r.pausedUntil) {
			t = r.pausedUntil
		}
		if kind == none || t.Before(at) {
			at, kind = t, k
		}
	}
	if r.step != nil {
		consider(r.step.due, resumed)
	} else {
		c.nextOfActor(rank, consider)
	}
	switch {
	case r.batch != nil:
		consider(r.batch.due, beat)
	case r.lane != nil:
		consider(r.lane.Due(), beat)
	}
	if r.step == nil && !r.wake.IsZero() {
		consider(r.wake, tick)
	}
	return at, kind
}

func (c *Cluster) nextOfActor(rank int, consider func(t time.Time, kind int)) {
	r := c.ranks[rank]
	if len(r.posted) > 0 {
		consider(c.now, posted)
	}
	if t, ok := c.net.Next(rank); ok {
		consider(t, message)
	}
	if r.exec != nil {
		consider(r.execDue, executed)
	}
}

// first is the earliest event of all ranks, the lowest rank's first.
func (c *Cluster) first() (rank int, at time.Time, kind int) {
	for r := range c.ranks {
		if t, k := c.next(r); k != none && (kind == none || t.Before(at)) {
			rank, kind, at = r, k, t
		}
	}
	if at.Before(c.now) {
		at = c.now
	}
	return rank, at, kind
}

// Next is when something will happen next, or false if nothing is left to happen.
func (c *Cluster) Next() (time.Time, bool) {
	_, at, kind := c.first()
	return at, kind != none
}

// Wait lets time pass in which nothing happens.
func (c *Cluster) Wait(until time.Time) {
	if until.After(c.now) {
		c.now = until
	}
}

// Step handles the earliest event of all ranks, the lowest rank first. It returns false when nothing is left to happen.
func (c *Cluster) Step(ctx context.Context) bool {
	rank, at, kind := c.first()
	if kind == none {
		return false
	}
	c.now = at
	r := c.ranks[rank]
	switch kind {
	case resumed:
		c.record(rank, "step goes on")
		c.resume(&r.step, r.step)
	case posted:
		ev := r.posted[0]
		r.posted = r.posted[1:]
		c.deliver(ctx, rank, ev)
	case message:
		if m, ok := c.net.Pop(c.now, rank); ok {
			c.record(rank, "message tag %d from %d", m.Tag, m.From)
			c.deliver(ctx, rank, m)
		}
	case executed:
		ev := *r.exec
		r.exec = nil
		c.record(rank, "execution ends")
		c.deliver(ctx, rank, ev)
	case beat:
		c.record(rank, "heartbeat")
		c.beat(ctx, rank)
	case tick:
		r.wake = time.Time{}
		c.deliver(ctx, rank, campaign.Tick{})
	}
	return true
}

// deliver steps a rank's actor with an event, or keeps the event until the step that is suspended has ended.
func (c *Cluster) deliver(ctx context.Context, rank int, ev campaign.Event) {
	r := c.ranks[rank]
	if r.step != nil {
		r.posted = append(r.posted, ev)
		return
	}
	var acts campaign.Actions
	t := newTask(func() { acts = r.actor.Step(ctx, c.now, ev) })
	t.then = func() {
		if !r.killed {
			c.perform(rank, acts)
		}
	}
	c.resume(&r.step, t)
}

// beat starts a rank's heartbeat batch or goes on with it.
func (c *Cluster) beat(ctx context.Context, rank int) {
	r := c.ranks[rank]
	t := r.batch
	if t == nil {
		var b campaign.Beat
		var news bool
		t = newTask(func() { b, news = r.lane.Step(ctx, c.now) })
		t.then = func() {
			if news && !r.killed {
				c.deliver(ctx, rank, b)
			}
		}
	}
	c.resume(&r.batch, t)
}

// Interrupt delivers a signal to a rank now.
func (c *Cluster) Interrupt(ctx context.Context, rank int) {
	c.deliver(ctx, rank, campaign.Interrupt{Signal: "interrupt"})
}

// Inject delivers a message now, whoever it claims to be from.
func (c *Cluster) Inject(ctx context.Context, m campaign.Message) { c.deliver(ctx, m.To, m) }

func (c *Cluster) perform(rank int, acts campaign.Actions) {
	r := c.ranks[rank]
	for _, m := range acts.Send {
		copies := 1
		if c.cfg.Copies != nil {
			copies = c.cfg.Copies(m)
		}
		for range copies {
			if err := c.net.Push(c.now, m); err != nil {
				panic(err) // the actors send to ranks of the world only
			}
		}
	}
	if acts.Exec != nil {
		e, d := c.cfg.Target(c.rng, *acts.Exec)
		e.Job, e.Start, e.Elapsed = *acts.Exec, c.now, d
		r.exec, r.execDue = &e, c.now.Add(d)
		c.record(rank, "execution of %s", acts.Exec.ID)
	}
	if acts.Lane != nil {
		r.lane = acts.Lane
	}
	if !acts.Wake.IsZero() {
		r.wake = acts.Wake
	}
	r.done = r.done || acts.Done
}

func (c *Cluster) record(rank int, format string, args ...any) {
	if c.cfg.Event != nil {
		c.cfg.Event(c.now, rank, fmt.Sprintf(format, args...))
	}
}

// Run steps until rank 0 has ended, or an error if that takes longer than limit of simulated time or some rank gives up disorderly: then
// the job is aborted, as MPI does.
func (c *Cluster) Run(ctx context.Context, limit time.Duration) (campaign.Outcome, error) {
	end := c.now.Add(limit)
	for c.Step(ctx) {
		if out, ended := c.Ended(); ended {
			return out, nil
		}
		if c.now.After(end) {
			return campaign.Outcome{}, fmt.Errorf("the campaign has not ended after %s of simulated time", limit)
		}
	}
	return campaign.Outcome{}, fmt.Errorf("nothing is left to happen, but the campaign has not ended")
}

// Outcome is how a rank has ended, or false if it has not, or was killed.
func (c *Cluster) Outcome(rank int) (campaign.Outcome, bool) {
	r := c.ranks[rank]
	return r.actor.Outcome(), r.done && !r.killed
}

// Ended tells whether all ranks have ended, or one has in a way that aborts the job.
func (c *Cluster) Ended() (campaign.Outcome, bool) {
	all := true
	for _, r := range c.ranks {
		if r.done && !r.actor.Outcome().Orderly {
			return r.actor.Outcome(), true
		}
		all = all && r.done
	}
	return c.ranks[0].actor.Outcome(), all
}
