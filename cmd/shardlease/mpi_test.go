//go:build mpi

package main

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"shardlease/internal/campaign"
	"shardlease/pkg/mpirun"
)

// job is a real Open MPI campaign with the parameters of the report: 8 processes, 2 masters, 12 seeds, 4 shards, and a target that writes one child. Only
// the TTL is not its 1 s: a busy disk may stall for longer than a batch has then, which ends a campaign, as it must.
type job struct {
	dir, epoch, marker string
	sleep              string
	flags              []string
}

const markerVar = "SHARDLEASE_TEST_JOB"

func newJob(t *testing.T, sleep string) *job {
	t.Helper()
	if _, err := mpirun.Find(t.Context()); err != nil {
		t.Skipf("needs Open MPI: %v", err)
	}
	j := &job{dir: t.TempDir(), epoch: strings.Repeat("c", 64), marker: randomText(t), sleep: sleep}
	for _, name := range []string{"in", "tmp"} {
		if err := os.Mkdir(filepath.Join(j.dir, name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 12 {
		if err := os.WriteFile(fmt.Sprintf("%s/in/%02d", j.dir, i), fmt.Appendf(nil, "integrity-seed-%03d\n", i+1), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { // whatever the test did
		for _, pid := range j.processes(t, "") {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return j
}

func randomText(t *testing.T) string {
	t.Helper()
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b[:])
}

func (j *job) command(t *testing.T, resume bool, extra ...string) *exec.Cmd {
	t.Helper()
	args := append([]string{"standalone", "-i", j.dir + "/in", "-o", j.dir + "/out", "-t", "10", "--max-idle", "1", "--workers-per-master", "3", "--ranks", "8",
		"--stats-json", j.dir + "/stats.json", "--execution-log", j.dir + "/executions"}, j.flags...)
	if os.Geteuid() == 0 {
		args = append(args, "--allow-run-as-root")
	}
	args = append(args, extra...)
	cmd := program(t, append(args, "--", "/bin/sh", "-c",
		"sleep "+j.sleep+`; mkdir -p "$SYMCC_OUTPUT_DIR"; printf "f324-heartbeat-child\n" > "$SYMCC_OUTPUT_DIR/out"; cat >/dev/null`)...)
	cmd.Env = append(cmd.Env, "SYMCC_STANDALONE_WORK_LEASE_TTL=5", "SYMCC_STANDALONE_WORK_LEASE_SHARDS=4", markerVar+"="+j.marker, "TMPDIR="+j.dir+"/tmp")
	if resume {
		cmd.Env = append(cmd.Env, "SYMCC_STANDALONE_WORK_EPOCH="+j.epoch)
	}
	return cmd
}

// processes are the living processes of this job whose environment has the given variable too, if any. Launcher, mpirun, ranks, reapers and targets
// inherit the marker.
func (j *job) processes(t *testing.T, variable string) []int {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // it has just gone, or is not ours
		}
		env := strings.Split(string(data), "\x00")
		if slices.Contains(env, markerVar+"="+j.marker) && (variable == "" || slices.Contains(env, variable)) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

func (j *job) stats(t *testing.T) campaign.Stats {
	t.Helper()
	data, err := os.ReadFile(j.dir + "/stats.json")
	if err != nil {
		t.Fatal(err)
	}
	var s campaign.Stats
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// corpus counts the objects and the epoch directories of the output directory.
func (j *job) corpus(t *testing.T) (objects, epochs int) {
	t.Helper()
	entries, err := os.ReadDir(j.dir + "/out")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if campaign.IsHex(e.Name(), 64) {
			objects++
		}
		if strings.Contains(e.Name(), "standalone-work-") {
			epochs++
		}
	}
	return objects, epochs
}

func eventually(t *testing.T, what string, limit time.Duration, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

func (j *job) expectNoProcess(t *testing.T) {
	t.Helper()
	eventually(t, "no process of the job is left", 20*time.Second, func() bool { return len(j.processes(t, "")) == 0 })
}

// The forced-heartbeat campaign of the report, section 9.2 of the reference: identities, no timing-dependent count.
func TestTheForcedHeartbeatCampaignOfTheReport(t *testing.T) {
	j := newJob(t, "2.4") // each execution sees a heartbeat, which comes every 1.7 s
	stdout, stderr, code := output(t, j.command(t, false, "--wall-timeout", "60"))
	if code != 0 {
		t.Fatalf("code %d\n%s%s", code, stdout, stderr)
	}
	if objects, epochs := j.corpus(t); objects != 13 || epochs != 0 {
		t.Errorf("%d objects, %d epochs", objects, epochs)
	}
	s := j.stats(t)
	h := s.Total.HeartbeatMetrics
	if s.Final.Observations != 13 || s.Final.Generated != 13 || s.Final.Interesting != 1 || s.Total.Analyzed != 13 || s.Total.Acked != 6 || s.Total.Workers != 6 {
		t.Errorf("%+v", s)
	}
	if s.Final.ByMaster[0] != 6 || s.Final.ByMaster[1] != 7 { // the reference's test vector for these seeds; the child is another one, but master 1's too
		t.Errorf("split %v", s.Final.ByMaster)
	}
	if h.DirectorySyncsAvoided != h.Renewals-h.DirectorySyncs || h.DirectorySyncsAvoided == 0 || h.Failures != 0 {
		t.Errorf("%+v", h)
	}
	if n := len(regexp.MustCompile(`(?m)^\[Master [01]\] Worker shutdown: acked=3/3 pending=\[\] `).FindAllString(stdout, -1)); n != 2 {
		t.Errorf("%d shutdown lines in\n%s", n, stdout)
	}
	if n := len(regexp.MustCompile(`(?m)^\[Master [01]\] Lease heartbeat group commit: batches=\d+ renewals=\d+ directory_syncs=\d+ directory_syncs_avoided=\d+ failures=0$`).FindAllString(stdout, -1)); n != 2 {
		t.Errorf("%d group commit lines in\n%s", n, stdout)
	}
	j.expectNoProcess(t)
}

// kill ends one process of a running job.
func (j *job) kill(t *testing.T, whom string) {
	t.Helper()
	victim := 0
	for _, pid := range j.processes(t, "") {
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			continue
		}
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil {
			continue
		}
		isMPIRun := strings.HasPrefix(string(name), "mpirun") || strings.HasPrefix(string(name), "orterun") || strings.HasPrefix(string(name), "prterun")
		if whom == "mpirun" && isMPIRun || whom != "mpirun" && bytes.Contains(environ, []byte("\x00OMPI_COMM_WORLD_RANK="+whom+"\x00")) {
			victim = pid
		}
	}
	if victim == 0 {
		t.Fatalf("no process %s among %v", whom, j.processes(t, ""))
	}
	if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func (j *job) executions(t *testing.T, event string) int {
	t.Helper()
	data, err := os.ReadFile(j.dir + "/executions")
	if err != nil {
		return 0
	}
	return bytes.Count(data, []byte(`"event":"`+event+`"`))
}

// Killing any rank or mpirun leaves no process; the same epoch finishes all work exactly once in the records.
func TestAKilledCampaignLeavesNoProcessAndIsFinishedByTheSameEpoch(t *testing.T) {
	for who, whom := range map[string]string{"a worker": "5", "a sub-master": "1", "rank 0": "0", "mpirun": "mpirun"} {
		t.Run(who, func(t *testing.T) {
			j := newJob(t, "0.8")
			first := j.command(t, true)
			var text bytes.Buffer
			first.Stdout, first.Stderr = &text, &text
			if err := first.Start(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "seven executions have started", 60*time.Second, func() bool { return j.executions(t, "start") >= 7 })
			j.kill(t, whom)
			if err := first.Wait(); err == nil {
				t.Fatalf("a killed campaign succeeded\n%s", text.String())
			}
			j.expectNoProcess(t)
			eventually(t, "no private directory is left", 20*time.Second, func() bool {
				left, err := filepath.Glob(j.dir + "/tmp/shardlease-run-*")
				return err == nil && len(left) == 0
			})
			if _, epochs := j.corpus(t); epochs != 1 {
				t.Errorf("%d epochs after the kill", epochs)
			}
			stdout, stderr, code := output(t, j.command(t, true))
			if code != 0 {
				t.Fatalf("resume: code %d\n%s%s", code, stdout, stderr)
			}
			s := j.stats(t)
			if objects, epochs := j.corpus(t); objects != 13 || epochs != 0 || s.Final.Observations != 13 || s.Final.Unfinished != 0 || !s.Resumed {
				t.Errorf("%d objects, %d epochs, %+v", objects, epochs, s.Final)
			}
			// At most the executions that were running at the kill, one a worker, happened twice.
			if n := j.executions(t, "start"); n < 13 || n > 13+6 {
				t.Errorf("%d executions", n)
			}
			j.expectNoProcess(t)
		})
	}
}

func TestASignalToTheLauncherEndsTheCampaignInOrder(t *testing.T) {
	j := newJob(t, "0.8")
	cmd := j.command(t, true)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an execution has started", 60*time.Second, func() bool { return j.executions(t, "start") > 0 })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the code is looked at below
	if code := cmd.ProcessState.ExitCode(); code != campaign.ExitUnfinished {
		t.Errorf("code %d\n%s", code, text.String())
	}
	if s := j.stats(t); s.Total.Acked != 6 || s.ExitCode != campaign.ExitUnfinished {
		t.Errorf("%+v", s)
	}
	j.expectNoProcess(t)
	if stdout, stderr, code := output(t, j.command(t, true)); code != 0 || j.stats(t).Final.Observations != 13 {
		t.Errorf("resume: code %d\n%s%s", code, stdout, stderr)
	}
}

func TestTheWrongNumberOfRanksIsRefused(t *testing.T) {
	j := newJob(t, "0.1")
	cmd := j.command(t, false)
	cmd.Env = append(cmd.Env, "OMPI_COMM_WORLD_SIZE=1", "OMPI_COMM_WORLD_RANK=0") // as a rank that another MPI's mpirun has started: a world of its own
	_, stderr, code := output(t, cmd)
	if code != campaign.ExitUnavailable || !strings.Contains(stderr, "wrong world size") {
		t.Errorf("code %d, %s", code, stderr)
	}
}

// Open MPI adds a page to each exit code that is not 0; the campaign's own sentence is enough.
func TestAnOutputDirectoryThatCannotBeMadeGetsOneSentence(t *testing.T) {
	j := newJob(t, "0.1")
	file := filepath.Join(j.dir, "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := j.command(t, false, "-o", file)
	_, stderr, code := output(t, cmd)
	if code != campaign.ExitCantCreate || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "not a directory") {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
	j.expectNoProcess(t)
}
