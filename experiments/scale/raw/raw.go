// Package raw is the form of the scale experiment's raw files, shared by the program that writes them and the code that reduces them.
package raw

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"shardlease/pkg/lease"
)

// Names of the files.
const (
	PlanFile   = "plan.json"
	SidesFile  = "sides.jsonl"  // one Side a line
	TotalsFile = "totals.jsonl" // one Totals a line
)

// Ways to renew. Those that end in Again repeat another one: the controls.
const (
	Scalar        = "scalar" // one Heartbeat for each lease
	Batch         = "batch"  // the report's: HeartbeatMany, strategy serial
	BatchAgain    = "batch-again"
	Auto          = "auto"      // HeartbeatMany, the strategy that Auto chooses
	OneFlush      = "one-flush" // HeartbeatMany of a session
	OneFlushAgain = "one-flush-again"
)

// Ways lists all of them.
var Ways = []string{Scalar, Batch, BatchAgain, Auto, OneFlush, OneFlushAgain}

// Case is one way with one number of leases in one number of shards.
type Case struct {
	Way     string `yaml:"way" json:"way"`
	Records int    `yaml:"records" json:"records"`
	Active  int    `yaml:"active" json:"active_shards"` // shards that hold records
	Rounds  int    `yaml:"rounds" json:"rounds"`
	Passes  int    `yaml:"passes" json:"passes"` // one timing is the mean of so many
	Traced  bool   `yaml:"traced" json:"traced"` // every sync is written down
}

// Name identifies the case in metrics and messages.
func (c Case) Name() string { return fmt.Sprintf("%s.n%dk%d", c.Way, c.Records, c.Active) }

// Simulation says what is computed from the traced calls.
type Simulation struct {
	Records    int   `yaml:"records" json:"records"`       // leases of one master: the traced cases with so many
	Active     int   `yaml:"active" json:"active_shards"`  // and so many shards are replayed
	TTLSeconds int   `yaml:"ttl_s" json:"ttl_s"`           // a master begins to renew every third of it
	Servers    []int `yaml:"servers" json:"servers"`       // syncs that the store serves at the same time
	Masters    []int `yaml:"masters" json:"masters"`       // of the figure
	Replicates int   `yaml:"replicates" json:"replicates"` // resamplings of the measured rounds
}

// Plan is the content of PlanFile: all that the other files and the simulation depend on.
type Plan struct {
	Seed       uint64     `json:"seed"`
	Scale      string     `json:"scale"`
	WarmUp     int        `json:"warm_up_rounds"`
	Cases      []Case     `json:"cases"`
	Simulation Simulation `json:"simulation"`
	SHA256     string     `json:"workload_sha256"`
}

// Sync is one sync of a call. Times are nanoseconds. What overlaps with the sync before it counts for that one alone, so that the sums
// over a call are the time in which the store had something to do, and the time in which it had nothing.
type Sync struct {
	Directory bool  `json:"dir,omitempty"`
	Before    int64 `json:"before_ns"` // since the sync before it, or the call's beginning
	Took      int64 `json:"took_ns"`
	Whole     int64 `json:"whole_ns"` // from its own beginning to its own end
}

// Call is one call of the library: its syncs, and the time after the last.
type Call struct {
	Syncs []Sync `json:"syncs"`
	After int64  `json:"after_ns"`
}

// Side is one case in one round.
type Side struct {
	Way       string `json:"way"`
	Records   int    `json:"records"`
	Active    int    `json:"active_shards"`
	Round     int    `json:"round"`
	Place     int    `json:"place"`           // in the order of the round
	PassNS    int64  `json:"pass_ns"`         // wall time of one pass over all leases, the mean over the side's passes
	CPUNS     int64  `json:"cpu_ns"`          // processor time of the program, likewise
	FileSyncs int    `json:"file_syncs"`      // of all its passes
	DirSyncs  int    `json:"dir_syncs"`       // of all its passes
	Renewed   int    `json:"renewed"`         // likewise
	Calls     []Call `json:"calls,omitempty"` // of a traced case
}

// Totals is what the library's own Stats have counted in all timed rounds of one case.
type Totals struct {
	Way           string      `json:"way"`
	Records       int         `json:"records"`
	Active        int         `json:"active_shards"`
	Batches       uint64      `json:"batches"`
	Renewals      uint64      `json:"renewals"`
	LockWait      map[int]int `json:"lock_wait_ns"` // bucket of a lease.Histogram -> count
	FileSync      map[int]int `json:"file_sync_ns"`
	DirectorySync map[int]int `json:"directory_sync_ns"`
	BatchRecords  map[int]int `json:"batch_records"`
	BatchShards   map[int]int `json:"batch_shards"`
}

// Histogram makes one of the maps a histogram again.
func Histogram(counts map[int]int) (h lease.Histogram, err error) {
	for i, n := range counts {
		if i < 0 || i >= len(h.Counts) || n < 0 {
			return h, fmt.Errorf("bucket %d with %d values: there are only %d buckets, with counts that are not negative", i, n, len(h.Counts))
		}
		h.Counts[i] = uint64(n)
	}
	return h, nil
}

// Counted is the difference of two snapshots, without empty buckets.
func Counted(before, after lease.Histogram) map[int]int {
	counts := map[int]int{}
	for i := range after.Counts {
		if n := after.Counts[i] - before.Counts[i]; n > 0 {
			counts[i] = int(n)
		}
	}
	return counts
}

// Write writes one value a line.
func Write[T any](name string, list []T) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	for _, v := range list {
		if err := enc.Encode(v); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return errors.Join(w.Flush(), f.Close())
}

// Read reads what Write has written. valid says what is wrong with a value, if anything.
func Read[T any](name string, valid func(T) error) ([]T, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var list []T
	for i, line := range bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
		var v T
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		err := dec.Decode(&v)
		if err == nil {
			err = valid(v)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", filepath.Base(name), i+1, err)
		}
		list = append(list, v)
	}
	return list, nil
}

// Check reports what can't be a measurement.
func (s Side) Check() error {
	if s.PassNS <= 0 || s.CPUNS < 0 || s.Records < 1 || s.Active < 1 || s.Renewed < 1 {
		return fmt.Errorf("not a timing of %s: %d ns: %w", s.Way, s.PassNS, fs.ErrInvalid)
	}
	for _, c := range s.Calls {
		for _, y := range c.Syncs {
			if y.Before < 0 || y.Took < 0 || y.Whole < y.Took {
				return fmt.Errorf("not a sync of %s: %+v: %w", s.Way, y, fs.ErrInvalid)
			}
		}
	}
	return nil
}

// Check reports what can't have been counted.
func (t Totals) Check() error {
	for _, counts := range []map[int]int{t.LockWait, t.FileSync, t.DirectorySync, t.BatchRecords, t.BatchShards} {
		if _, err := Histogram(counts); err != nil {
			return err
		}
	}
	return nil
}
