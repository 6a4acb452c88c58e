// Package raw is the form of the micro-benchmark's raw files, shared by the program that writes them and the code that
// reduces them. All are CSV with a header line; times are nanoseconds of the monotonic clock.
package raw

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// Names of the files.
const (
	RoundsFile   = "rounds.csv"
	PassesFile   = "passes.csv"
	SyncsFile    = "syncs.csv"
	KernelFile   = "kernel.csv"
	WorkloadFile = "workload.json"
	BenchFile    = "bench.txt"
	StraceFile   = "strace.txt"
)

// Sides of a comparison.
const (
	Scalar = "scalar" // one Heartbeat for each record
	Batch  = "batch"  // one HeartbeatMany for all
)

// Kinds of a round.
const (
	AB = "ab" // A is scalar, B is batch
	AA = "aa" // both are batch: the control
)

// Round is one line of RoundsFile: the two sides of a comparison, in turn, each for a fixed number of passes.
type Round struct {
	Active int    // shards that hold records
	Kind   string // AB or AA
	Round  int
	First  string // "a" or "b": which ran first; the order flips with each pass
	A, B   int64  // wall time of one pass over all records, the mean over the passes of the side
}

// Pass is one line of PassesFile: a pass under the traced file system, apart from the timed rounds. File is the time in
// writing and syncing record contents, Dir the time in directory syncs.
type Pass struct {
	Active, Round               int
	Side                        string
	Records                     int
	Wall, File, Dir             int64
	FileSyncs, DirSyncs, Rename int // operations that succeeded
}

// Sync is one line of SyncsFile: the latency of one sync in a traced pass.
type Sync struct {
	Active int
	Side   string
	Kind   string // "file" or "dir"
	Took   int64
}

// Kernel is one line of KernelFile: a sync that the kernel saw in a pass of the counting run, in order.
type Kernel struct {
	Active int
	Side   string
	Call   string // fsync, fdatasync or syncfs
	Kind   string // "file", "dir" or "fs"
	Path   string // relative to the work folder
}

// Workload is the content of WorkloadFile.
type Workload struct {
	Seed       uint64 `json:"seed"`
	Records    int    `json:"records"`
	Shards     int    `json:"shards"`
	Active     []int  `json:"active"`
	TTLSeconds int    `json:"ttl_s"`
	WarmUp     int    `json:"warm_up_rounds"`
	Rounds     int    `json:"rounds"`
	Passes     int    `json:"passes_per_side"`
	CPU        int    `json:"cpu"` // the one it was pinned to; -1 when it was not
	GoVersion  string `json:"go_version"`
	SHA256     string `json:"program_sha256"`
	Kernel     string `json:"kernel_count"` // "strace <version>", or why there is none
	Scale      string `json:"scale"`
}

// table maps a type to its columns.
type table[T any] struct {
	header []string
	encode func(T) []string
	decode func(p *parser) T
}

var rounds = table[Round]{
	[]string{"active_shards", "kind", "round", "first", "a_ns", "b_ns"},
	func(r Round) []string { return row(r.Active, r.Kind, r.Round, r.First, r.A, r.B) },
	func(p *parser) Round {
		return Round{p.int(), p.oneOf(AB, AA), p.int(), p.oneOf("a", "b"), p.int64(), p.int64()}
	},
}

var passes = table[Pass]{
	[]string{"active_shards", "round", "side", "records", "wall_ns", "file_ns", "dir_ns", "file_syncs", "dir_syncs", "renames"},
	func(r Pass) []string {
		return row(r.Active, r.Round, r.Side, r.Records, r.Wall, r.File, r.Dir, r.FileSyncs, r.DirSyncs, r.Rename)
	},
	func(p *parser) Pass {
		return Pass{p.int(), p.int(), p.oneOf(Scalar, Batch), p.int(), p.int64(), p.int64(), p.int64(), p.int(), p.int(), p.int()}
	},
}

var syncs = table[Sync]{
	[]string{"active_shards", "side", "kind", "took_ns"},
	func(r Sync) []string { return row(r.Active, r.Side, r.Kind, r.Took) },
	func(p *parser) Sync {
		return Sync{p.int(), p.oneOf(Scalar, Batch), p.oneOf("file", "dir"), p.int64()}
	},
}

var kernel = table[Kernel]{
	[]string{"active_shards", "side", "call", "kind", "path"},
	func(r Kernel) []string { return row(r.Active, r.Side, r.Call, r.Kind, r.Path) },
	func(p *parser) Kernel {
		return Kernel{p.int(), p.oneOf(Scalar, Batch), p.oneOf("fsync", "fdatasync", "syncfs"), p.oneOf("file", "dir", "fs"), p.next()}
	},
}

// Each pair below writes and reads one file.

func WriteRounds(name string, list []Round) error  { return write(name, rounds, list) }
func ReadRounds(name string) ([]Round, error)      { return read(name, rounds) }
func WritePasses(name string, list []Pass) error   { return write(name, passes, list) }
func ReadPasses(name string) ([]Pass, error)       { return read(name, passes) }
func WriteSyncs(name string, list []Sync) error    { return write(name, syncs, list) }
func ReadSyncs(name string) ([]Sync, error)        { return read(name, syncs) }
func WriteKernel(name string, list []Kernel) error { return write(name, kernel, list) }
func ReadKernel(name string) ([]Kernel, error)     { return read(name, kernel) }

func row(values ...any) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = fmt.Sprint(v)
	}
	return out
}

func write[T any](name string, t table[T], list []T) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	w := csv.NewWriter(f)
	err = w.Write(t.header)
	for _, item := range list {
		err = errors.Join(err, w.Write(t.encode(item)))
	}
	w.Flush()
	return errors.Join(err, w.Error(), f.Close())
}

func read[T any](name string, t table[T]) ([]T, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // nothing was written
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(lines) == 0 || fmt.Sprint(lines[0]) != fmt.Sprint(t.header) {
		return nil, fmt.Errorf("%s:1: header is not %v", name, t.header)
	}
	var out []T
	for i, line := range lines[1:] {
		p := &parser{fields: line}
		out = append(out, t.decode(p))
		if p.err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, i+2, p.err)
		}
	}
	return out, nil
}

// parser takes the fields of one line from left to right and keeps the first error.
type parser struct {
	fields []string
	err    error
}

func (p *parser) next() string {
	if len(p.fields) == 0 {
		p.err = errors.Join(p.err, errors.New("a field is missing"))
		return ""
	}
	field := p.fields[0]
	p.fields = p.fields[1:]
	return field
}

// int64 reads a count or a time: neither can be negative.
func (p *parser) int64() int64 {
	field := p.next()
	n, err := strconv.ParseInt(field, 10, 64)
	if p.err == nil && (err != nil || n < 0) {
		p.err = fmt.Errorf("%q is no number of at least 0", field)
	}
	return n
}

func (p *parser) int() int { return int(p.int64()) }

func (p *parser) oneOf(allowed ...string) string {
	field := p.next()
	for _, a := range allowed {
		if field == a {
			return field
		}
	}
	if p.err == nil {
		p.err = fmt.Errorf("%q is none of %v", field, allowed)
	}
	return field
}
