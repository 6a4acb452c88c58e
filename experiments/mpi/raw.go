package mpi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Names of the raw files of one campaign, in a folder campaign-<n>.
const (
	launchFile     = "launch.json"
	seedsFile      = "seeds.json"
	corpusFile     = "corpus.json"
	statsFile      = "stats.json"      // what the campaign wrote with --stats-json
	executionsFile = "executions.json" // one object a line: start and end of each execution of the target
	stdoutFile     = "stdout.txt"
	stderrFile     = "stderr.txt"
)

// workPlace stands in raw files for the temporary folder that the campaign ran in.
const workPlace = "$WORK"

// Launch says how one campaign was started and how it ended.
type Launch struct {
	Argv           []string `json:"argv"` // of mpirun
	Env            []string `json:"env"`
	MPI            string   `json:"open_mpi"`
	Processes      int      `json:"processes"`
	Seeds          int      `json:"seeds"`
	Shards         int      `json:"shards"`
	ExitCode       int      `json:"exit_code"`
	WallS          float64  `json:"wall_s"`
	Root           bool     `json:"root"`
	Oversubscribed bool     `json:"oversubscribed"`
	LeftProcesses  int      `json:"left_processes"` // of the job that were still there after mpirun
	LeftFolders    []string `json:"left_folders"`   // epochs that were not retired
	SHA256         string   `json:"program_sha256"`
	TargetSHA256   string   `json:"target_sha256"`
}

// Object is one file of the input or of the corpus.
type Object struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// stats is the part of the campaign's statistics that is used here; see internal/campaign.Stats for all of it.
type stats struct {
	ExitCode int      `json:"exit_code"`
	Masters  []master `json:"masters"`
	Final    *struct {
		Observations int            `json:"total_analysis_observations"`
		Generated    int            `json:"total_test_cases_generated"`
		External     int            `json:"external_input_objects"`
		Interesting  int            `json:"new_interesting_test_cases"`
		Throughput   float64        `json:"throughput_tc_per_s"`
		MastersUsed  int            `json:"masters_used"`
		ByMaster     map[string]int `json:"analysis_by_master"`
		Objects      int            `json:"corpus_objects"`
		Unfinished   int            `json:"unfinished"`
	} `json:"final"`
}

type master struct {
	Rank           int  `json:"rank"`
	Workers        int  `json:"workers"`
	Acked          int  `json:"acked"`
	Clean          bool `json:"clean"`
	Analyzed       int  `json:"analyzed"`
	Batches        int  `json:"batches"`
	Renewals       int  `json:"renewals"`
	DirectorySyncs int  `json:"directory_syncs"`
	Avoided        int  `json:"directory_syncs_avoided"`
	Failures       int  `json:"failures"`

	Log []struct {
		At             int64 `json:"at_unix_ms"`
		Took           int64 `json:"took_ms"`
		Held           int   `json:"held"`
		Renewals       int   `json:"renewals"`
		DirectorySyncs int   `json:"directory_syncs"`
		Failed         bool  `json:"failed"`
	} `json:"heartbeat_log"`
}

// Execution is one line of executionsFile.
type Execution struct {
	ID    string `json:"id"`
	Fence uint64 `json:"fence"`
	Rank  int    `json:"rank"`
	Event string `json:"event"` // start or end
	Time  string `json:"time"`
}

// campaignRun is everything recorded of one campaign.
type campaignRun struct {
	Launch
	seeds, corpus []Object
	stats         stats
	executions    []Execution
}

func loadRun(dir string) (*campaignRun, error) {
	r := &campaignRun{}
	for name, v := range map[string]any{launchFile: &r.Launch, seedsFile: &r.seeds, corpusFile: &r.corpus, statsFile: &r.stats} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(data, v); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, executionsFile))
	if err != nil {
		return nil, err
	}
	for scan := bufio.NewScanner(bytes.NewReader(data)); scan.Scan(); {
		var e Execution
		if err := json.Unmarshal(scan.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", executionsFile, scan.Text(), err)
		}
		r.executions = append(r.executions, e)
	}
	return r, nil
}
