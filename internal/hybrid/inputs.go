package hybrid

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"shardlease/internal/hybrid/afl"
	"shardlease/pkg/lease"
)

// Measurer says what a target covers on an input; *afl.Showmap does.
type Measurer interface {
	Measure(ctx context.Context, data []byte) (afl.Map, afl.Verdict, error)
	Batch(ctx context.Context, inputs [][]byte) ([]afl.Map, error)
}

// candidate is an input that the coordinator knows.
type candidate struct {
	input     afl.Input
	targets   []uint64 // the branches it is aimed at
	state     candidateState
	notBefore time.Time // held by another, or in trouble: don't try earlier
	attempts  int       // runs without a result
	recovered bool      // its lease had expired
}

type candidateState int

const (
	waiting  candidateState = iota
	active                  // dispatched
	finished                // analysed, by us or by another, or parked
)

// inputs are everything there is to do: what the queues hold, measured once, and how promising it is.
type inputs struct {
	out      string
	scanner  *afl.Scanner
	measurer Measurer
	coverage *afl.Coverage
	yield    afl.Yield

	unmeasured []afl.Input
	known      map[afl.Sum]*candidate
	own        map[afl.Sum]afl.Map // what the children we have published brought, which is covered already
	unmeasurable,
	skipped int // the second: vanished before they could be measured
}

func newInputs(out, instance, name string, measurer Measurer) *inputs {
	return &inputs{
		out: out, measurer: measurer, coverage: &afl.Coverage{}, yield: afl.Yield{},
		scanner: afl.NewScanner(filepath.Join(out, instance, "queue"), filepath.Join(out, name, "queue")),
		known:   map[afl.Sum]*candidate{}, own: map[afl.Sum]afl.Map{},
	}
}

// scan looks for new inputs. What it finds has to be measured before it is a candidate.
func (in *inputs) scan() error {
	fresh, err := in.scanner.Scan()
	in.unmeasured = append(in.unmeasured, fresh...)
	return err
}

// measureChunk bounds the inputs that are measured in one step of the coordinator, so that messages are looked at in between.
const measureChunk = 64

// measure turns the next unmeasured inputs into candidates. An error means that not a single one could be measured: they stay unmeasured.
func (in *inputs) measure(ctx context.Context) error {
	chunk := in.unmeasured[:min(measureChunk, len(in.unmeasured))]
	var toRun []afl.Input
	var data [][]byte
	for _, input := range chunk {
		if brought, ok := in.own[input.Sum]; ok {
			in.add(input, brought)
			continue
		}
		content, err := readInput(input)
		if err != nil {
			in.skipped++ // gone or trimmed since the scan; a rewritten file is found again under its new sum
			continue
		}
		toRun, data = append(toRun, input), append(data, content)
	}
	maps, err := in.batch(ctx, data)
	if err != nil {
		return err
	}
	for i, input := range toRun {
		in.add(input, in.coverage.Add(maps[i]))
	}
	in.unmeasured = in.unmeasured[len(chunk):]
	return nil
}

// batch measures together, and one by one if that fails, so that an input which afl-showmap can't take does not hide the others.
func (in *inputs) batch(ctx context.Context, data [][]byte) ([]afl.Map, error) {
	maps, err := in.measurer.Batch(ctx, data)
	if err == nil {
		return maps, nil
	}
	maps = make([]afl.Map, len(data))
	failed := 0
	for i := range data {
		m, verdict, merr := in.measurer.Measure(ctx, data[i])
		switch {
		case merr != nil:
			failed++
		case verdict == afl.OK:
			maps[i] = m
		}
	}
	if failed == len(data) {
		return nil, err
	}
	in.unmeasurable += failed
	return maps, nil
}

// add makes a candidate. It is aimed at the branches that it was the first to cover: from there the unexplored ones start, and a second
// input that another coordinator has found for the same branch would lead a solver to the same flips.
func (in *inputs) add(input afl.Input, brought afl.Map) {
	c := in.known[input.Sum]
	if c == nil {
		c = &candidate{input: input}
		in.known[input.Sum] = c
	}
	c.targets = nil
	for _, cell := range brought[:min(len(brought), lease.MaxGroup)] {
		c.targets = append(c.targets, uint64(cell.Edge)+1) // branch targets count from 1
	}
}

// recover makes a candidate of a work record whose lease has expired. Its seed must still be there.
func (in *inputs) recover(it item, sum lease.ID) error {
	c := in.known[afl.Sum(sum)]
	if c == nil {
		path := filepath.Join(in.out, it.Path)
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		input := afl.Input{Path: path, Sum: afl.Sum(sum), Size: info.Size(), Modified: info.ModTime()}
		if _, err := readInput(input); err != nil {
			return err
		}
		c = &candidate{input: input, targets: it.Targets}
		in.known[input.Sum] = c
	}
	if c.state != active {
		c.state, c.notBefore, c.recovered = waiting, time.Time{}, true
	}
	return nil
}

// errChanged says that a queue file does not hold what it held when it was scanned.
var errChanged = errors.New("content has changed since the queue was scanned")

func readInput(input afl.Input) ([]byte, error) {
	data, err := os.ReadFile(input.Path)
	if err != nil {
		return nil, err
	}
	if afl.Sum(lease.SumID(data)) != input.Sum {
		return nil, &fs.PathError{Op: "read", Path: input.Path, Err: errChanged}
	}
	return data, nil
}

// best returns up to limit candidates to try now, recovered ones first, then by score.
func (in *inputs) best(now time.Time, limit int) []*candidate {
	var ready []afl.Input
	for _, c := range in.known {
		if c.state == waiting && !c.notBefore.After(now) {
			ready = append(ready, c.input)
		}
	}
	top := afl.Top(ready, limit, func(input afl.Input) float64 {
		score := afl.Score(input, now, in.yield.Rate(input.Origin))
		if in.known[input.Sum].recovered {
			score += 1000 // it has waited for a whole lease already
		}
		return score
	})
	candidates := make([]*candidate, len(top))
	for i, input := range top {
		candidates[i] = in.known[input.Sum]
	}
	return candidates
}

// idle tells that nothing is left to measure or to try, now or later.
func (in *inputs) idle() bool {
	for _, c := range in.known {
		if c.state != finished {
			return false
		}
	}
	return len(in.unmeasured) == 0
}

// payload describes the work on a candidate to whoever may have to take it over.
func (in *inputs) payload(c *candidate) (item, error) {
	path, err := filepath.Rel(in.out, c.input.Path)
	if err != nil {
		return item{}, fmt.Errorf("input %s: %w", c.input.Path, err)
	}
	it := item{Path: path, Schema: schemaItem, SHA256: lease.ID(c.input.Sum).String(), Strategy: strategy, Targets: c.targets}
	if len(c.targets) > 0 {
		it.TargetBranch = c.targets[0]
	}
	return it, nil
}

// sourceNumber is the number of a queue entry, -1 if its name has none.
func sourceNumber(path string) int {
	number, _, _ := strings.Cut(filepath.Base(path), ",")
	if n, err := strconv.Atoi(strings.TrimPrefix(number, "id:")); err == nil && n >= 0 {
		return n
	}
	return -1
}
