package campaign

import (
	"context"
	"os"
	"sync"
	"time"

	"shardlease/pkg/mpirun/mpi"
)

// Rank is one rank of a campaign on the real clock.
type Rank struct {
	Options   *Options
	Env       *Env
	Transport Transport
	Executor  Executor         // workers only
	Signals   <-chan os.Signal // each asks for an orderly end; nil means none
}

// Run is the outer loop of a rank, the only place with goroutines and a clock: it builds the master or the worker that the rank's number
// makes it, steps it until it ends and returns its outcome.
func Run(ctx context.Context, r Rank) Outcome {
	roles, err := ComputeRoles(r.Transport.Size(), r.Options.WorkersPerMaster)
	if err != nil {
		return Outcome{Code: ExitUnavailable, Orderly: true, Reason: err.Error()}
	}
	rank := r.Transport.Rank()
	var actor Actor
	if roles.IsMaster(rank) {
		actor = NewMaster(r.Options, r.Env, roles, rank)
	} else {
		actor = NewWorker(r.Options, r.Env, roles, rank)
	}
	return Drive(ctx, actor, r.Transport, r.Executor, r.Signals)
}

// Drive steps any actor over a transport until it has ended.
func Drive(ctx context.Context, actor Actor, tr Transport, ex Executor, signals <-chan os.Signal) Outcome {
	ctx, cancel := context.WithCancel(ctx)
	d := &driver{actor: actor, tr: tr, ex: ex, events: make(chan Event, 64)}
	d.start(func() { d.receive(ctx) })
	defer d.running.Wait()
	defer cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var ev Event = Tick{}
		select {
		case ev = <-d.events:
		case sig := <-signals:
			ev = Interrupt{Signal: sig.String()}
		case <-timer.C:
		case <-ctx.Done():
			return Outcome{Code: ExitIncomplete, Reason: context.Cause(ctx).Error()}
		}
		wake, done := d.step(ctx, ev)
		if done {
			return actor.Outcome()
		}
		timer.Stop()
		if !wake.IsZero() {
			timer.Reset(max(0, time.Until(wake)))
		}
	}
}

type driver struct {
	actor   Actor
	tr      Transport
	ex      Executor
	events  chan Event
	running sync.WaitGroup
}

func (d *driver) start(f func()) {
	d.running.Add(1)
	go func() {
		defer d.running.Done()
		f()
	}()
}

// post hands an event to the actor unless it has ended.
func (d *driver) post(ctx context.Context, ev Event) {
	select {
	case d.events <- ev:
	case <-ctx.Done():
	}
}

// step does one step and what it wants done. A message that is not accepted is the next event.
func (d *driver) step(ctx context.Context, ev Event) (wake time.Time, done bool) {
	for ev != nil {
		acts := d.actor.Step(ctx, time.Now(), ev)
		ev = nil
		for _, m := range acts.Send {
			if err := d.tr.Send(ctx, m); err != nil && !acts.Done {
				ev = Failure{err}
			}
		}
		if acts.Exec != nil {
			job := *acts.Exec
			d.start(func() { d.post(ctx, d.ex.Run(ctx, job)) })
		}
		if acts.Lane != nil {
			d.start(func() { d.beat(ctx, acts.Lane) })
		}
		wake, done = acts.Wake, done || acts.Done
		if done {
			return wake, true
		}
	}
	return wake, false
}

func (d *driver) receive(ctx context.Context) {
	for {
		m, err := d.tr.Recv(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			d.post(ctx, Failure{err})
			return
		}
		d.post(ctx, m)
	}
}

// beat runs a heartbeat lane on its own timer. A batch that outlasts its period delays the next, and is cut off before a lease can lapse.
func (d *driver) beat(ctx context.Context, lane *Lane) {
	for {
		timer := time.NewTimer(max(0, time.Until(lane.Due())))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		bounded, cancel := context.WithTimeout(ctx, lane.Timeout())
		b, news := lane.Step(bounded, time.Now())
		cancel()
		if news {
			d.post(ctx, b)
		}
	}
}

// OverMPI is the transport of a rank under mpirun.
func OverMPI(world *mpi.Comm) Transport { return &overMPI{world} }

type overMPI struct{ world *mpi.Comm }

func (t *overMPI) Rank() int { return t.world.Rank() }
func (t *overMPI) Size() int { return t.world.Size() }
func (t *overMPI) Send(ctx context.Context, m Message) error {
	return t.world.Send(ctx, m.To, m.Tag, m.Data)
}

func (t *overMPI) Recv(ctx context.Context) (Message, error) {
	m, err := t.world.Recv(ctx, mpi.AnySource, mpi.AnyTag)
	return Message{From: m.From, To: t.world.Rank(), Tag: m.Tag, Data: m.Data}, err
}

func (t *overMPI) Abort(code int) { t.world.Abort(code) }
