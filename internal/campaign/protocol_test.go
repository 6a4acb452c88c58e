package campaign

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

var (
	hashA = strings.Repeat("a", 64)
	hashB = strings.Repeat("b", 64)
	stage = strings.Repeat("c", 32)
)

func goodResult() resultMsg {
	return resultMsg{Schema: schemaResult, InputHash: hashA, Fence: 1, NewHashes: []string{hashA, hashB}, StagingID: stage, NumGenerated: 2, Elapsed: 0.5}
}

func TestMessagesAreRefusedInAnyOtherForm(t *testing.T) {
	good := string(mustMarshal(stopMsg{Schema: schemaStop, Rank: 1, ShutdownToken: hashA}))
	if _, err := decodeStop([]byte(good), schemaStop); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]string{
		"empty":         "",
		"null":          "null",
		"array":         "[]",
		"trailing data": good + "{}",
		"newline":       good + "\n",
		"blank":         strings.Replace(good, ":", ": ", 1),
		"unknown key":   strings.Replace(good, `"rank"`, `"extra":1,"rank"`, 1),
		"repeated key":  strings.Replace(good, `"rank":1`, `"rank":1,"rank":1`, 1),
		"missing key":   strings.Replace(good, `"rank":1,`, "", 1),
		"other case":    strings.Replace(good, `"rank"`, `"Rank"`, 1),
		"float":         strings.Replace(good, `"rank":1`, `"rank":1.0`, 1),
		"boolean":       strings.Replace(good, `"rank":1`, `"rank":true`, 1),
		"string":        strings.Replace(good, `"rank":1`, `"rank":"1"`, 1),
		"other schema":  strings.Replace(good, schemaStop, schemaStopAck, 1),
		"too long":      strings.Replace(good, hashA, strings.Repeat("a", controlLimit), 1),
	} {
		if _, err := decodeStop([]byte(bad), schemaStop); err == nil {
			t.Errorf("%s is accepted: %.100s", name, bad)
		}
	}
}

func TestResultsMustBeConsistent(t *testing.T) {
	if _, err := decodeResult(mustMarshal(goodResult()), 10); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*resultMsg){
		"no list":           func(r *resultMsg) { r.NewHashes = nil },
		"short hash":        func(r *resultMsg) { r.NewHashes[0] = "aa" },
		"upper case":        func(r *resultMsg) { r.NewHashes[0] = strings.ToUpper(hashA) },
		"path":              func(r *resultMsg) { r.NewHashes[0] = "../../" + hashA[6:] },
		"unsorted":          func(r *resultMsg) { r.NewHashes[0], r.NewHashes[1] = hashB, hashA },
		"twice":             func(r *resultMsg) { r.NewHashes[1] = hashA },
		"no stage":          func(r *resultMsg) { r.StagingID = "" },
		"stage path":        func(r *resultMsg) { r.StagingID = "../" + stage[3:] },
		"stage for nothing": func(r *resultMsg) { r.NewHashes = []string{} },
		"fewer generated":   func(r *resultMsg) { r.NumGenerated = 1 },
		"negative":          func(r *resultMsg) { r.NumGenerated = -1 },
		"negative time":     func(r *resultMsg) { r.Elapsed = -1 },
		"negative bytes":    func(r *resultMsg) { r.StagedBytes = -1 },
	} {
		r := goodResult()
		change(&r)
		if _, err := decodeResult(mustMarshal(r), 10); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if _, err := decodeResult(mustMarshal(goodResult()), 1); err == nil {
		t.Error("more objects than allowed are accepted")
	}
}

func TestManifestsRoundTripAndRefuseForeignKeys(t *testing.T) {
	m := manifest{Schema: manifestSchema, WorkerGlobalRank: 3, StagingID: stage, Hashes: []string{hashA}, NumGenerated: 4}
	raw := json.RawMessage(mustMarshal(m))
	want := `{"hashes":["` + hashA + `"],"num_generated":4,"schema":"symcc-standalone-result-commit-v1","staging_id":"` + stage + `","worker_global_rank":3}`
	if string(raw) != want {
		t.Errorf("manifest %s", raw)
	}
	if got, err := decodeManifest(raw, controlLimit); err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{`{}`, strings.Replace(want, `"hashes"`, `"extra":0,"hashes"`, 1), strings.Replace(want, ":3}", ":-3}", 1), strings.Replace(want, "-v1", "-v2", 1)} {
		if _, err := decodeManifest(json.RawMessage(bad), controlLimit); err == nil {
			t.Errorf("accepted: %s", bad)
		}
	}
}

// FuzzMessages feeds arbitrary bytes to every decoder: none panics, and what is accepted is exactly what we would have sent.
func FuzzMessages(f *testing.F) {
	f.Add(mustMarshal(goodResult()))
	f.Add(mustMarshal(stopMsg{Schema: schemaStop, Rank: 1, ShutdownToken: hashA}))
	f.Add(mustMarshal(statusMsg{Schema: schemaStatus, Rank: 1, Sequence: 2, Idle: true}))
	f.Add(mustMarshal(statsMsg{Schema: schemaStats, StatsToken: hashA, Stats: MasterStats{Pending: []int{}, Parked: []string{}}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		same[stopMsg](t, data)
		same[statusMsg](t, data)
		same[probeMsg](t, data)
		same[statsMsg](t, data)
		same[startMsg](t, data)
		if r, err := decodeResult(data, 100); err == nil && string(mustMarshal(r)) != string(data) {
			t.Fatalf("accepted %q", data)
		}
		if _, err := decodeManifest(data, controlLimit); err == nil && !json.Valid(data) {
			t.Fatalf("accepted %q", data)
		}
	})
}

func same[T any](t *testing.T, data []byte) {
	t.Helper()
	if v, err := DecodeStrict[T](data, controlLimit); err == nil && string(mustMarshal(v)) != string(data) {
		t.Fatalf("accepted %q", data)
	}
}
