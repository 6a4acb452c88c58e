package restart

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"shardlease/internal/experiment"
)

// Raw files of a campaign, in campaign-<n>.
const (
	campaignFile   = "campaign.json"
	executionsFile = "executions.jsonl" // the workers' append-only log, over all jobs
	outputFile     = "output.txt"       // of all jobs
)

// Campaign is one campaign from its first job to its end.
type Campaign struct {
	MPI       string   `json:"open_mpi"`
	Processes int      `json:"processes"`
	Workers   int      `json:"workers"`
	Seeds     int      `json:"seeds"`
	TTLS      float64  `json:"ttl_s"`
	Jobs      []Job    `json:"jobs"`
	Objects   []Object `json:"objects"` // of the corpus at the end
	Epochs    int      `json:"epochs"`  // directories that were left
	Skipped   []string `json:"skipped"` // disturbances that this host does not allow, and why
}

// Job is one run of mpirun.
type Job struct {
	Fault      string    `json:"fault"` // what was to be done to it
	Done       bool      `json:"done"`  // it was done, before the job ended
	FaultAt    time.Time `json:"fault_at"`
	Start      time.Time `json:"start"`
	End        time.Time `json:"end"`
	ExitCode   int       `json:"exit_code"`
	Left       int       `json:"processes_left"`
	Reported   bool      `json:"reported"` // rank 0 wrote statistics
	Final      *Final    `json:"final"`
	Stale      int       `json:"stale_results"`
	Rejected   int       `json:"rejected_results"`
	LostLeases int       `json:"lost_leases"`
	Records    []Record  `json:"records"` // after the job; none once the epoch is retired
}

// Final is what the campaign read from its records at its end.
type Final struct {
	Observations int `json:"total_analysis_observations"`
	Objects      int `json:"corpus_objects"`
	Unfinished   int `json:"unfinished"`
}

// Record is one lease record as it was found after a job.
type Record struct {
	ID     string  `json:"id"`
	Status string  `json:"status"`
	Fence  uint64  `json:"fence"`
	AgeS   float64 `json:"age_s"` // from its time to the end of the job
	// SinceStartS is how much newer the record is than the start of the execution under this fence: above zero, it was renewed while the target ran. Null
	// if there was no execution.
	SinceStartS *float64 `json:"since_start_s"`
}

// Object is one file of the corpus.
type Object struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
	Mark   string `json:"mark"` // the hash of the input whose execution wrote it, "" for a seed
}

// Execution is one line of the workers' log.
type Execution struct {
	ID      string    `json:"id"`
	Fence   uint64    `json:"fence"`
	Rank    int       `json:"rank"`
	Event   string    `json:"event"` // start or end
	Time    time.Time `json:"time"`
	Problem string    `json:"problem"`
}

// run is a campaign with its log.
type run struct {
	Campaign
	name       string
	executions []Execution
}

func load(dir string) ([]*run, error) {
	var runs []*run
	for n := 1; ; n++ {
		r := &run{name: fmt.Sprintf("campaign-%d", n)}
		err := experiment.ReadJSON(filepath.Join(dir, r.name, campaignFile), &r.Campaign)
		if errors.Is(err, os.ErrNotExist) {
			break
		}
		if err != nil {
			return nil, err
		}
		data, err := os.ReadFile(filepath.Join(dir, r.name, executionsFile))
		if err != nil {
			return nil, err
		}
		if r.executions, err = parse(data); err != nil {
			return nil, fmt.Errorf("%s/%s: %w", r.name, executionsFile, err)
		}
		runs = append(runs, r)
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("%s: no campaign was recorded: %w", dir, os.ErrNotExist)
	}
	return runs, nil
}

// parse reads the log. A last line without its end is one that a full disk or a kill cut off.
func parse(data []byte) (list []Execution, err error) {
	if i := bytes.LastIndexByte(data, '\n'); i >= 0 {
		data = data[:i+1]
	}
	for scan := bufio.NewScanner(bytes.NewReader(data)); scan.Scan(); {
		var e Execution
		if err := json.Unmarshal(scan.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%q: %w", scan.Text(), err)
		}
		list = append(list, e)
	}
	return list, nil
}
