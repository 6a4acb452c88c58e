package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/lease"
)

// Table is what a master uses of *lease.Table.
type Table interface {
	Beater
	Claim(ctx context.Context, id lease.ID, payload json.RawMessage, by lease.Holder) (lease.Token, error)
	TakeOver(ctx context.Context, id lease.ID, payload json.RawMessage, by lease.Holder) (lease.Token, error)
	BeginCommit(ctx context.Context, id lease.ID, tok lease.Token, manifest json.RawMessage) error
	Complete(ctx context.Context, id lease.ID, tok lease.Token, publish func(context.Context, json.RawMessage) error) (bool, error)
	Abandon(ctx context.Context, id lease.ID, tok lease.Token) error
	Records(ctx context.Context) iter.Seq2[lease.Record, error]
	Expired(ctx context.Context, limit int) ([]lease.Record, error)
	Committing(ctx context.Context, limit int) ([]lease.Record, error)
	Counts(ctx context.Context) (lease.Counts, error)
	Close() error
}

// Env is what a rank works with: everything that a simulation replaces.
type Env struct {
	FS     vfs.FS
	Now    func() time.Time // wall clock of the lease table
	Rand   io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// OpenTable opens a lease table; nil means lease.Open.
	OpenTable func(root string, opts *lease.Options) (Table, error)
}

func (e *Env) openTable(root string, opts *lease.Options) (Table, error) {
	if e.OpenTable != nil {
		return e.OpenTable(root, opts)
	}
	return lease.Open(root, opts)
}

type phase int

const (
	waiting   phase = iota // for START
	running                // import, scan, dispatch, quiescence
	stopping               // workers are being stopped
	settling               // the last heartbeat batch is running
	reporting              // statistics are being exchanged
	ended
)

// Why a master stops.
const (
	stopComplete  = "complete"
	stopWall      = "wall timeout"
	stopInterrupt = "interrupted"
	stopFailure   = "control failure"
	stopStart     = "start failure" // of rank 0, before START
)

// item is a leased piece of work.
type item struct {
	id     lease.ID
	token  lease.Token
	origin string
}

// workerState is what a master knows of one of its workers.
type workerState struct {
	rank        int // world rank
	available   bool
	active      *item
	quarantined bool
}

// Master coordinates: it imports, leases, dispatches, commits and, together with the other masters, decides when the campaign is over.
type Master struct {
	opts  *Options
	env   *Env
	roles Roles
	rank  int

	phase    phase
	now      time.Time
	out      Actions
	epoch    *Epoch
	resumed  bool
	table    Table
	lane     *Lane
	laneFile Table // the lane's own handle
	held     *Holdings
	corpus   *Corpus
	stages   *Stages
	inputs   *Inputs

	started    bool // the start-up work is done
	startTime  time.Time
	backlog    []task
	nextInputs time.Time
	nextScan   time.Time
	nextLine   time.Time
	origins    map[lease.ID]string // of input files seen
	known      map[lease.ID]bool   // public objects looked at
	unclaimed  []item              // to be leased when there is room; no tokens yet
	pending    []item
	workers    []workerState
	parked     []string
	counters   Counters
	announced  bool // "Waiting for inputs..."
	temporary  bool // the output directory goes with the campaign
	// undiscovered says that the master stopped before it had looked at everything.
	undiscovered bool
	failure      error
	stopReason   string

	quiet    quiescence
	shutdown *Shutdown
	report   reportState
	run      startMsg
	outcome  Outcome
}

// task is one unit of background work; a step does a few, so that messages and the clock are looked at in between.
type task func(ctx context.Context) error

// tasksPerStep bounds the background work of one step.
const tasksPerStep = 8

// NewMaster returns the master with the given world rank.
func NewMaster(opts *Options, env *Env, roles Roles, rank int) *Master {
	own := *opts // rank 0 decides the output directory, see begin
	m := &Master{opts: &own, env: env, roles: roles, rank: rank, held: NewHoldings(),
		origins: map[lease.ID]string{}, known: map[lease.ID]bool{}}
	for _, w := range roles.Workers[rank] {
		m.workers = append(m.workers, workerState{rank: w})
	}
	m.quiet.peers = make([]peerStatus, roles.Masters)
	return m
}

// Outcome implements Actor.
func (m *Master) Outcome() Outcome { return m.outcome }

// Step implements Actor.
func (m *Master) Step(ctx context.Context, now time.Time, ev Event) Actions {
	m.now = now
	m.out = Actions{}
	if m.phase == waiting && m.rank == 0 {
		m.begin(ctx)
	}
	m.handle(ctx, ev)
	m.advance(ctx)
	return m.out
}

func (m *Master) handle(ctx context.Context, ev Event) {
	switch ev := ev.(type) {
	case Message:
		m.receive(ctx, ev)
	case Beat:
		m.counters.LostLeases += len(ev.Lost)
		m.purge()
		if ev.Err != nil {
			m.fail(fmt.Errorf("work lease heartbeat failed: %w", ev.Err))
		}
	case Interrupt:
		m.stop(stopInterrupt, ev.Signal)
	case Failure:
		if m.shutdown != nil {
			m.shutdown.CommErrors = append(m.shutdown.CommErrors, ev.Err.Error())
		}
		m.fail(fmt.Errorf("communication: %w", ev.Err))
	}
}

func (m *Master) advance(ctx context.Context) {
	if m.phase == running {
		m.advanceRunning(ctx)
	}
	if m.phase == stopping {
		m.advanceStopping(ctx)
	}
	if m.phase == settling {
		m.settle()
	}
	if m.phase == reporting {
		m.advanceReport(ctx)
	}
	m.out.Done = m.phase == ended
}

func (m *Master) advanceRunning(ctx context.Context) {
	if m.opts.WallTimeout > 0 && m.now.Sub(m.startTime) >= m.opts.WallTimeout {
		m.stop(stopWall, "")
		return
	}
	m.background(ctx)
	if m.phase != running {
		return
	}
	m.dispatch(ctx)
	m.progress()
	m.advanceQuiescence(ctx)
	if m.phase != running {
		return
	}
	wake := min(m.opts.StatusInterval(), 50*time.Millisecond)
	if len(m.backlog) > 0 {
		wake = 0
	}
	m.wakeIn(wake)
}

func (m *Master) wakeIn(d time.Duration) { m.out.Wake = m.now.Add(d) }

func (m *Master) send(to, tag int, msg any) { m.sendRaw(to, tag, mustMarshal(msg)) }

func (m *Master) sendRaw(to, tag int, data []byte) {
	m.out.Send = append(m.out.Send, Message{From: m.rank, To: to, Tag: tag, Data: data})
}

// sendPeers sends to all other masters.
func (m *Master) sendPeers(tag int, msg any) {
	for peer := range m.roles.Masters {
		if peer != m.rank {
			m.send(peer, tag, msg)
		}
	}
}

// fail is a control failure: the campaign can't go on safely. Leases and records stay for the next run of the epoch.
func (m *Master) fail(err error) {
	if m.phase == waiting {
		m.giveUp(ExitIncomplete, err)
		return
	}
	if m.failure == nil {
		m.failure = err
		m.reportFailure(err)
	}
	m.stop(stopFailure, Brief(err.Error()))
}

// reportFailure prints one line for the user: the first cause and how many others there are. Those are in the log, which standard output is,
// and in the statistics.
func (m *Master) reportFailure(err error) {
	fmt.Fprintf(m.env.Stderr, "[Master %d] Global work control failure: %s\n", m.rank, Brief(err.Error()))
	if causes := lines(err.Error()); len(causes) > 1 {
		for _, cause := range causes[1:] {
			fmt.Fprintf(m.env.Stdout, "[Master %d] Further cause of the control failure: %s\n", m.rank, cause)
		}
	}
}

// stop leaves the running phase: no more discovery and dispatch, but results in flight are still committed. The other masters are told, unless all
// have agreed. A master that still waits for START is told to stop by rank 0, which gets the same signals.
func (m *Master) stop(reason, detail string) {
	if m.phase != running {
		return
	}
	m.stopReason = reason
	if reason != stopComplete {
		m.sendPeers(TagHalt, haltMsg{Schema: schemaHalt, Rank: m.rank, Kind: reason, Detail: detail})
	}
	m.undiscovered = !m.started || len(m.backlog) > 0
	m.backlog = nil
	m.phase = stopping
	m.shutdown = NewShutdown(m.run.ShutdownEpoch, len(m.workers), m.now, m.opts.ShutdownGrace)
}

// receive dispatches a message by tag. What is malformed, stale or from the wrong rank is counted and otherwise ignored.
func (m *Master) receive(ctx context.Context, msg Message) {
	_, group := m.roles.MasterOf(msg.From)
	if owner, _ := m.roles.MasterOf(msg.From); owner != m.rank {
		group = 0
	}
	var err error
	switch msg.Tag {
	case TagReady:
		err = m.receiveReady(group, msg.Data)
	case TagResult:
		err = m.receiveResult(ctx, group, msg.Data)
	case TagStopAck:
		if m.shutdown == nil {
			err = errors.New("acknowledgement of no shutdown")
		} else {
			m.shutdown.Ack(group, msg.Data, m.now)
		}
	case TagStart:
		err = m.receiveStart(ctx, msg)
	default:
		err = m.receivePeer(ctx, msg)
	}
	if err != nil {
		m.counters.QuarantinedControl++
	}
}

func (m *Master) receiveReady(group int, data []byte) error {
	r, err := decodeMsg(data, controlLimit, func(r readyMsg) string { return r.Schema }, schemaReady)
	if err != nil {
		return err
	}
	if group == 0 || r.Rank != group {
		return fmt.Errorf("READY of rank %d from another rank", r.Rank)
	}
	m.workers[group-1].available = true
	return nil
}

// receivePeer handles what comes from other masters.
func (m *Master) receivePeer(ctx context.Context, msg Message) error {
	if !m.roles.IsMaster(msg.From) || msg.From == m.rank {
		return fmt.Errorf("tag %d from rank %d", msg.Tag, msg.From)
	}
	switch msg.Tag {
	case TagStatus, TagProbe, TagProbeReply, TagQuiesce, TagQuiesceAck:
		return m.receiveQuiescence(ctx, msg)
	case TagStats, TagStatsAck:
		return m.receiveReport(msg)
	case TagHalt:
		h, err := decodeHalt(msg.Data)
		if err != nil || h.Rank != msg.From {
			return errors.Join(err, errors.New("halt"))
		}
		switch h.Kind {
		case stopFailure:
			m.fail(fmt.Errorf("master %d: %s", h.Rank, h.Detail))
		case stopWall, stopInterrupt:
			m.stop(h.Kind, h.Detail)
		case stopStart:
			if m.phase != waiting || h.Rank != 0 {
				return errors.New("start failure after the start")
			}
			m.finish(Outcome{Orderly: true}) // rank 0 has said why
		default:
			return fmt.Errorf("halt kind %q", h.Kind)
		}
		return nil
	}
	return fmt.Errorf("unknown tag %d", msg.Tag)
}

// progress prints the reference's progress line every two seconds, on rank 0.
func (m *Master) progress() {
	if m.rank != 0 || m.now.Before(m.nextLine) {
		return
	}
	m.nextLine = m.now.Add(2 * time.Second)
	busy := 0
	for _, w := range m.workers {
		if w.active != nil {
			busy++
		}
	}
	c := m.counters
	fmt.Fprintf(m.env.Stdout, "[Master] %d generated, %d interesting, %d analyzed, %d busy (%.1f tc/s)\n",
		c.Generated, c.Interesting, c.Analyzed, busy, m.rate(c.Generated))
}

func (m *Master) rate(n int) float64 {
	if d := m.now.Sub(m.startTime).Seconds(); d > 0 {
		return float64(n) / d
	}
	return 0
}
