package campaign

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"shardlease/pkg/groupcommit/vfs"
)

func TestTheHeaderHasTheReferencesShape(t *testing.T) {
	o := &Options{InputDir: "in", OutputDir: "/out", Target: []string{"/bin/t", "-x", "@@"}, Timeout: 3 * time.Second, WallTimeout: 30 * time.Second, WorkersPerMaster: 3}
	roles, err := ComputeRoles(8, 3)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	printHeader(&b, o, roles, 8, hashA, false)
	want := `SymCC MPI Parallel Concolic Execution
  Processes:     8
  Mode:          multi-master (2 masters, auto-scaled at 3 workers/master)
    Master 0: 3 workers
    Master 1: 3 workers
  Shared dir:    /out
  Input dir:     in
  Target:        /bin/t -x @@
  Timeout:       3s per execution
  Work epoch:    ` + hashA + ` (new)
  Wall timeout:  30s total
`
	if b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
	if roles, err = ComputeRoles(8, 90); err != nil {
		t.Fatal(err)
	}
	o.WallTimeout, o.Timeout = 0, 1500*time.Millisecond
	b.Reset()
	printHeader(&b, o, roles, 8, hashA, true)
	for _, want := range []string{"  Mode:          single-master (7 workers)\n", " (configured recovery)\n", "  Timeout:       1.5s per execution\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("missing %q in\n%s", want, b.String())
		}
	}
}

func TestTheFinalStatisticsHaveTheReferencesShape(t *testing.T) {
	var b bytes.Buffer
	(&Final{Observations: 13, Generated: 13, External: 12, Interesting: 1, Throughput: 2.649, MastersUsed: 2, WorkersUsed: 6, ByMaster: map[int]int{0: 7, 1: 6}}).print(&b, 2)
	want := `
[Master] === Final Statistics ===
[Master] Total analysis observations:      13
[Master] Total test cases generated:  13
[Master] External input objects:      12
[Master] New interesting test cases:  1
[Master] Throughput:                  2.6 tc/s
[Master] Masters used:               2
[Master] Workers used:               6
[Master] Analysis by master:         0=7, 1=6
`
	if b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
}

func TestTheCounterLinesHaveTheReferencesShape(t *testing.T) {
	m := HeartbeatMetrics{Batches: 10, Renewals: 40, DirectorySyncs: 20, DirectorySyncsAvoided: 20}
	if got := m.line(1); got != "[Master 1] Lease heartbeat group commit: batches=10 renewals=40 directory_syncs=20 directory_syncs_avoided=20 failures=0" {
		t.Error(got)
	}
	if got := (Counters{Generated: 5}).diagnostics(0); got != "" {
		t.Error(got)
	}
	if got := (Counters{Recovered: 2, LostLeases: 1}).diagnostics(1); got != "[Master 1] Work-control diagnostics: stale_results=0 recovered=2 replayed_commits=0 lost_leases=1 quarantined_control=0" {
		t.Error(got)
	}
}

func ack(epoch string, rank int) []byte {
	return mustMarshal(stopMsg{Schema: schemaStopAck, Rank: rank, ShutdownToken: ShutdownToken(epoch, rank)})
}

func TestAShutdownCountsOnlyExactAcknowledgements(t *testing.T) {
	begin := time.Unix(0, 0)
	s := NewShutdown(hashA, 3, begin, time.Second)
	for group := 1; group <= 2; group++ {
		if data, first := s.Stop(group); !first || string(data) != string(mustMarshal(stopMsg{Schema: schemaStop, Rank: group, ShutdownToken: ShutdownToken(hashA, group)})) {
			t.Errorf("STOP %s", data)
		}
		if _, again := s.Stop(group); again {
			t.Error("STOP twice")
		}
	}
	at := begin.Add(10 * time.Millisecond)
	s.Ack(1, nil, at)           // missing
	s.Ack(1, []byte("{}"), at)  // malformed
	s.Ack(1, ack(hashB, 1), at) // stale: another run's token
	s.Ack(1, ack(hashA, 2), at) // stale: another worker's
	s.Ack(3, ack(hashA, 3), at) // stale: was never asked
	s.Ack(0, ack(hashA, 1), at) // unowned
	if got := s.Pending(); len(got) != 3 {
		t.Fatalf("%v", got)
	}
	s.Ack(1, ack(hashA, 1), at)
	s.Ack(2, ack(hashA, 2), at)
	if s.Done(at) || s.Clean() || !s.Acked(1) || s.Acked(3) {
		t.Error("done without worker 3")
	}
	if !s.Done(begin.Add(time.Second)) {
		t.Error("not done after the grace")
	}
	want := "[Master 7] Worker shutdown: acked=2/3 pending=[3] drained_results=0 result_errors=[] quarantined={'malformed': 1, 'missing': 1, 'stale': 3, 'unowned': 1} communication_errors=[] elapsed=1.000s"
	if got := s.Line(7); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAWorkersAnswerToAStopIsTheOneThatCounts(t *testing.T) {
	s := NewShutdown(hashA, 2, time.Unix(0, 0), time.Second)
	stop, _ := s.Stop(2)
	for _, bad := range []struct {
		data  []byte
		group int
	}{{stop, 1}, {nil, 2}, {ack(hashA, 2), 2}} {
		if _, _, err := AckStop(bad.data, bad.group); err == nil {
			t.Errorf("worker %d answers %q", bad.group, bad.data)
		}
	}
	answer, token, err := AckStop(stop, 2)
	if err != nil || token != ShutdownToken(hashA, 2) {
		t.Fatalf("token %q, %v", token, err)
	}
	if s.Ack(2, answer, time.Unix(0, 0)); !s.Acked(2) || len(s.Quarantined) != 0 {
		t.Errorf("%s does not count: %v", answer, s.Quarantined)
	}
}

func TestACleanShutdownHasTheReferencesLine(t *testing.T) {
	begin := time.Unix(0, 0)
	s := NewShutdown(hashA, 3, begin, time.Minute)
	for group := 1; group <= 3; group++ {
		s.Stop(group)
		s.Ack(group, ack(hashA, group), begin.Add(10*time.Millisecond))
	}
	want := "[Master 0] Worker shutdown: acked=3/3 pending=[] drained_results=0 result_errors=[] quarantined={} communication_errors=[] elapsed=0.010s"
	if !s.Done(begin) || !s.Clean() || s.Line(0) != want {
		t.Errorf("got  %s\nwant %s", s.Line(0), want)
	}
	s.ResultErrors = append(s.ResultErrors, `it's "bad"`)
	if s.Clean() || !strings.Contains(s.Line(0), `result_errors=['it\'s "bad"']`) {
		t.Error(s.Line(0))
	}
}

func TestStatisticsAreSummedAndWrittenAsAWhole(t *testing.T) {
	fsys := disk(t, "/d")
	masters := []MasterStats{
		{Rank: 0, Workers: 3, Acked: 3, Counters: Counters{Generated: 7, Analyzed: 7}, HeartbeatMetrics: HeartbeatMetrics{Batches: 10, Renewals: 40, DirectorySyncs: 20, DirectorySyncsAvoided: 20, LateMax: 3}},
		{Rank: 1, Workers: 3, Acked: 2, Counters: Counters{Generated: 6, Analyzed: 6}, HeartbeatMetrics: HeartbeatMetrics{Batches: 7, Renewals: 27, DirectorySyncs: 21, DirectorySyncsAvoided: 6, Failures: 1, LateMax: 9}},
	}
	if err := WriteStats(fsys, "/d/stats.json", Stats{ExitCode: 70, Masters: masters}); err != nil {
		t.Fatal(err)
	}
	data, err := vfs.ReadFile(fsys, "/d/stats.json", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var s Stats
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	want := HeartbeatMetrics{Batches: 17, Renewals: 67, DirectorySyncs: 41, DirectorySyncsAvoided: 26, Failures: 1, LateMax: 9}
	if s.Schema != statsSchema || s.Total.HeartbeatMetrics != want || s.Total.Analyzed != 13 || s.Total.Acked != 5 || s.Final != nil {
		t.Errorf("%+v", s)
	}
	for _, name := range []string{`"batches"`, `"renewals"`, `"directory_syncs"`, `"directory_syncs_avoided"`, `"failures"`, `"stale_results"`, `"replayed_commits"`, `"quarantined_control"`} {
		if !bytes.Contains(data, []byte(name)) {
			t.Errorf("no %s", name)
		}
	}
}

func TestCountersAddUpAllTheirFields(t *testing.T) {
	var ones map[string]int
	one := Counters{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
	sum := one
	sum.add(one)
	if err := json.Unmarshal(mustMarshal(sum), &ones); err != nil {
		t.Fatal(err)
	}
	for name, n := range ones {
		if n != 2 {
			t.Errorf("%s is %d", name, n)
		}
	}
}
