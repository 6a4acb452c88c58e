package experiment

import (
	"context"
	"io"
)

// Experiment is one folder under experiments/. Data flows one way: Run writes raw files, Reduce reads them and nothing
// else, so that a verdict can be computed again by whoever holds the evidence.
type Experiment interface {
	Spec() *Spec
	// Run measures and writes raw files into env.Dir. It is interrupted by ctx and leaves no process behind.
	Run(ctx context.Context, env *Env) error
	// Reduce computes the metrics from the raw files of dir. It changes nothing and depends on nothing outside dir.
	Reduce(dir string) (*Metrics, error)
}

// Env is what one run of an experiment gets.
type Env struct {
	Root     string // of the repository
	Dir      string // raw files go here; exists and is empty
	Work     string // scratch folder on the file system under test; removed afterwards
	Bin      string // folder of the programs built for this run
	Scale    Scale
	Rounds   int        // overrides the file's number of rounds; 0 does not
	Seed     uint64     // of every random choice; recorded with the run
	Log      io.Writer  // the experiment's own log
	Progress func(Tick) // may be called from one goroutine at a time; never nil
}

// Tick is one report of progress.
type Tick struct {
	Done, Total int
	What        string
}

// Program is one binary an experiment needs; the pipeline builds it reproducibly (-trimpath) and records its hash.
type Program struct {
	Name    string // file in Env.Bin
	Module  string // folder of its module below the root; "" is the root
	Package string // import path, or a path relative to the module
	Tags    string
}

// Builder is implemented by experiments that run programs of this project.
type Builder interface{ Programs() []Program }
