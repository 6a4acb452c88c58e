package campaign

import (
	"fmt"
	"slices"
)

// Roles says what each rank of the world does. Masters are ranks 0..Masters-1; the rest are workers, dealt to the masters
// round-robin in rank order (reference behaviour 6.1).
type Roles struct {
	Masters int
	// Workers holds the world ranks of each master's workers. A worker's group rank is its index plus one.
	Workers [][]int
}

// ComputeRoles deals size ranks. A master without workers is an error: its share of the work would never be done.
func ComputeRoles(size, workersPerMaster int) (Roles, error) {
	if size < 2 {
		return Roles{}, fmt.Errorf("a campaign needs at least 2 ranks, a master and a worker; this one has %d: start it with mpirun -n 2 or more", size)
	}
	if workersPerMaster < 1 {
		return Roles{}, fmt.Errorf("--workers-per-master is %d, but a master needs at least one worker", workersPerMaster)
	}
	masters := 1
	if size > 2 && size-1 > workersPerMaster {
		wanted := (size - 1 + workersPerMaster - 1) / workersPerMaster
		masters = max(1, min(wanted, (size-1)/3))
	}
	r := Roles{Masters: masters, Workers: make([][]int, masters)}
	for rank := masters; rank < size; rank++ {
		m := (rank - masters) % masters
		r.Workers[m] = append(r.Workers[m], rank)
	}
	return r, nil
}

// IsMaster tells whether the world rank coordinates.
func (r Roles) IsMaster(rank int) bool { return rank < r.Masters }

// MasterOf returns the master of a worker and the worker's group rank, which counts from 1. It is (-1, 0) for a master.
func (r Roles) MasterOf(rank int) (master, group int) {
	for m, workers := range r.Workers {
		if i := slices.Index(workers, rank); i >= 0 {
			return m, i + 1
		}
	}
	return -1, 0
}

// WorkerCount is the number of workers of all masters.
func (r Roles) WorkerCount() int {
	n := 0
	for _, workers := range r.Workers {
		n += len(workers)
	}
	return n
}
