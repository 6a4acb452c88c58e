package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"shardlease/internal/campaign"
	"shardlease/internal/sysfault"
	"shardlease/pkg/lease"
	"shardlease/pkg/mpirun"
	"shardlease/pkg/mpirun/mpi"
)

// asProgram makes the test binary be shardlease itself, so that tests run the real program in real processes.
const asProgram = "SHARDLEASE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	sysfault.Shim()
	if os.Getenv(asProgram) != "" {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(m.Run())
}

func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// output runs the program to its end.
func output(t *testing.T, cmd *exec.Cmd) (stdout, stderr string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

func TestBadInputGetsOneSentenceAndADocumentedCode(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/seed", []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		env  string
		code int
		want string
		mpi  bool // only when built with MPI
	}{
		{[]string{"standalone"}, "", campaign.ExitUsage, "-i DIR", false},
		{[]string{"standalone", "-i", dir, "-t", "nan", "--", "cat"}, "", campaign.ExitUsage, "--timeout is NaN", false},
		{[]string{"standalone", "-i", dir, "-t", "x", "--", "cat"}, "", campaign.ExitUsage, "invalid argument", false},
		{[]string{"standalone", "-i", dir, "--nonsense", "--", "cat"}, "", campaign.ExitUsage, "unknown flag", false},
		{[]string{"standalone", "-i", dir, "--ranks", "1", "--", "cat"}, "", campaign.ExitUsage, "--ranks is 1", false},
		{[]string{"standalone", "-i", dir, "--", "cat"}, "SYMCC_STANDALONE_WORK_EPOCH=zz", campaign.ExitUsage, "64 lower-case hexadecimal digits", false},
		{[]string{"standalone", "-i", dir, "--", "cat"}, "SYMCC_STANDALONE_RESULT_MAX_BYTES=0", campaign.ExitBudget, "from 1 to", false},
		{[]string{"standalone", "-i", dir + "/none", "--ranks", "2", "--", "cat"}, "", campaign.ExitNoInput, "input directory", true},
		{[]string{"standalone", "-i", dir, "--ranks", "2", "--", "/nonexistent"}, "", campaign.ExitNoInput, "target", true},
		{[]string{"standalone", "-i", dir, "--", "cat"}, "", campaign.ExitUnavailable, "not started by mpirun", true},
		{[]string{"standalone", "-i", dir, "--ranks", "2", "--", "/bin/cat"}, "PATH=" + dir, campaign.ExitUnavailable, "Open MPI not found", true},
		{[]string{"leases", "counts", dir}, "", campaign.ExitNoInput, "is not a lease table", false},
		{[]string{"leases", "show", dir, "abc"}, "", campaign.ExitUsage, "abc", false},
		{[]string{"probe", dir + "/none"}, "", campaign.ExitCantCreate, "no such file", false},
		{[]string{"nonsense"}, "", campaign.ExitUsage, "unknown command", false},
		{[]string{"standalon"}, "", campaign.ExitUsage, "Did you mean this?; standalone", false},
	} {
		if c.mpi && !mpi.Enabled {
			continue
		}
		cmd := program(t, c.args...)
		cmd.Env = append(cmd.Env, c.env)
		stdout, stderr, code := output(t, cmd)
		if code != c.code || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 || stdout != "" {
			t.Errorf("%v %s: code %d, stderr %q, stdout %q", c.args, c.env, code, stderr, stdout)
		}
	}
}

func TestOnlyTheFirstRankReportsABadOption(t *testing.T) {
	cmd := program(t, "standalone", "-t", "nan")
	cmd.Env = append(cmd.Env, "OMPI_COMM_WORLD_RANK=3")
	if _, stderr, code := output(t, cmd); code != campaign.ExitUsage || stderr != "" {
		t.Errorf("code %d, %q", code, stderr)
	}
}

func TestWithoutMPIStandaloneSaysHowToBuildIt(t *testing.T) {
	if mpi.Enabled {
		t.Skip("this binary is built with MPI")
	}
	_, stderr, code := output(t, program(t, "standalone", "-i", t.TempDir(), "--ranks", "2", "--", "cat"))
	if code != campaign.ExitUnavailable || !strings.Contains(stderr, "-tags mpi") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("code %d, %q", code, stderr)
	}
}

func TestTheHelpDocumentsEveryExitCodeAndVariable(t *testing.T) {
	stdout, _, code := output(t, program(t, "standalone", "--help"))
	if code != 0 {
		t.Fatalf("code %d", code)
	}
	for _, want := range []string{"  64  ", "  66  ", "  67  ", "  68  ", "  69  ", "  70  ", "  71  ", "  72  ", "  73  ", "  75  ", "SYMCC_STANDALONE_WORK_EPOCH",
		"SYMCC_SHUTDOWN_GRACE_SEC", "SYMCC_FINALIZE_GRACE_SEC", "--stats-json", "--execution-log", "--max-idle float"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("missing %q", want)
		}
	}
}

func TestProbeTellsThatThisFileSystemIsSuitable(t *testing.T) {
	dir := t.TempDir()
	stdout, stderr, code := output(t, program(t, "probe", dir))
	if code != 0 || !strings.HasSuffix(stdout, "suitable: true\n") || !strings.Contains(stdout, "lock between processes") {
		t.Errorf("code %d\n%s%s", code, stdout, stderr)
	}
	stdout, _, code = output(t, program(t, "probe", "--json", dir))
	var v probeVerdict
	if err := json.Unmarshal([]byte(stdout), &v); err != nil || code != 0 || !v.Suitable || len(v.Checks) != 11 {
		t.Errorf("code %d, %v, %+v", code, err, v)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestLeasesAreListedShownCountedAndBrokenByExactToken(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	table, err := lease.Open(dir, &lease.Options{Shards: 4})
	if err != nil {
		t.Fatal(err)
	}
	id := lease.SumID([]byte("item"))
	tok, err := table.Claim(ctx, id, json.RawMessage(`{"a":1}`), lease.Holder{Owner: "me", Worker: 3})
	if err != nil {
		t.Fatal(err)
	}
	stdout, _, code := output(t, program(t, "leases", "list", dir, "--json"))
	var entries []entry
	if err := json.Unmarshal([]byte(stdout), &entries); err != nil || code != 0 || len(entries) != 1 || entries[0].ID != id || entries[0].Token != tok.String() || entries[0].Owner != "me" {
		t.Fatalf("code %d, %v\n%s", code, err, stdout)
	}
	if stdout, _, code = output(t, program(t, "leases", "list", dir, "--status", "done")); code != 0 || strings.Count(stdout, "\n") != 1 {
		t.Errorf("code %d\n%s", code, stdout)
	}
	if stdout, _, code = output(t, program(t, "leases", "show", dir, id.String())); code != 0 || !strings.Contains(stdout, `"status": "leased"`) {
		t.Errorf("code %d\n%s", code, stdout)
	}
	wrong := tok
	wrong.Nonce[0]++
	if _, stderr, code := output(t, program(t, "leases", "break", dir, id.String(), wrong.String())); code != campaign.ExitUsage || !strings.Contains(stderr, "not broken") {
		t.Errorf("code %d, %s", code, stderr)
	}
	if err := table.Heartbeat(ctx, id, tok); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := output(t, program(t, "leases", "break", dir, id.String(), tok.String())); code != 0 {
		t.Fatalf("code %d, %s", code, stderr)
	}
	if err := table.Heartbeat(ctx, id, tok); !errors.Is(err, lease.ErrLost) {
		t.Errorf("the holder of a broken lease goes on: %v", err)
	}
	next, err := table.Claim(ctx, id, json.RawMessage(`{}`), lease.Holder{})
	if err != nil || next.Fence <= tok.Fence {
		t.Errorf("%v, %v", next, err)
	}
	corrupt, err := filepath.Glob(dir + "/*/" + id.String() + ".json")
	if err != nil || len(corrupt) != 1 {
		t.Fatalf("%v, %v", corrupt, err)
	}
	if err := os.WriteFile(corrupt[0], []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	if stdout, _, code := output(t, program(t, "leases", "counts", dir)); code != campaign.ExitIncomplete || !strings.Contains(stdout, "corrupt 1") {
		t.Errorf("code %d\n%s", code, stdout)
	}
	if stdout, _, code := output(t, program(t, "leases", "list", dir)); code != campaign.ExitIncomplete || !strings.Contains(stdout, id.String()+"  corrupt") {
		t.Errorf("code %d\n%s", code, stdout)
	}
}

// A job whose launcher had to kill what was left, or could not end it, is no success, whatever mpirun's exit code was.
func TestASignalMakesNoSuccessOfAJobThatHadToBeKilled(t *testing.T) {
	stopped := fmt.Errorf("stopped: %w", context.Canceled)
	for _, c := range []struct {
		res  *mpirun.Result
		err  error
		want int
	}{
		{&mpirun.Result{}, stopped, campaign.ExitOK},
		{&mpirun.Result{Killed: 1}, errors.Join(stopped, mpirun.ErrSurvivors), campaign.ExitIncomplete},
		{&mpirun.Result{Killed: 1}, mpirun.ErrSurvivors, campaign.ExitIncomplete},
		{&mpirun.Result{ExitCode: -1}, stopped, campaign.ExitIncomplete},
		{&mpirun.Result{ExitCode: 75}, errors.Join(stopped, &mpirun.ExitError{Code: 75}), campaign.ExitUnfinished},
		{nil, mpirun.ErrJob, campaign.ExitUsage},
	} {
		got := campaign.ExitOK
		if err := launched(c.res, c.err, errors.Is(c.err, context.Canceled)); err != nil {
			got = asExit(err).code
		}
		if got != c.want {
			t.Errorf("%+v, %v: exit code %d, want %d", c.res, c.err, got, c.want)
		}
	}
}

func TestLauncherTagsAreRemoved(t *testing.T) {
	text := "mpirun: noise\n[3 stdout] [Master] hello\n[0 stderr] \n"
	for pass, want := range map[bool]string{true: "mpirun: noise\n[Master] hello\n\n", false: "[Master] hello\n\nmpirun: noise\n"} {
		var b bytes.Buffer
		o := &launcherOutput{w: &b, pass: pass}
		if n, err := o.Write([]byte(text)); err != nil || n != len(text) {
			t.Errorf("%d, %v", n, err)
		}
		if err := o.flush(); err != nil || b.String() != want {
			t.Errorf("passing its own lines %t: %q, %v", pass, b.String(), err)
		}
	}
}
