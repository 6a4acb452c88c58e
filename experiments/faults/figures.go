package faults

import (
	"fmt"
	"path/filepath"
	"slices"

	"shardlease/internal/experiment"
	"shardlease/internal/figures"
)

// Figures draws the sweep: which operation of a batch failed, and whether the caller was told.
func Figures(dir string) ([]figures.Figure, error) {
	var steps []SweepStep
	if err := experiment.ReadJSON(filepath.Join(dir, sweepFile), &steps); err != nil {
		return nil, err
	}
	f, err := sweepFigure(steps)
	return []figures.Figure{f}, err
}

// States of an operation in the figure.
const (
	told   = "the caller got the error, and no false success"
	silent = "the error was hidden, or success was false"
)

func (s SweepStep) honest() bool { return s.Surfaced == s.Injected && s.ZeroBatch && s.Lied == 0 }

func sweepFigure(steps []SweepStep) (figures.Figure, error) {
	// One lane a kind, in the order in which a batch comes to it; what failed with any of the errors counts as failed.
	type cell struct {
		kind   string
		honest bool
	}
	cells := map[int]cell{}
	var lanes []figures.Lane
	last := 0
	for _, s := range steps {
		c, seen := cells[s.Operation]
		if seen && c.kind != s.Kind {
			return figures.Figure{}, fmt.Errorf("%s: operation %d is %s with one error and %s with another", sweepFile, s.Operation, c.kind, s.Kind)
		}
		cells[s.Operation] = cell{s.Kind, s.honest() && (!seen || c.honest)}
		last = max(last, s.Operation)
		if !slices.ContainsFunc(lanes, func(l figures.Lane) bool { return l.Label == s.Kind }) {
			lanes = append(lanes, figures.Lane{Label: s.Kind})
		}
	}
	for n := 1; n <= last; n++ {
		c, ok := cells[n]
		if !ok {
			return figures.Figure{}, fmt.Errorf("%s: operation %d is missing", sweepFile, n)
		}
		state := told
		if !c.honest {
			state = silent
		}
		i := slices.IndexFunc(lanes, func(l figures.Lane) bool { return l.Label == c.kind })
		lanes[i].Spans = append(lanes[i].Spans, figures.Span{From: float64(n) - 0.4, To: float64(n) + 0.4, State: state})
	}
	return figures.Lanes(figures.Spec{
		ID: "faults-sweep", Title: "Every operation of a batch fails once",
		Subtitle: fmt.Sprintf("%d operations, each with EIO and with ENOSPC, in a batch of three records in two shards", last),
		Caption:  "Each bar is one operation of the file system that was made to fail, in the order in which the batch comes to it. After each failure the records were read again from the disk.",
	}, figures.Axis{Name: "operation that failed, in order", Zero: true}, "", lanes...)
}
