package hybrid

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"shardlease/internal/campaign"
	"shardlease/internal/hybrid/afl"
	"shardlease/pkg/lease"
)

type phase int

const (
	starting phase = iota
	running
	stopping // workers are being stopped
	settling // the last heartbeat is running
	ended
)

const (
	scanInterval   = 500 * time.Millisecond
	sampleInterval = 2 * time.Second
	pollInterval   = 50 * time.Millisecond
)

// maxAttempts is how often an input is run without a result before it is parked.
const maxAttempts = 3

// workerState is what the coordinator knows of one worker.
type workerState struct {
	rank        int
	available   bool
	quarantined bool
	version     uint64 // of its coverage
	sequence    uint64 // dispatches so far
	dispatch    string // token of the last one
	job         *job
}

// job is a dispatched item.
type job struct {
	candidate   *candidate
	reservation reservation
}

// Master coordinates: it scans AFL's queue, leases, dispatches, decides what of the results is new, and publishes it.
type Master struct {
	opts *Options
	env  *Env
	site *site // nil until started

	phase       phase
	now         time.Time
	out         campaign.Actions
	startTime   time.Time
	epoch       string // of dispatch and shutdown tokens
	lane        *campaign.Lane
	inputs      *inputs
	crashes     afl.Coverage
	hangs       afl.Coverage
	workers     []workerState
	baseline    bool // all that was there at the start is measured
	lastScan    time.Time
	nextScan    time.Time
	nextRedo    time.Time
	nextRecover time.Time
	nextSample  time.Time
	nextAlive   time.Time
	idleSince   time.Time
	complained  map[string]bool
	unsettled   int // begun commits that could not be finished when they were last tried

	counters Tally
	beats    Counters // as last printed
	code     int
	reason   string
	shutdown *campaign.Shutdown
	outcome  campaign.Outcome
}

// NewMaster returns the coordinator of a campaign with workers 1..workers.
func NewMaster(opts *Options, env *Env, workers int) *Master {
	m := &Master{opts: opts, env: env, complained: map[string]bool{}}
	for rank := 1; rank <= workers; rank++ {
		m.workers = append(m.workers, workerState{rank: rank})
	}
	return m
}

// Outcome implements campaign.Actor.
func (m *Master) Outcome() campaign.Outcome { return m.outcome }

// Step implements campaign.Actor.
func (m *Master) Step(ctx context.Context, now time.Time, ev campaign.Event) campaign.Actions {
	m.now, m.out = now, campaign.Actions{}
	if m.phase == starting {
		m.begin(ctx)
	}
	switch ev := ev.(type) {
	case campaign.Message:
		m.receive(ctx, ev)
	case campaign.Beat:
		m.counters.LostLeases += len(ev.Lost)
	case campaign.Interrupt:
		m.stop(campaign.ExitOK, "interrupted by "+ev.Signal)
	case campaign.Failure:
		m.stop(campaign.ExitIncomplete, ev.Err.Error())
	}
	if m.phase == running {
		m.work(ctx)
	}
	if m.phase == stopping {
		m.awaitWorkers()
	}
	if m.phase == settling {
		m.settle(ctx)
	}
	m.out.Done = m.phase == ended
	return m.out
}

// begin attaches and opens everything. On a failure the workers are stopped in good order, so that the job ends with the right code.
func (m *Master) begin(ctx context.Context) {
	m.startTime = m.now
	m.phase = running
	epoch, err := campaign.RandomHex(m.env.Rand, 16)
	if err != nil {
		m.stop(campaign.ExitIncomplete, err.Error())
		return
	}
	m.epoch = epoch
	if m.opts.StatsJSON != "" {
		if err := campaign.ClearStats(m.env.FS, m.opts.StatsJSON); err != nil {
			m.stop(campaign.ExitCantCreate, err.Error())
			return
		}
	}
	s, err := open(ctx, m.opts, m.env)
	if err != nil {
		m.stop(startCode(err), err.Error())
		return
	}
	m.site = s
	m.inputs = newInputs(m.opts.Out, m.opts.Instance, m.opts.Name, m.env.measurer(s.inst))
	if s.own.work != nil {
		m.lane = campaign.NewLane(s.own.entry, s.own.held, m.opts.HeartbeatInterval(), m.now)
		m.out.Lane = m.lane
	}
	printHeader(m.env.Stdout, m.opts, s.inst, len(m.workers))
	s.log.add(Event{Event: EventStart, Detail: fmt.Sprint(s.inst.Target)})
	unsettled, err := m.redo(ctx)
	if err == nil {
		err = s.publisher.sweep(unsettled)
	}
	m.complain("clean up", err)
}

// work is one turn of a running campaign.
func (m *Master) work(ctx context.Context) {
	m.checkEnd()
	if m.phase == running {
		m.look(ctx)
	}
	if m.phase != running {
		return
	}
	if m.baseline {
		m.takeOver(ctx)
		m.dispatch(ctx)
	}
	m.sample()
	if m.out.Wake.IsZero() {
		m.out.Wake = m.now.Add(pollInterval)
	}
}

// checkEnd looks for the reasons to stop that are no failures. A hybrid campaign has no end of its own.
func (m *Master) checkEnd() {
	if m.opts.WallTimeout > 0 && m.now.Sub(m.startTime) >= m.opts.WallTimeout {
		m.stop(campaign.ExitOK, "wall timeout")
		return
	}
	if !m.now.Before(m.nextAlive) {
		m.nextAlive = m.now.Add(time.Second)
		if !m.site.inst.Running() {
			m.stop(campaign.ExitOK, fmt.Sprintf("AFL instance %s has ended", m.opts.Instance))
			return
		}
	}
	if m.busy() > 0 || !m.baseline || !m.inputs.idle() {
		m.idleSince = m.now
	}
	// What was published last is found by the next scan, however short MaxIdle is.
	if m.opts.MaxIdle > 0 && m.now.Sub(m.idleSince) >= m.opts.MaxIdle && m.lastScan.After(m.idleSince) {
		m.stop(campaign.ExitOK, fmt.Sprintf("nothing to do for %s", m.opts.MaxIdle))
	}
}

// look scans the queues when that is due and measures some of what was found.
func (m *Master) look(ctx context.Context) {
	if !m.now.Before(m.nextScan) {
		m.lastScan, m.nextScan = m.now, m.now.Add(scanInterval)
		m.complain("scan", m.inputs.scan())
	}
	if len(m.inputs.unmeasured) > 0 {
		if err := m.inputs.measure(ctx); err != nil {
			if !m.baseline {
				m.stop(campaign.ExitNoInput, fmt.Sprintf("no input of AFL instance %s can be measured: %v", m.opts.Instance, err))
				return
			}
			m.counters.MeasureErrors++
			m.complain("measure", err)
			m.out.Wake = m.now.Add(scanInterval)
			return
		}
		m.out.Wake = m.now // there may be more
	}
	if len(m.inputs.unmeasured) == 0 && !m.baseline {
		m.baseline = true
		fmt.Fprintf(m.env.Stdout, "[Master] Baseline: %d inputs, %d edges\n", len(m.inputs.known), m.inputs.coverage.Edges())
	}
}

// takeOver looks for begun commits of the dead, and for expired leases when workers are free.
func (m *Master) takeOver(ctx context.Context) {
	if m.site.own.work == nil {
		return
	}
	period := max(scanInterval, m.opts.HeartbeatInterval())
	if !m.now.Before(m.nextRedo) {
		m.nextRedo = m.now.Add(period)
		_, err := m.redo(ctx)
		m.complain("redo", err)
	}
	// A turn that finds no free worker must not use up the time of the next look: else a busy coordinator would never look.
	if m.busy() < len(m.workers) && !m.now.Before(m.nextRecover) {
		m.nextRecover = m.now.Add(period)
		m.complain("recover", m.recoverExpired(ctx))
	}
}

// redo finishes the commits that somebody has begun, and returns the stages that are still needed because that failed.
func (m *Master) redo(ctx context.Context) (needed map[string]bool, err error) {
	needed = map[string]bool{}
	if m.site.own.work == nil {
		return needed, nil
	}
	records, err := m.site.own.work.Committing(ctx, 0)
	var errs []error
	for _, rec := range records {
		first, rerr := m.site.publisher.redo(ctx, m.site.own.work, rec)
		switch {
		case first:
			m.counters.Redone++
			m.idleSince = m.now
			m.site.log.add(Event{Event: EventRedo, SHA256: payloadSum(rec), Fence: rec.Token.Fence})
		case errors.Is(rerr, lease.ErrLocked): // its coordinator lives and is at just this
			rerr = nil
		}
		if rerr != nil {
			errs = append(errs, rerr)
			if man, err := decodeManifest(rec.Manifest); err == nil {
				needed[man.StagingID] = true
			}
		}
	}
	m.unsettled = len(errs)
	return needed, errors.Join(append(errs, err)...)
}

// recoverExpired makes candidates of up to max(1, active) expired leases. An item whose seed is gone is given up for good.
func (m *Master) recoverExpired(ctx context.Context) error {
	records, err := m.site.own.work.Expired(ctx, max(1, m.busy()))
	errs := []error{err}
	for _, rec := range records {
		it, sum, err := decodeItem(rec)
		if err != nil {
			errs = append(errs, fmt.Errorf("an expired lease is left alone: %w", err)) // somebody else's kind of work
			continue
		}
		if err := m.inputs.recover(it, sum); err != nil {
			m.counters.Unrecoverable++
			errs = append(errs, fmt.Errorf("expired lease %s can't be recovered: %w", rec.ID, err), m.abandonExpired(ctx, rec))
		}
	}
	return errors.Join(errs...)
}

// abandonExpired takes an expired lease and gives it back, so that it is not found again each time.
func (m *Master) abandonExpired(ctx context.Context, rec lease.Record) error {
	tok, err := m.site.own.work.Claim(ctx, rec.ID, rec.Payload, lease.Holder{Owner: m.opts.MasterID})
	if err != nil {
		if errors.Is(err, lease.ErrHeld) {
			return nil
		}
		return err
	}
	return m.site.own.work.Abandon(ctx, rec.ID, tok)
}

// busy is the number of workers at work.
func (m *Master) busy() int {
	n := 0
	for i := range m.workers {
		if m.workers[i].job != nil {
			n++
		}
	}
	return n
}

// complain prints a trouble the first time it occurs in this form. It is no failure of the campaign: what could not be done is tried again.
func (m *Master) complain(what string, err error) {
	if err == nil {
		return
	}
	m.counters.Troubles++
	text := fmt.Sprintf("%s: %s", what, campaign.OneLine(err.Error()))
	if !m.complained[text] && len(m.complained) < math.MaxUint8 {
		m.complained[text] = true
		fmt.Fprintf(m.env.Stderr, "[Master] %s\n", text)
	}
}

// dispatchToken names one dispatch to one worker.
func dispatchToken(epoch string, worker int, sequence uint64) string {
	sum := sha256.Sum256([]byte("symcc-dispatch-v1\x00" + epoch + "\x00" + strconv.Itoa(worker) + "\x00" + strconv.FormatUint(sequence, 10)))
	return fmt.Sprintf("%x", sum)
}

func payloadSum(rec lease.Record) string {
	it, _, err := decodeItem(rec)
	if err != nil {
		return ""
	}
	return it.SHA256
}
