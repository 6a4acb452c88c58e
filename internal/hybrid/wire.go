package hybrid

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"shardlease/internal/campaign"
	"shardlease/internal/hybrid/afl"
	"shardlease/pkg/lease"
)

const (
	schemaWork     = "shardlease-hybrid-work-v1"
	schemaResult   = "shardlease-hybrid-result-v1"
	schemaReady    = "shardlease-hybrid-ready-v1"
	schemaItem     = "shardlease-hybrid-item-v1"
	schemaManifest = "shardlease-hybrid-commit-v1"
)

// Problems that a worker reports in place of a result, besides those of the execution itself.
const (
	problemInput    = "input-copy-error" // the queue file is gone or was rewritten
	problemShowmap  = "showmap-error"
	problemStage    = "corpus-publication"
	problemEnvelope = "work-envelope"
)

type (
	// readyMsg is the first word of a worker, and follows each result. Settings must be the same on all ranks.
	readyMsg struct {
		Schema   string `json:"schema"`
		Rank     int    `json:"rank"`
		Dispatch string `json:"dispatch"` // the finished one, "" at first
		Settings string `json:"settings"`
	}
	// workMsg is one dispatch. Delta brings the worker's coverage from version Base to Version; Base 0 starts from nothing.
	workMsg struct {
		Schema   string        `json:"schema"`
		Instance *afl.Instance `json:"instance"` // what afl-showmap is to run, as the coordinator has found it
		Dispatch string        `json:"dispatch"`
		ID       string        `json:"id"`
		Fence    uint64        `json:"fence"`
		Path     string        `json:"path"` // below AFL's output directory
		SHA256   string        `json:"sha256"`
		Base     uint64        `json:"base"`
		Version  uint64        `json:"version"`
		Delta    []byte        `json:"delta"`
	}
	// outputMsg is one staged output with what afl-showmap said about it.
	outputMsg struct {
		SHA256  string      `json:"sha256"`
		Verdict afl.Verdict `json:"verdict"`
		Map     []byte      `json:"map"`
	}
	resultMsg struct {
		Schema    string      `json:"schema"`
		Dispatch  string      `json:"dispatch"`
		Outputs   []outputMsg `json:"outputs"` // sorted by sum
		StagingID string      `json:"staging_id"`
		Generated int         `json:"generated"` // files that the solver wrote
		Covered   int         `json:"covered"`   // of those, dropped for they cover nothing new
		Retcode   int         `json:"retcode"`
		TimedOut  bool        `json:"timed_out"`
		Elapsed   float64     `json:"elapsed"` // seconds
		Problem   string      `json:"protocol_error"`
		Detail    string      `json:"detail"`
	}
	// item is the payload of a work record: where the input was seen and what it is aimed at. Its keys, and those of
	// manifest and child, are in alphabetical order, so that any canonical encoding is the same bytes.
	item struct {
		Path         string   `json:"path"` // below AFL's output directory
		Schema       string   `json:"schema"`
		SHA256       string   `json:"sha256"`
		Strategy     string   `json:"strategy"`
		TargetBranch uint64   `json:"target_branch"` // the first of Targets, 0 if there is none
		Targets      []uint64 `json:"targets"`
	}
	// manifest is what a commit publishes; whoever finds it in a committing record can do it again.
	manifest struct {
		Children  []child `json:"children"`
		Generated int     `json:"generated"`
		Peer      string  `json:"peer"` // below whose directory the stage lies
		Rank      int     `json:"rank"` // of the worker
		Schema    string  `json:"schema"`
		Source    int     `json:"source"` // number of the input in its queue, -1 if it has none
		StagingID string  `json:"staging_id"`
	}
	child struct {
		Kind   afl.Kind `json:"kind"`
		SHA256 string   `json:"sha256"`
	}
)

// strategy names what a worker does with an item: it runs the solver program once, on the whole input.
const strategy = "symcc"

// itemID is the identity of the work on an input: its content and the strategy. Neither the path nor the target branches
// are part of it: two coordinators see one input under two names, and aim it by what each of them has covered so far;
// the solver program's run is the same.
func itemID(sum afl.Sum) lease.ID {
	return lease.SumID(encode(map[string]string{"schema": schemaItem, "sha256": lease.ID(sum).String(), "strategy": strategy}))
}

// encode gives canonical JSON: keys in a fixed order, no blanks.
func encode(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("hybrid: encode %T: %v", v, err)) // the types above can all be encoded
	}
	return data
}

// checkPath accepts names below AFL's output directory only.
func checkPath(path string) error {
	if !filepath.IsLocal(path) || filepath.Clean(path) != path || path == "." {
		return fmt.Errorf("path %q leaves AFL's output directory", path)
	}
	return nil
}

// checkName accepts what can be the name of an AFL instance or peer: one visible path element.
func checkName(name string) error {
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\n\r") {
		return fmt.Errorf("name %q: an AFL instance or peer is one directory name that does not start with a dot", name)
	}
	return nil
}

// decodeItem refuses a payload that is not that of its record: taking it would analyse one input under another's name.
func decodeItem(rec lease.Record) (item, lease.ID, error) {
	it, err := campaign.DecodeStrict[item](rec.Payload, messageLimit)
	if err != nil {
		return it, lease.ID{}, fmt.Errorf("work record %s: payload: %w", rec.ID, err)
	}
	sum, err := lease.ParseID(it.SHA256)
	if err == nil && (it.Schema != schemaItem || itemID(afl.Sum(sum)) != rec.ID) {
		err = fmt.Errorf("payload is for input %s, schema %q", it.SHA256, it.Schema)
	}
	if err == nil {
		err = checkPath(it.Path)
	}
	if err != nil {
		return it, sum, fmt.Errorf("work record %s: %w", rec.ID, err)
	}
	return it, sum, nil
}

func decodeManifest(raw json.RawMessage) (manifest, error) {
	m, err := campaign.DecodeStrict[manifest](raw, messageLimit)
	if err == nil && m.Schema != schemaManifest {
		err = fmt.Errorf("schema is %q", m.Schema)
	}
	if err == nil {
		err = checkName(m.Peer)
	}
	staged := campaign.IsHex(m.StagingID, 32)
	if err == nil && (m.Rank < 0 || !staged && (m.StagingID != "" || len(m.Children) > 0)) {
		err = fmt.Errorf("stage %d/%q for %d children", m.Rank, m.StagingID, len(m.Children))
	}
	if err != nil {
		return m, fmt.Errorf("manifest: %w", err)
	}
	return m, nil
}

// messageLimit bounds all messages. A result holds the maps of a few outputs, each well under a hundred kilobytes.
const messageLimit = 64 << 20

// decodeResult checks all of a result that does not depend on the dispatch.
func decodeResult(data []byte) (resultMsg, error) {
	m, err := campaign.DecodeStrict[resultMsg](data, messageLimit)
	switch {
	case err != nil:
		return m, err
	case m.Schema != schemaResult:
		return m, fmt.Errorf("schema is %q", m.Schema)
	case math.IsNaN(m.Elapsed) || m.Elapsed < 0:
		return m, fmt.Errorf("elapsed time %v", m.Elapsed)
	case (len(m.Outputs) > 0) != campaign.IsHex(m.StagingID, 32):
		return m, fmt.Errorf("staging id %q for %d outputs", m.StagingID, len(m.Outputs))
	case m.Covered < 0 || m.Generated < m.Covered+len(m.Outputs):
		return m, fmt.Errorf("%d outputs and %d covered of %d generated", len(m.Outputs), m.Covered, m.Generated)
	}
	for i, out := range m.Outputs {
		if !campaign.IsHex(out.SHA256, 64) || i > 0 && m.Outputs[i-1].SHA256 >= out.SHA256 {
			return m, errors.New("sums are not well-formed, sorted and unique")
		}
		if out.Verdict < afl.OK || out.Verdict > afl.Crash {
			return m, fmt.Errorf("verdict %d", out.Verdict)
		}
		if err := new(afl.Map).UnmarshalBinary(out.Map); err != nil {
			return m, err
		}
	}
	return m, nil
}

// Execution is one line of the execution log: JSON, one object a line, appended by all workers.
type Execution struct {
	SHA256   string  `json:"sha256"` // the input
	Fence    uint64  `json:"fence"`
	Rank     int     `json:"rank"`
	Event    string  `json:"event"`  // start or end
	TimeS    float64 `json:"time_s"` // Unix time
	Outputs  int     `json:"outputs"`
	Retcode  int     `json:"retcode"`
	TimedOut bool    `json:"timed_out"`
	Problem  string  `json:"problem"`
}
