package faults

import (
	"strings"
	"testing"
)

func steps() []SweepStep {
	var out []SweepStep
	for _, errno := range []string{"EIO", "ENOSPC"} {
		for n, kind := range []string{"lock", "open", "write", "sync", "rename", "syncdir"} {
			out = append(out, SweepStep{Operation: n + 1, Kind: kind, Error: errno, Injected: 1, Surfaced: 1, ZeroBatch: true})
		}
	}
	return out
}

func TestSweepFigureShowsHiddenErrors(t *testing.T) {
	f, err := sweepFigure(steps())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(f.Option), silent) {
		t.Error("an error is drawn as hidden though none was")
	}
	for _, spoil := range []func(*SweepStep){
		func(s *SweepStep) { s.Surfaced = 0 }, func(s *SweepStep) { s.ZeroBatch = false }, func(s *SweepStep) { s.Lied = 1 },
	} {
		list := steps()
		spoil(&list[8]) // with the second error only
		if f, err = sweepFigure(list); err != nil || !strings.Contains(string(f.Option), silent) {
			t.Errorf("%+v is not drawn as hidden (%v)", list[8], err)
		}
	}
}

func TestSweepFigureRefusesGaps(t *testing.T) {
	list := steps()
	if _, err := sweepFigure(append(list[:2:2], list[3:6]...)); err == nil || !strings.Contains(err.Error(), "operation 3 is missing") {
		t.Errorf("error %v", err)
	}
	list[7].Kind = "stat"
	if _, err := sweepFigure(list); err == nil || !strings.Contains(err.Error(), "operation 2 is open with one error and stat with another") {
		t.Errorf("error %v", err)
	}
}
