// Package experiments is the reproduction pipeline: what each target of the magefile does. Experiments are registered
// here and know nothing of each other.
package experiments

import (
	"fmt"
	"strings"

	"shardlease/experiments/faults"
	"shardlease/experiments/filesystems"
	"shardlease/experiments/hybrid"
	"shardlease/experiments/micro"
	"shardlease/experiments/mpi"
	"shardlease/experiments/peers"
	"shardlease/experiments/powercut"
	"shardlease/experiments/reboot"
	"shardlease/experiments/restart"
	"shardlease/experiments/scale"
	"shardlease/experiments/sim"
	"shardlease/internal/experiment"
	"shardlease/internal/figures"
)

// entry is one experiment and the figures drawn from its raw files; figures may be nil.
type entry struct {
	experiment.Experiment
	figures func(dir string) ([]figures.Figure, error)
}

// registry lists the experiments in the order they run: those that measure time first, before anything has warmed the
// machine or filled the disk. Tests put others in its place.
var registry = func() []entry {
	return []entry{
		{micro.New(), micro.Figures},
		{peers.New(), peers.Figures},
		{filesystems.New(), filesystems.Figures},
		{scale.New(), scale.Figures},
		{mpi.New(), mpi.Figures},
		{hybrid.New(), hybrid.Figures},
		{faults.New(), faults.Figures},
		{powercut.New(), powercut.Figures},
		{reboot.New(), reboot.Figures},
		{restart.New(), restart.Figures},
		{sim.New(), sim.Figures},
	}
}

func specs(list []entry) []*experiment.Spec {
	var out []*experiment.Spec
	for _, e := range list {
		out = append(out, e.Spec())
	}
	return out
}

// find returns the entry with the name, or a usage error that lists the names.
func find(name string) (entry, error) {
	var names []string
	for _, e := range registry() {
		if e.Spec().Name == name {
			return e, nil
		}
		names = append(names, e.Spec().Name)
	}
	return entry{}, fail(Usage, "there is no experiment %q; there are: %s", name, strings.Join(names, ", "))
}

// Exit codes of the targets.
const (
	Broken    = 1 // a step broke
	Usage     = 2 // Mage's own code for wrong arguments
	Failed    = 3 // a paper claim is FAIL
	Undecided = 4 // a paper claim is INCONCLUSIVE, or the host is unsuitable
)

// exitError carries an exit code through Mage, which asks for it by this method.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string   { return e.err.Error() }
func (e *exitError) Unwrap() error   { return e.err }
func (e *exitError) ExitStatus() int { return e.code }

func fail(code int, format string, args ...any) error {
	return &exitError{code, fmt.Errorf(format, args...)}
}
