package sweep

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"

	"shardlease/experiments/powercut/rig/history"
	"shardlease/experiments/powercut/rig/recdisk"
	"shardlease/experiments/powercut/rig/workload"
)

// The ways in which a disk breaks once and is well again afterwards.
const (
	FailedFlush = "flush" // a flush
	FailedWrite = "write" // any write: journal, metadata, content
	FailedData  = "data"  // a write of a record's content: fsync says so once, and then has forgotten it
)

// Broken is what came of one failed request.
type Broken struct {
	Kind string `json:"kind"`
	At   int    `json:"at"`  // which request of its kind, from 1
	Hit  bool   `json:"hit"` // the request was made, and failed
	workload.Outcome
	Tally
	Violations []Violation `json:"violations"`
}

// recordMark is in every write of a record's content and, of all else, in what a journal copies from it.
const recordMark = `"format":"shardlease-record-v1"`

// Breakages lets the disk fail once at each of n requests of each kind, drawn over a whole run. The workload goes on as far as the
// file system lets it. The power is cut at the end, and after each of the next p.Acks acknowledgements; nothing acknowledged, before
// the failure or after, may be lost.
func (b Bench) Breakages(ctx context.Context, c workload.Config, n int, p Plan) ([]Broken, error) {
	c.Survive = true
	sound, _, err := b.Record(ctx, c, recdisk.Faults{}, "")
	if err != nil {
		return nil, err
	}
	totals := map[string]int{}
	for _, e := range sound.Events {
		switch e.Kind {
		case recdisk.Flush:
			totals[FailedFlush]++
		case recdisk.Write:
			totals[FailedWrite]++
			if bytes.Contains(e.Data, []byte(recordMark)) {
				totals[FailedData]++
			}
		}
	}
	rng := rand.New(rand.NewPCG(p.Seed, 3))
	var all []Broken
	for i, kind := range []string{FailedFlush, FailedWrite, FailedData} {
		for k := range n {
			br := Broken{Kind: kind, At: 1 + rng.IntN(max(totals[kind], 1))}
			if err := b.breakOnce(ctx, c, p, &br); err != nil {
				return all, err
			}
			all = append(all, br)
			if p.Tell != nil {
				p.Tell(i*n+k+1, 3*n)
			}
		}
	}
	return all, nil
}

func (b Bench) breakOnce(ctx context.Context, c workload.Config, p Plan, br *Broken) error {
	f := recdisk.Faults{FailWriteAt: br.At}
	switch br.Kind {
	case FailedFlush:
		f = recdisk.Faults{FailFlushAt: br.At}
	case FailedData:
		f.Holding = recordMark
	}
	rec, out, err := b.Record(ctx, c, f, "")
	if err != nil {
		return err
	}
	plan := Plan{Seed: p.Seed, Keep: p.Keep}
	failed := rec.Faults()
	if len(failed) > 0 { // the acknowledgements that come next are the doubtful ones
		acked, err := history.Acks(rec)
		if err != nil {
			return err
		}
		from, _ := slices.BinarySearch(acked, failed[0])
		plan.At = acked[from:min(from+p.Acks, len(acked))]
	}
	rep, err := b.Sweep(ctx, rec, c, plan)
	if err != nil {
		return err
	}
	br.Hit, br.Outcome, br.Tally, br.Violations = len(failed) > 0, out, rep.Cells.Total(), rep.Violations
	return nil
}
