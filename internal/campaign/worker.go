package campaign

import (
	"context"
	"errors"
	"fmt"

	"io/fs"
	"math/rand/v2"
	"os"
	"time"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/lease"
)

// Worker executes the target on what its master sends, one item at a time, and leaves the outputs in a stage. It holds no lease and
// never writes to the corpus.
type Worker struct {
	opts   *Options
	env    *Env
	roles  Roles
	rank   int // world rank
	master int
	group  int // rank among the master's workers, from 1

	start   *startMsg
	corpus  *Corpus
	stages  *Stages
	busy    bool
	ended   bool
	out     Actions
	outcome Outcome
}

// NewWorker returns the worker with the given world rank.
func NewWorker(opts *Options, env *Env, roles Roles, rank int) *Worker {
	master, group := roles.MasterOf(rank)
	return &Worker{opts: opts, env: env, roles: roles, rank: rank, master: master, group: group}
}

// Outcome implements Actor.
func (w *Worker) Outcome() Outcome { return w.outcome }

// Step implements Actor. Interrupts are none of a worker's business: its master stops it.
func (w *Worker) Step(_ context.Context, now time.Time, ev Event) Actions {
	w.out = Actions{}
	switch ev := ev.(type) {
	case Message:
		w.receive(now, ev)
	case Execution:
		w.finish(now, ev)
	case Failure:
		w.end(Outcome{Code: ExitIncomplete, Reason: ev.Err.Error()})
	}
	w.out.Done = w.ended
	return w.out
}

func (w *Worker) end(out Outcome) {
	w.outcome, w.ended = out, true
	if out.Code != ExitOK {
		fmt.Fprintf(w.env.Stderr, "[Worker %d] %s\n", w.rank, out.Reason)
	}
}

func (w *Worker) send(tag int, msg any) {
	w.out.Send = append(w.out.Send, Message{From: w.rank, To: w.master, Tag: tag, Data: mustMarshal(msg)})
}

func (w *Worker) ready() { w.send(TagReady, readyMsg{Schema: schemaReady, Rank: w.group}) }

// receive ignores what is malformed or from the wrong rank: masters are not quarantined, and one that waits in vain for an answer
// fails by its own time limit.
func (w *Worker) receive(now time.Time, msg Message) {
	switch {
	case msg.Tag == TagStart && msg.From == 0 && w.start == nil:
		start, err := decodeStart(msg.Data)
		if err != nil {
			return
		}
		if own := w.opts.fingerprint(); own != start.Settings {
			w.end(Outcome{Code: ExitUsage, Reason: fmt.Sprintf("rank %d was started with other settings than rank 0 (give all ranks the same options and environment): %s instead of %s",
				w.rank, own, start.Settings)})
			return
		}
		w.start = &start
		epoch := Epoch{out: start.OutputDir, ID: start.Epoch}
		w.corpus = NewCorpus(w.env.FS, start.OutputDir, w.opts.InputMaxBytes, writerName(start.Epoch, w.rank))
		w.stages = NewStages(w.env.FS, epoch.Staging(), w.opts.ResultMaxBytes)
		w.ready()
	case msg.Tag == TagHalt && msg.From == 0 && w.start == nil:
		if h, err := decodeHalt(msg.Data); err == nil && h.Kind == stopStart {
			w.end(Outcome{Orderly: true}) // rank 0 has said why
		}
	case msg.Tag == TagWork && msg.From == w.master && w.start != nil && !w.busy:
		w.work(now, msg.Data)
	case msg.Tag == TagStop && msg.From == w.master && w.start != nil && !w.busy:
		ack, token, err := AckStop(msg.Data, w.group)
		if err != nil || token != ShutdownToken(w.start.ShutdownEpoch, w.group) {
			return
		}
		w.out.Send = append(w.out.Send, Message{From: w.rank, To: w.master, Tag: TagStopAck, Data: ack})
		w.end(Outcome{Orderly: true})
	}
}

// work reads the input, whose digest must be right, and starts the execution.
func (w *Worker) work(now time.Time, data []byte) {
	m, err := decodeWork(data)
	var id lease.ID
	if err == nil {
		id, err = lease.ParseID(m.Hash)
	}
	if err != nil {
		w.refuse(Job{}, errWorkEnvelope, err)
		return
	}
	job := Job{ID: id, Fence: m.Fence}
	job.Input, err = w.corpus.Read(id)
	if errors.Is(err, vfs.ErrTooLarge) {
		w.refuse(job, ErrInputBudget, err)
		return
	}
	if err != nil {
		w.refuse(job, errInputCopy, err)
		return
	}
	w.log(job, "start", now, Execution{})
	w.busy = true
	w.out.Exec = &job
}

func (w *Worker) refuse(job Job, problem string, err error) {
	w.send(TagResult, w.result(Execution{Job: job, Problem: problem, Detail: err.Error()}, nil, ""))
	w.ready()
}

func (w *Worker) result(e Execution, hashes []string, stage string) resultMsg {
	r := resultMsg{Schema: schemaResult, InputHash: e.ID.String(), Fence: e.Fence, NewHashes: hashes, StagingID: stage, NumGenerated: len(e.Outputs),
		Retcode: e.Retcode, TimedOut: e.TimedOut, Elapsed: max(0, e.Elapsed.Seconds()), ProtocolError: e.Problem, Detail: e.Detail}
	if r.NewHashes == nil {
		r.NewHashes = []string{}
	}
	if e.Problem != "" {
		r.NumGenerated = len(hashes)
	}
	for _, o := range e.Outputs {
		r.StagedBytes += int64(len(o.Data))
	}
	if len(r.Detail) > 1000 {
		r.Detail = r.Detail[:1000]
	}
	return r
}

// finish stages the outputs and reports.
func (w *Worker) finish(now time.Time, e Execution) {
	w.busy = false
	w.log(e.Job, "end", now, e)
	if w.opts.Simulate && e.Problem == "" && len(e.Outputs) == 0 {
		e.Outputs = mutations(e.Job, w.opts)
	}
	var hashes []string
	var stage string
	if e.Problem == "" {
		e.Problem, e.Detail = w.overBudget(e.Outputs)
	}
	if e.Problem == "" && len(e.Outputs) > 0 {
		var err error
		if stage, err = RandomHex(w.env.Rand, 16); err == nil {
			hashes, err = w.stages.Write(w.rank, stage, e.Outputs)
		}
		if err != nil {
			e.Problem, e.Detail, hashes, stage = errPublication, err.Error(), nil, ""
		}
	}
	w.send(TagResult, w.result(e, hashes, stage))
	w.ready()
}

// overBudget holds executors, whatever they are, to the budgets.
func (w *Worker) overBudget(outputs []Output) (problem, detail string) {
	var bytes int64
	for _, o := range outputs {
		bytes += int64(len(o.Data))
	}
	if len(outputs) > w.opts.ResultMaxObjects || bytes > w.opts.ResultMaxBytes {
		return ErrResultBudget, fmt.Sprintf("%d files with %d bytes", len(outputs), bytes)
	}
	return "", ""
}

// log appends to the execution log, which is for diagnosis and for checkers: it is not synced, and its failures are not the campaign's.
func (w *Worker) log(job Job, what string, now time.Time, e Execution) {
	if w.opts.ExecutionLog == "" {
		return
	}
	line := mustMarshal(executionLine{ID: job.ID.String(), Fence: job.Fence, Rank: w.rank, Event: what, Time: now.UTC().Format(time.RFC3339Nano),
		Retcode: e.Retcode, TimedOut: e.TimedOut, Problem: e.Problem})
	f, err := w.env.FS.OpenFile(w.opts.ExecutionLog, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err == nil {
		_, err = f.Write(append(line, '\n')) // one write: lines of different ranks don't mix
		err = errors.Join(err, f.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrClosed) {
		fmt.Fprintf(w.env.Stderr, "[Worker %d] execution log: %s\n", w.rank, OneLine(err.Error()))
	}
}

// executionLine is one line of the execution log.
type executionLine struct {
	ID       string `json:"id"`
	Fence    uint64 `json:"fence"`
	Rank     int    `json:"rank"`
	Event    string `json:"event"` // start or end
	Time     string `json:"time"`
	Retcode  int    `json:"retcode"`
	TimedOut bool   `json:"timed_out"`
	Problem  string `json:"problem"`
}

// mutations are the five children that --simulate makes of an input whose target wrote nothing. They depend on the input alone, so that
// a repeated execution gives the same children.
func mutations(job Job, o *Options) []Output {
	rng := rand.NewChaCha8([32]byte(job.ID))
	var outputs []Output
	for i := range 5 {
		data := append([]byte{}, job.Input...)
		if len(data) == 0 {
			data = []byte{0}
		}
		for range 1 + rng.Uint64()%4 {
			data[rng.Uint64()%uint64(len(data))] = byte(rng.Uint64())
		}
		if i < o.ResultMaxObjects && int64(len(data))*int64(i+1) <= o.ResultMaxBytes {
			outputs = append(outputs, Output{Name: fmt.Sprintf("simulated-%d", i), Data: data})
		}
	}
	return outputs
}
