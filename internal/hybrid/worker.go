package hybrid

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"shardlease/internal/campaign"
	"shardlease/internal/hybrid/afl"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/lease"
)

// coordinator is the rank of the coordinator; all others are workers.
const coordinator = 0

// Env is what a rank works with: everything that a test replaces.
type Env struct {
	FS             vfs.FS
	Now            func() time.Time // wall clock of the lease tables
	Rand           io.Reader
	Stdout, Stderr io.Writer
	// Attach finds the AFL instance; nil means afl.Attach.
	Attach func(ctx context.Context, out, name string) (*afl.Instance, error)
	// Measurer measures inputs with the instance's target; nil means afl-showmap.
	Measurer func(inst *afl.Instance) Measurer
}

func (e *Env) measurer(inst *afl.Instance) Measurer {
	if e.Measurer != nil {
		return e.Measurer(inst)
	}
	return &afl.Showmap{Instance: inst}
}

// Worker runs the solver program on what the coordinator sends, measures what it wrote, and stages what may be new. It holds no lease and
// writes to no queue.
type Worker struct {
	opts *Options
	env  *Env
	rank int

	coverage afl.Coverage // a copy of the coordinator's
	measurer Measurer
	stages   *campaign.Stages
	work     workMsg // in execution
	busy     bool
	out      campaign.Actions
	outcome  campaign.Outcome
	ended    bool
	greeted  bool
}

// NewWorker returns the worker with the given rank.
func NewWorker(opts *Options, env *Env, rank int) *Worker {
	return &Worker{opts: opts, env: env, rank: rank,
		stages: campaign.NewStages(env.FS, filepath.Join(opts.Out, opts.Name, stagingDir), maxOutput)}
}

// Outcome implements campaign.Actor.
func (w *Worker) Outcome() campaign.Outcome { return w.outcome }

// Step implements campaign.Actor. Interrupts are none of a worker's business: the coordinator stops it.
func (w *Worker) Step(ctx context.Context, _ time.Time, ev campaign.Event) campaign.Actions {
	w.out = campaign.Actions{}
	if !w.greeted {
		w.greeted = true
		w.ready("")
	}
	switch ev := ev.(type) {
	case campaign.Message:
		w.receive(ev)
	case campaign.Execution:
		w.finish(ctx, ev)
	case campaign.Failure:
		w.end(campaign.Outcome{Code: campaign.ExitIncomplete, Reason: ev.Err.Error()})
	}
	w.out.Done = w.ended
	return w.out
}

func (w *Worker) end(out campaign.Outcome) {
	w.outcome, w.ended = out, true
	if out.Code != campaign.ExitOK {
		fmt.Fprintf(w.env.Stderr, "[Worker %d] %s\n", w.rank, out.Reason)
	}
}

func (w *Worker) send(tag int, msg any) {
	w.out.Send = append(w.out.Send, campaign.Message{From: w.rank, To: coordinator, Tag: tag, Data: encode(msg)})
}

func (w *Worker) ready(dispatch string) {
	w.send(campaign.TagReady, readyMsg{Schema: schemaReady, Rank: w.rank, Dispatch: dispatch, Settings: w.opts.fingerprint()})
}

func (w *Worker) receive(msg campaign.Message) {
	switch {
	case msg.From != coordinator || w.busy:
	case msg.Tag == campaign.TagWork:
		w.start(msg.Data)
	case msg.Tag == campaign.TagStop:
		ack, _, err := campaign.AckStop(msg.Data, w.rank)
		if err != nil {
			fmt.Fprintf(w.env.Stderr, "[Worker %d] STOP is ignored: %v\n", w.rank, err)
			return
		}
		w.out.Send = append(w.out.Send, campaign.Message{From: w.rank, To: coordinator, Tag: campaign.TagStopAck, Data: ack})
		w.end(campaign.Outcome{Orderly: true})
	}
}

// start brings the coverage up to date, reads the input, whose content must be the announced one, and runs the solver.
func (w *Worker) start(data []byte) {
	m, err := campaign.DecodeStrict[workMsg](data, messageLimit)
	w.work = m
	id, input, delta := lease.ID{}, []byte(nil), afl.Map{}
	if err == nil {
		id, err = lease.ParseID(m.ID)
	}
	if err == nil {
		err = checkPath(m.Path)
	}
	if err == nil {
		err = delta.UnmarshalBinary(m.Delta)
	}
	if err == nil && (m.Schema != schemaWork || m.Instance == nil || m.Base != 0 && m.Base != w.coverage.Version()) {
		err = fmt.Errorf("schema %q, coverage %d on top of %d", m.Schema, m.Base, w.coverage.Version())
	}
	if err != nil {
		w.report(resultMsg{Problem: problemEnvelope, Detail: err.Error()})
		return
	}
	if m.Base == 0 {
		w.coverage = afl.Coverage{}
	}
	w.coverage.Apply(delta, m.Version)
	if w.measurer == nil {
		w.measurer = w.env.measurer(m.Instance)
	}
	sum, err := lease.ParseID(m.SHA256)
	if err == nil {
		input, err = readInput(afl.Input{Path: filepath.Join(w.opts.Out, m.Path), Sum: afl.Sum(sum)})
	}
	if err != nil {
		w.report(resultMsg{Problem: problemInput, Detail: err.Error()})
		return
	}
	w.busy = true
	w.log("start", campaign.Execution{})
	w.out.Exec = &campaign.Job{ID: id, Fence: m.Fence, Input: input}
}

// report sends the result and asks for more.
func (w *Worker) report(r resultMsg) {
	r.Schema, r.Dispatch = schemaResult, w.work.Dispatch
	if r.Outputs == nil {
		r.Outputs = []outputMsg{}
	}
	if len(r.Detail) > 1000 {
		r.Detail = r.Detail[:1000]
	}
	w.send(campaign.TagResult, r)
	w.ready(w.work.Dispatch)
}

// finish turns an execution into a result.
func (w *Worker) finish(ctx context.Context, e campaign.Execution) {
	w.busy = false
	w.log("end", e)
	r := resultMsg{Retcode: e.Retcode, TimedOut: e.TimedOut, Elapsed: max(0, e.Elapsed.Seconds()), Problem: e.Problem, Detail: e.Detail}
	if r.Problem == "" {
		r.Generated = len(e.Outputs)
		if err := w.saveAll(e.Outputs); err != nil {
			r.Problem, r.Detail = problemStage, err.Error()
		}
	}
	if r.Problem == "" {
		w.measureOutputs(ctx, e, &r)
	}
	w.report(r)
}

// measureOutputs keeps the outputs that cover something new, or on which the target crashes or hangs, and stages them.
func (w *Worker) measureOutputs(ctx context.Context, e campaign.Execution, r *resultMsg) {
	outputs := distinct(e.Outputs, e.Input)
	kept, msgs, err := w.filter(ctx, outputs)
	if err != nil {
		r.Problem, r.Detail = problemShowmap, err.Error()
		return
	}
	r.Covered = len(e.Outputs) - len(kept)
	if len(kept) == 0 {
		return
	}
	stage, err := campaign.RandomHex(w.env.Rand, 16)
	if err == nil {
		_, err = w.stages.Write(w.rank, stage, kept)
	}
	if err != nil {
		// What can't be removed now is removed by the next start of this peer.
		r.Problem, r.Detail = problemStage, errors.Join(err, w.stages.Remove(w.rank, stage)).Error()
		return
	}
	slices.SortFunc(msgs, func(a, b outputMsg) int { return strings.Compare(a.SHA256, b.SHA256) })
	r.StagingID, r.Outputs = stage, msgs
}

// distinct drops empty outputs, which AFL++ does not take, repeated ones, and the input itself.
func distinct(outputs []campaign.Output, input []byte) []campaign.Output {
	seen := map[lease.ID]bool{lease.SumID(input): true}
	var kept []campaign.Output
	for _, out := range outputs {
		if sum := lease.SumID(out.Data); len(out.Data) > 0 && len(out.Data) <= afl.MaxInput && !seen[sum] {
			seen[sum] = true
			kept = append(kept, out)
		}
	}
	return kept
}

func (w *Worker) filter(ctx context.Context, outputs []campaign.Output) (kept []campaign.Output, msgs []outputMsg, err error) {
	data := make([][]byte, len(outputs))
	for i := range outputs {
		data[i] = outputs[i].Data
	}
	maps, err := w.measurer.Batch(ctx, data)
	if err != nil {
		return nil, nil, err
	}
	var found afl.Coverage // by this result; the copy of the coordinator's coverage is changed by the coordinator alone
	for i, m := range maps {
		verdict := afl.OK
		if m == nil {
			if m, verdict, err = w.measurer.Measure(ctx, data[i]); err != nil {
				return nil, nil, err
			}
		}
		if verdict == afl.OK && len(found.Add(w.coverage.New(m))) == 0 {
			continue
		}
		raw, err := m.MarshalBinary()
		if err != nil {
			return nil, nil, err
		}
		kept = append(kept, outputs[i])
		msgs = append(msgs, outputMsg{SHA256: lease.SumID(data[i]).String(), Verdict: verdict, Map: raw})
	}
	return kept, msgs, nil
}

// saveAll keeps every output under its sum, for --save-all. These files are for people; nothing depends on them.
func (w *Worker) saveAll(outputs []campaign.Output) error {
	if w.opts.SaveAll == "" {
		return nil
	}
	for _, out := range outputs {
		name := filepath.Join(w.opts.SaveAll, lease.SumID(out.Data).String())
		f, err := w.env.FS.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
		if err != nil {
			return fmt.Errorf("--save-all: %w", err)
		}
		_, err = f.Write(out.Data)
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("--save-all: %w", err)
		}
	}
	return nil
}

// log appends to the execution log, which is for diagnosis and for checkers: it is not synced, and its failures are not the campaign's.
func (w *Worker) log(what string, e campaign.Execution) {
	if w.opts.ExecutionLog == "" {
		return
	}
	line := Execution{SHA256: w.work.SHA256, Fence: w.work.Fence, Rank: w.rank, Event: what, TimeS: unix(w.env.Now()),
		Outputs: len(e.Outputs), Retcode: e.Retcode, TimedOut: e.TimedOut, Problem: e.Problem}
	f, err := w.env.FS.OpenFile(w.opts.ExecutionLog, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err == nil {
		_, err = f.Write(append(encode(line), '\n')) // one write: lines of different ranks don't mix
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		fmt.Fprintf(w.env.Stderr, "[Worker %d] execution log: %s\n", w.rank, campaign.OneLine(err.Error()))
	}
}
