package campaign

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Tags of the messages (reference behaviour 6.8). Start and Halt are ours: the first replaces a broadcast, the second tells the other
// masters that one has stopped, instead of leaving them to their timeouts, and all ranks that there will be no START.
const (
	TagWork       = 1  // master to worker
	TagResult     = 2  // worker to master
	TagStop       = 3  // master to worker
	TagReady      = 4  // worker to master
	TagStopAck    = 5  // worker to master
	TagStart      = 9  // rank 0 to all
	TagStatus     = 10 // master to master, as are all below
	TagProbe      = 11
	TagStats      = 12
	TagStatsAck   = 13
	TagProbeReply = 14
	TagQuiesce    = 15
	TagQuiesceAck = 16
	TagHalt       = 19 // master to master, and rank 0 to all that can't begin
)

// controlLimit bounds every message but results and statistics.
const controlLimit = 16 << 10

// Protocol errors that a worker reports in place of a result.
const (
	errInputCopy     = "input-copy-error"
	errPublication   = "corpus-publication"
	ErrExecution     = "execution-error"
	errWorkEnvelope  = "work-envelope"
	ErrInputBudget   = "input-budget-exceeded"  // the input is larger than allowed
	ErrResultBudget  = "result-budget-exceeded" // the target wrote more files or bytes than allowed
	schemaWork       = "symcc-work-v1"
	schemaResult     = "symcc-result-v1"
	schemaReady      = "symcc-ready-v1"
	schemaStop       = "symcc-shutdown-v1"
	schemaStopAck    = "symcc-shutdown-ack-v1"
	schemaStart      = "symcc-start-v1"
	schemaStatus     = "symcc-master-status-v1"
	schemaProbe      = "symcc-master-quiescence-probe-v1"
	schemaProbeReply = "symcc-master-quiescence-reply-v1"
	schemaAbort      = "symcc-master-quiescence-abort-v1"
	schemaCommit     = "symcc-master-quiescence-commit-v1"
	schemaCommitAck  = "symcc-master-quiescence-ack-v1"
	schemaStats      = "symcc-master-stats-v1"
	schemaStatsAck   = "symcc-master-stats-ack-v1"
	schemaHalt       = "symcc-master-halt-v1"
)

type (
	workMsg struct {
		Schema string `json:"schema"`
		Hash   string `json:"hash"`
		Fence  uint64 `json:"fence"` // names the assignment in the execution log
	}
	resultMsg struct {
		Schema        string   `json:"schema"`
		InputHash     string   `json:"input_hash"`
		Fence         uint64   `json:"fence"`
		NewHashes     []string `json:"new_hashes"`
		StagingID     string   `json:"staging_id"`
		StagedBytes   int64    `json:"staged_bytes"`
		NumGenerated  int      `json:"num_generated"`
		Retcode       int      `json:"retcode"` // exit status; minus the signal if killed by one
		TimedOut      bool     `json:"timed_out"`
		Elapsed       float64  `json:"elapsed"` // seconds
		ProtocolError string   `json:"protocol_error"`
		Detail        string   `json:"detail"` // the protocol error's cause, for people
	}
	readyMsg struct {
		Schema string `json:"schema"`
		Rank   int    `json:"rank"` // group rank
	}
	// stopMsg is STOP and, with another schema, STOP_ACK.
	stopMsg struct {
		Schema        string `json:"schema"`
		Rank          int    `json:"rank"` // group rank
		ShutdownToken string `json:"shutdown_token"`
	}
	startMsg struct {
		Schema        string `json:"schema"`
		Epoch         string `json:"epoch"`
		Resumed       bool   `json:"resumed"`
		OutputDir     string `json:"output_dir"`
		Settings      string `json:"settings"`
		ShutdownEpoch string `json:"shutdown_epoch"`
		StatsToken    string `json:"stats_token"`
	}
	statusMsg struct {
		Schema   string `json:"schema"`
		Rank     int    `json:"rank"`
		Sequence uint64 `json:"sequence"`
		Idle     bool   `json:"idle"`
	}
	// probeMsg is PROBE, ABORT and COMMIT, told apart by schema.
	probeMsg struct {
		Schema     string `json:"schema"`
		ProbeToken string `json:"probe_token"`
	}
	probeReplyMsg struct {
		Schema     string `json:"schema"`
		Rank       int    `json:"rank"`
		ProbeToken string `json:"probe_token"`
		Idle       bool   `json:"idle"`
	}
	commitAckMsg struct {
		Schema     string `json:"schema"`
		Rank       int    `json:"rank"`
		ProbeToken string `json:"probe_token"`
		Committed  bool   `json:"committed"`
	}
	statsMsg struct {
		Schema     string      `json:"schema"`
		StatsToken string      `json:"stats_token"`
		Stats      MasterStats `json:"stats"`
	}
	statsAckMsg struct {
		Schema     string `json:"schema"`
		Rank       int    `json:"rank"`
		StatsToken string `json:"stats_token"`
	}
	haltMsg struct {
		Schema string `json:"schema"`
		Rank   int    `json:"rank"`
		Kind   string `json:"kind"` // a stop reason
		Detail string `json:"detail"`
	}
)

// mustMarshal encodes one of the types above, all of which can be encoded.
func mustMarshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("campaign: encode %T: %v", v, err))
	}
	return data
}

var errNotCanonical = errors.New("not in canonical form")

// DecodeStrict accepts exactly what mustMarshal writes. Comparing with the re-encoding refuses in one rule unknown, missing, repeated
// and reordered keys, other number spellings, blanks and trailing data.
func DecodeStrict[T any](data []byte, limit int) (T, error) {
	var v, none T
	if len(data) > limit {
		return none, fmt.Errorf("%d bytes, more than %d", len(data), limit)
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return none, err
	}
	if again, err := json.Marshal(v); err != nil || !bytes.Equal(again, data) {
		return none, errNotCanonical
	}
	return v, nil
}

// decodeMsg is DecodeStrict for a message with the given schema.
func decodeMsg[T any](data []byte, limit int, schemaOf func(T) string, want string) (T, error) {
	v, err := DecodeStrict[T](data, limit)
	if err != nil {
		return v, err
	}
	if got := schemaOf(v); got != want {
		return v, fmt.Errorf("schema is %q instead of %q", got, want)
	}
	return v, nil
}

func decodeStop(data []byte, schema string) (stopMsg, error) {
	return decodeMsg(data, controlLimit, func(m stopMsg) string { return m.Schema }, schema)
}

func decodeHalt(data []byte) (haltMsg, error) {
	return decodeMsg(data, controlLimit, func(m haltMsg) string { return m.Schema }, schemaHalt)
}

func decodeStart(data []byte) (startMsg, error) {
	m, err := decodeMsg(data, controlLimit, func(m startMsg) string { return m.Schema }, schemaStart)
	if err == nil && !(IsHex(m.Epoch, 64) && IsHex(m.ShutdownEpoch, 64) && IsHex(m.StatsToken, 64) && m.OutputDir != "") {
		err = errors.New("epoch, token or output directory is missing")
	}
	return m, err
}

func decodeWork(data []byte) (workMsg, error) {
	m, err := decodeMsg(data, controlLimit, func(m workMsg) string { return m.Schema }, schemaWork)
	if err == nil && !IsHex(m.Hash, 64) {
		err = fmt.Errorf("work hash %q", m.Hash)
	}
	return m, err
}

// resultLimit bounds a RESULT that declares up to objects hashes.
func resultLimit(objects int) int { return controlLimit + 70*objects }

// decodeResult checks everything about a result that doesn't depend on the assignment.
func decodeResult(data []byte, objects int) (resultMsg, error) {
	m, err := decodeMsg(data, resultLimit(objects), func(m resultMsg) string { return m.Schema }, schemaResult)
	if err != nil {
		return m, err
	}
	if math.IsNaN(m.Elapsed) || math.IsInf(m.Elapsed, 0) || m.Elapsed < 0 {
		return m, fmt.Errorf("elapsed time %v", m.Elapsed)
	}
	if len(m.NewHashes) > objects || m.StagedBytes < 0 {
		return m, fmt.Errorf("%d objects, %d bytes", len(m.NewHashes), m.StagedBytes)
	}
	return m, checkDeclared(m.NewHashes, m.StagingID, m.NumGenerated)
}

// checkDeclared holds for results and manifests: hashes are well-formed, sorted and unique; a stage exists exactly if there are any;
// the target wrote at least as many files as there are distinct contents.
func checkDeclared(hashes []string, stagingID string, generated int) error {
	if hashes == nil {
		return errors.New("no list of hashes")
	}
	for _, h := range hashes {
		if !IsHex(h, 64) {
			return fmt.Errorf("hash %q", h)
		}
	}
	if !slices.IsSorted(hashes) || len(slices.Compact(slices.Clone(hashes))) != len(hashes) {
		return errors.New("hashes are not sorted and unique")
	}
	if len(hashes) > 0 && !IsHex(stagingID, 32) || len(hashes) == 0 && stagingID != "" {
		return fmt.Errorf("staging id %q for %d hashes", stagingID, len(hashes))
	}
	if generated < len(hashes) {
		return fmt.Errorf("%d generated, but %d distinct", generated, len(hashes))
	}
	return nil
}
