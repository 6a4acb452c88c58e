package target

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"shardlease/internal/campaign"
)

func TestMain(m *testing.M) {
	switch os.Getenv("TARGET_TEST_ROLE") {
	case "reaper":
		if err := ReaperMain(os.Stdin, os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "worker":
		workerMain()
	case "unprivileged":
		unprivilegedMain()
	default:
		os.Exit(m.Run())
	}
}

// workerMain is a worker that runs a target for ever and waits to be killed.
func workerMain() {
	dir := os.Args[len(os.Args)-1]
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	reaper, err := StartReaper([]string{self}, dir, append(os.Environ(), "TARGET_TEST_ROLE=reaper"))
	if err != nil {
		panic(err)
	}
	p := &Program{Argv: []string{"/bin/sh", "-c", `sleep 1000 & echo $! > "$0"; wait`, filepath.Join(filepath.Dir(dir), "grandchild")}, Timeout: time.Hour, Dir: dir, Env: os.Environ(), MaxObjects: 1, MaxBytes: 1, Reaper: reaper}
	p.Run(context.Background(), campaign.Job{})
}

// unprivilegedMain runs a target that takes away all permissions of what it writes.
func unprivilegedMain() {
	p := &Program{Argv: []string{"/bin/sh", "-c", `cd "$SYMCC_OUTPUT_DIR"; printf x > out; mkdir -p sub/deep; chmod 0 out sub/deep sub .`}, Timeout: time.Minute, Dir: os.Args[len(os.Args)-1],
		Env: os.Environ(), MaxObjects: 9, MaxBytes: 9}
	e := p.Run(context.Background(), campaign.Job{})
	left, err := os.ReadDir(p.Dir)
	fmt.Printf("%s %q %d %v", contents(e), e.Problem+e.Detail, len(left), err)
}

// A target may take away permissions; that is neither the worker's fault nor the end of its private directory.
func TestATargetMayTakeAwayPermissions(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, dir)
	if os.Geteuid() == 0 { // permissions don't bind root
		cmd = unprivileged(t, self, dir)
	}
	cmd.Env = append(os.Environ(), "TARGET_TEST_ROLE=unprivileged")
	out, err := cmd.CombinedOutput()
	if want := `out=x "" 0 <nil>`; err != nil || string(out) != want {
		t.Errorf("%s, %v; want %s", out, err, want)
	}
}

// unprivileged runs a copy of the test binary as nobody in a directory of nobody's.
func unprivileged(t *testing.T, self, dir string) *exec.Cmd {
	t.Helper()
	const nobody = 65534
	data, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(filepath.Dir(dir), "program")
	for _, err := range []error{os.WriteFile(copied, data, 0o755), os.Chmod(filepath.Dir(dir), 0o755), os.Chown(dir, nobody, nobody)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(copied, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

func program(t *testing.T, argv ...string) *Program {
	t.Helper()
	return &Program{Argv: argv, Timeout: 10 * time.Second, KillAfter: 200 * time.Millisecond, Dir: t.TempDir(), Env: os.Environ(), MaxObjects: 10, MaxBytes: 1000}
}

func shell(t *testing.T, script string) *Program { return program(t, "/bin/sh", "-c", script) }

func run(t *testing.T, p *Program, input string) campaign.Execution {
	t.Helper()
	e := p.Run(context.Background(), campaign.Job{Fence: 7, Input: []byte(input)})
	if left, err := os.ReadDir(p.Dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if e.Fence != 7 || string(e.Input) != input || e.Elapsed <= 0 {
		t.Errorf("execution of another job: %+v", e)
	}
	return e
}

func contents(e campaign.Execution) string {
	var all []string
	for _, o := range e.Outputs {
		all = append(all, o.Name+"="+string(o.Data))
	}
	return strings.Join(all, " ")
}

func TestStandardInputIsTheDefault(t *testing.T) {
	t.Setenv("SYMCC_INPUT_FILE", "elsewhere")
	e := run(t, shell(t, `cat > "$SYMCC_OUTPUT_DIR/b"; printf %s "${SYMCC_INPUT_FILE-unset} $SYMCC_ENABLE_LINEARIZATION $SYMCC_EMIT_HINTS" > "$SYMCC_OUTPUT_DIR/a"`), "hello")
	if got := contents(e); got != "a=unset 1 1 b=hello" || e.Retcode != 0 || e.Problem != "" {
		t.Errorf("%s, %+v", got, e)
	}
}

func TestTheInputFileReplacesEveryPlaceholderAnywhere(t *testing.T) {
	p := program(t, "/bin/sh", "-c", `cat "${1#--in=}" "$2" > "$SYMCC_OUTPUT_DIR/out"; test "$2" = "$SYMCC_INPUT_FILE" && cat >> "$SYMCC_OUTPUT_DIR/out"`, "sh", "--in=@@", "@@")
	if got := contents(run(t, p, "xy")); got != "out=xyxy" {
		t.Errorf("%s", got)
	}
}

func TestRankVariablesDoNotReachTheTarget(t *testing.T) {
	t.Setenv("OMPI_COMM_WORLD_RANK", "3")
	t.Setenv("PMIX_RANK", "3")
	t.Setenv("SYMCC_EMIT_HINTS", "0")
	e := run(t, shell(t, `env | grep -c "^OMPI_\|^PMIX_" > "$SYMCC_OUTPUT_DIR/n"; printf %s "$SYMCC_EMIT_HINTS" > "$SYMCC_OUTPUT_DIR/h"`), "")
	if got := contents(e); got != "h=0 n=0\n" {
		t.Errorf("%q", got)
	}
}

func TestOnlyRegularFilesOfTheRunDirectoryAreOutputs(t *testing.T) {
	e := run(t, shell(t, `cd "$SYMCC_OUTPUT_DIR" && printf 1 > one && printf 2 > two.hints && mkdir sub && printf 3 > sub/three && ln -s one link && ln -s /etc/passwd secret && mkfifo pipe`), "")
	if got := contents(e); got != "one=1" {
		t.Errorf("%s", got)
	}
}

func TestATargetThatRemovesItsDirectoryWroteNothing(t *testing.T) {
	if e := run(t, shell(t, `rm -rf "$SYMCC_OUTPUT_DIR"`), ""); len(e.Outputs) > 0 || e.Problem != "" {
		t.Errorf("%+v", e)
	}
}

func TestExitStatusAndSignalAreRecorded(t *testing.T) {
	if e := run(t, shell(t, "exit 9"), ""); e.Retcode != 9 || e.Problem != "" {
		t.Errorf("%+v", e)
	}
	if e := run(t, shell(t, "kill -SEGV $$"), ""); e.Retcode != -int(syscall.SIGSEGV) {
		t.Errorf("%+v", e)
	}
	if e := run(t, program(t, "/nonexistent/target"), ""); e.Problem != campaign.ErrExecution || e.Detail == "" {
		t.Errorf("%+v", e)
	}
}

func TestBudgetsAreExact(t *testing.T) {
	p := shell(t, `cd "$SYMCC_OUTPUT_DIR"; printf 12345 > a; printf 67890 > b`)
	p.MaxObjects, p.MaxBytes = 2, 10
	if e := run(t, p, ""); e.Problem != "" || len(e.Outputs) != 2 {
		t.Errorf("%+v", e)
	}
	p.MaxBytes = 9
	if e := run(t, p, ""); e.Problem != campaign.ErrResultBudget {
		t.Errorf("bytes: %+v", e)
	}
	p.MaxObjects, p.MaxBytes = 1, 10
	if e := run(t, p, ""); e.Problem != campaign.ErrResultBudget {
		t.Errorf("objects: %+v", e)
	}
}

func TestTheTimeoutEndsTheWholeGroupWithTermThenKill(t *testing.T) {
	p := shell(t, `trap 'printf asked > "$SYMCC_OUTPUT_DIR/out"' TERM; (trap "" TERM; exec sleep 1000) & echo $! > "$SYMCC_OUTPUT_DIR/pid"; while :; do sleep 0.05; done`)
	p.Timeout = 300 * time.Millisecond
	e := run(t, p, "")
	if !e.TimedOut || e.Retcode != -int(syscall.SIGKILL) || len(e.Outputs) != 2 || string(e.Outputs[0].Data) != "asked" {
		t.Fatalf("%s, %+v", contents(e), e)
	}
	if pid := number(t, string(e.Outputs[1].Data)); alive(pid) {
		t.Errorf("process %d outlived its target's timeout", pid)
	}
}

func TestNothingOfTheGroupOutlivesATargetThatEnds(t *testing.T) {
	e := run(t, shell(t, `sleep 1000 & echo $! > "$SYMCC_OUTPUT_DIR/pid"`), "")
	if pid := number(t, string(e.Outputs[0].Data)); alive(pid) {
		t.Errorf("process %d outlived its target", pid)
	}
}

func TestCancellingKillsTheTarget(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(100*time.Millisecond, cancel)
	if e := shell(t, "sleep 1000").Run(ctx, campaign.Job{}); e.Retcode != -int(syscall.SIGKILL) || e.TimedOut {
		t.Errorf("%+v", e)
	}
}

// A worker that dies of SIGKILL takes along the target, what the target has started, and the private directory.
func TestTheReaperCleansUpBehindAKilledWorker(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "private")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	worker, err := os.StartProcess(self, []string{self, dir}, &os.ProcAttr{Env: append(os.Environ(), "TARGET_TEST_ROLE=worker"), Files: []*os.File{nil, nil, os.Stderr}})
	if err != nil {
		t.Fatal(err)
	}
	pidFile := filepath.Join(filepath.Dir(dir), "grandchild")
	eventually(t, "the target runs", func() bool {
		data, err := os.ReadFile(pidFile)
		return err == nil && strings.HasSuffix(string(data), "\n")
	})
	data, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid := number(t, string(data))
	if !alive(pid) {
		t.Fatal("the grandchild does not run: nothing is tested")
	}
	if err := worker.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := worker.Wait(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the grandchild is gone", func() bool { return !alive(pid) })
	eventually(t, "the private directory is gone", func() bool { _, err := os.Lstat(dir); return os.IsNotExist(err) })
}

// The worker died before it could tell the reaper of its target, or the target had left its group: the private directory in the environment is enough.
func TestTheReaperFindsTargetsThatItWasNotToldOf(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "private")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	start := func(out string) *os.Process {
		p, err := os.StartProcess("/bin/sleep", []string{"sleep", "1000"}, &os.ProcAttr{Env: []string{"SYMCC_OUTPUT_DIR=" + out}, Sys: &syscall.SysProcAttr{Setsid: true}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = p.Kill()
			_, _ = p.Wait()
		})
		return p
	}
	ours, other := start(dir+"/1/out"), start(dir+"-of-another/1/out")
	if err := ReaperMain(strings.NewReader(""), dir); err != nil {
		t.Fatal(err)
	}
	if alive(ours.Pid) || !alive(other.Pid) {
		t.Errorf("ours lives: %t, another worker's lives: %t", alive(ours.Pid), alive(other.Pid))
	}
}

func TestTheReaperForgetsGroupsThatHaveEnded(t *testing.T) {
	group, err := os.StartProcess("/bin/sleep", []string{"sleep", "1000"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = group.Kill()
		_, _ = group.Wait()
	}()
	if err := ReaperMain(strings.NewReader(fmt.Sprintf("+%d\n-%d\nnonsense\n", group.Pid, group.Pid)), ""); err != nil {
		t.Fatal(err)
	}
	if !alive(group.Pid) {
		t.Error("the reaper killed a group that was taken back")
	}
	if err := ReaperMain(io.MultiReader(strings.NewReader(fmt.Sprintf("+%d\n", group.Pid))), ""); err != nil {
		t.Fatal(err)
	}
	if alive(group.Pid) {
		t.Error("the reaper left a group that was running")
	}
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// alive tells whether the process runs; zombies don't.
func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	return !slices.Contains([]string{"Z", "X"}, fields[0])
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}
