package hybrid

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"shardlease/internal/experiment"
	"shardlease/internal/hybrid"
)

// Names of the raw files of one arm, in a folder with the arm's name. Files of a job carry the job's name in front.
const (
	armFile       = "arm.json"        // Arm
	coverageFile  = "coverage.jsonl"  // Cover: AFL's queue, entry by entry, measured when the arm was over
	recordsFile   = "records.jsonl"   // Record: the work lease table when the arm was over
	publishedFile = "published.jsonl" // Published: the queues, crashes and hangs of the campaign's peers
	runsFile      = "runs.jsonl"      // Run: what the solver program itself says it was run on
	eventsSuffix  = ".events.jsonl"   // hybrid.Event
	statsSuffix   = ".stats.json"     // hybrid.Stats; a killed job has none
	logSuffix     = ".log"            // what the job printed
	fuzzerLog     = "afl-fuzz.log"
)

// Names of the arms and of the jobs in them.
const (
	leased   = "leased"   // two jobs that share lease tables; the second is killed in the middle
	unleased = "unleased" // control: the same two jobs without lease tables, nobody killed
	alone    = "alone"    // control: AFL++ without help, as long as the first arm

	survivor = "one"
	victim   = "two"
)

// Arm is one run of afl-fuzz and what ran beside it. Times are seconds since the arm began.
type Arm struct {
	Name       string  `json:"name"`
	StartUnixS float64 `json:"start_unix_s"`
	EndS       float64 `json:"end_s"`
	Jobs       []Job   `json:"jobs"`
	Fuzzer     Fuzzer  `json:"fuzzer"`
	// Left counts what was still there when all was over: processes, and shared memory segments of Open MPI.
	LeftProcesses int      `json:"left_processes"`
	LeftSegments  int      `json:"left_segments"`
	Versions      []string `json:"versions"`
}

// Job is one mpirun.
type Job struct {
	Name     string   `json:"name"`
	Argv     []string `json:"argv"`
	ExitCode int      `json:"exit_code"`
	KilledS  float64  `json:"killed_s"` // when its coordinator got SIGKILL; 0 if it did not
}

// Fuzzer is what AFL++ says of itself in its last fuzzer_stats.
type Fuzzer struct {
	Execs    float64 `json:"execs_done"`
	Corpus   float64 `json:"corpus_count"`
	Found    float64 `json:"corpus_found"`
	Imported float64 `json:"corpus_imported"`
	Edges    float64 `json:"edges_found"`
	Crashes  float64 `json:"saved_crashes"`
	Hangs    float64 `json:"saved_hangs"`
}

// Cover is one entry of AFL's queue in the order of its age.
type Cover struct {
	TimeS    float64 `json:"time_s"`
	Imported bool    `json:"imported"` // from a peer
	Edges    int     `json:"edges"`    // of this entry and all before it
}

// Record is one work record.
type Record struct {
	SHA256        string   `json:"sha256"`
	Status        string   `json:"status"`
	Fence         uint64   `json:"fence"`
	Attempts      int      `json:"attempts"`
	Steals        int      `json:"steals"`
	Owner         string   `json:"owner"`
	PreviousOwner string   `json:"previous_owner"`
	Children      []string `json:"children"` // that its manifest declares
}

// Published is one file of a peer.
type Published struct {
	Peer   string `json:"peer"`
	Kind   string `json:"kind"`
	SHA256 string `json:"sha256"`
}

// Run is one line of the solver's own log.
type Run struct {
	SHA256 string  `json:"sha256"`
	TimeS  float64 `json:"time_s"` // Unix time
	PID    int     `json:"pid"`
}

// armData is everything recorded of one arm.
type armData struct {
	Arm
	coverage  []Cover
	records   []Record
	published []Published
	runs      []Run
	events    map[string][]hybrid.Event
	stats     map[string]hybrid.Stats
}

func loadArm(dir, name string) (*armData, error) {
	dir = filepath.Join(dir, name)
	a := &armData{events: map[string][]hybrid.Event{}, stats: map[string]hybrid.Stats{}}
	err := experiment.ReadJSON(filepath.Join(dir, armFile), &a.Arm)
	for _, load := range []func() error{
		func() error { return readLines(filepath.Join(dir, coverageFile), &a.coverage) },
		func() error { return readLines(filepath.Join(dir, recordsFile), &a.records) },
		func() error { return readLines(filepath.Join(dir, publishedFile), &a.published) },
		func() error { return readLines(filepath.Join(dir, runsFile), &a.runs) },
	} {
		if err == nil {
			err = load()
		}
	}
	for _, job := range a.Jobs {
		if err != nil {
			break
		}
		var events []hybrid.Event
		err = readLines(filepath.Join(dir, job.Name+eventsSuffix), &events)
		a.events[job.Name] = events
		var s hybrid.Stats
		if serr := experiment.ReadJSON(filepath.Join(dir, job.Name+statsSuffix), &s); serr == nil {
			a.stats[job.Name] = s
		} else if !errors.Is(serr, fs.ErrNotExist) {
			err = errors.Join(err, serr)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("raw files of arm %s: %w", name, err)
	}
	return a, nil
}

// readLines reads one JSON object a line.
func readLines[T any](name string, list *[]T) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return parseLines(name, data, list)
}

func parseLines[T any](name string, data []byte, list *[]T) error {
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var v T
		dec := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&v); err != nil {
			return fmt.Errorf("%s:%d: %w", name, n, err)
		}
		*list = append(*list, v)
	}
	return lines.Err()
}

// writeLines is the inverse of readLines.
func writeLines[T any](name string, list []T) error {
	var buf bytes.Buffer
	for _, v := range list {
		data, err := json.Marshal(v)
		if err != nil {
			return err
		}
		buf.Write(append(data, '\n'))
	}
	return os.WriteFile(name, buf.Bytes(), 0o644)
}
