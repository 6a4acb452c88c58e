package micro

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"shardlease/experiments/micro/raw"
	"shardlease/internal/child"
	"shardlease/internal/experiment"
)

// realRun runs the real workload once, with the fewest rounds that have an interval.
var realRun = sync.OnceValues(func() (dir string, err error) {
	base, err := os.MkdirTemp("", "micro-test-")
	if err != nil {
		return "", err
	}
	realRunDir = base
	m := New()
	env := &experiment.Env{
		Dir: filepath.Join(base, "raw"), Work: filepath.Join(base, "work"), Bin: filepath.Join(base, "bin"), Scale: experiment.Smoke,
		Rounds: experiment.MinSamples, Seed: 5, Log: io.Discard, Progress: func(experiment.Tick) {},
	}
	p := m.Programs()[0]
	build := child.Cmd{Name: "go", Args: []string{"build", "-o", filepath.Join(env.Bin, p.Name), p.Package}, Dir: "../.."}
	if err := errors.Join(os.Mkdir(env.Dir, 0o755), os.Mkdir(env.Work, 0o755), child.Run(context.Background(), build)); err != nil {
		return base, err
	}
	return base, m.Run(context.Background(), env)
})

// realRunDir is the folder that realRun made, "" if no test asked for it.
var realRunDir string

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(realRunDir) // only a temporary folder suffers
	os.Exit(code)
}

// smallRun gives a copy of the raw files of one small run.
func smallRun(t *testing.T) (*Micro, string) {
	t.Helper()
	base, err := realRun()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "raw"), os.DirFS(filepath.Join(base, "raw"))); err != nil {
		t.Fatal(err)
	}
	return New(), filepath.Join(dir, "raw")
}

func TestRunCountsExactlyAndReducesTwiceToTheSame(t *testing.T) {
	m, dir := smallRun(t)
	got, err := m.Reduce(dir)
	if err != nil {
		t.Fatal(err)
	}
	verdicts, err := experiment.Decide(m.Spec(), got, experiment.Suitable)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range verdicts {
		counted := v.Unit == "syncs" || v.Unit == "%" || v.Claim == "M8"
		if counted && v.Verdict != experiment.Pass && !(v.Claim == "M8" && strings.Contains(v.Reason, "strace")) {
			t.Errorf("%s is %s: %s (%v)", v.Claim, v.Verdict, v.Reason, *v.Value)
		}
		if !counted && v.Verdict == experiment.Pass {
			t.Errorf("%s passed with %d rounds", v.Claim, experiment.MinSamples)
		}
	}
	again, err := m.Reduce(dir)
	if err != nil || !reflect.DeepEqual(got, again) {
		t.Errorf("a second reduction differs: %v", err)
	}
}

// Trap 7 of the pipeline: the control put in the place of the batch must not show a speed-up.
func TestControlInThePlaceOfTheMeasurementDoesNotPass(t *testing.T) {
	m, dir := smallRun(t)
	name := filepath.Join(dir, raw.RoundsFile)
	rounds, err := raw.ReadRounds(name)
	if err != nil {
		t.Fatal(err)
	}
	var swapped []raw.Round
	for _, r := range rounds {
		if r.Kind == raw.AA {
			again := r
			again.Kind = raw.AB
			swapped = append(swapped, r, again)
		}
	}
	if err := raw.WriteRounds(name, swapped); err != nil {
		t.Fatal(err)
	}
	got, err := m.Reduce(dir)
	if err != nil {
		t.Fatal(err)
	}
	spec := *m.Spec()
	spec.Claims = nil
	for _, c := range m.Spec().Claims {
		if strings.HasSuffix(c.Metric, ".speedup") && c.Decided() {
			c.MinN = 0 // the number of rounds must not be what saves the verdict here
			spec.Claims = append(spec.Claims, c)
		}
	}
	verdicts, err := experiment.Decide(&spec, got, experiment.Suitable)
	if err != nil || len(verdicts) != 2 {
		t.Fatal(len(verdicts), err)
	}
	for _, v := range verdicts {
		if v.Verdict == experiment.Pass {
			t.Errorf("%s passed on A/A data: %+v", v.Claim, v)
		}
	}
}

func TestDamagedRawFileIsNamedWithItsLine(t *testing.T) {
	name := filepath.Join(t.TempDir(), raw.RoundsFile)
	for text, want := range map[string]string{
		"":      ":1: header",
		"x,y\n": ":1: header",
		"active_shards,kind,round,first,a_ns,b_ns\n1,ab,0,a,5,-7\n":  `:2: "-7"`,
		"active_shards,kind,round,first,a_ns,b_ns\n1,ab,0,a,5,NaN\n": `:2: "NaN"`,
		"active_shards,kind,round,first,a_ns,b_ns\n1,ba,0,a,5,7\n":   `:2: "ba"`,
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := raw.ReadRounds(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
	if _, err := raw.ReadRounds(name + "none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

func TestStraceLinesAreCountedBetweenMarksOnly(t *testing.T) {
	const log = `10 fsync(3</r/before>) = 0
10 faccessat(AT_FDCWD, "/shardlease-mark/begin:1:scalar", F_OK) = -1 ENOENT (No such file or directory)
10 fsync(3<shard/tmp>) = 0
11 fsync(4<shard> <unfinished ...>
10 fdatasync(3<shard/tmp2>) = -1 EIO (Input/output error)
11 <... fsync resumed>) = 0
10 faccessat(AT_FDCWD, "/shardlease-mark/end:1:scalar", F_OK) = -1 ENOENT (No such file or directory)
10 fsync(3</r/between>) = 0
10 faccessat(AT_FDCWD, "/shardlease-mark/begin:1:batch", F_OK) = -1 ENOENT (No such file or directory)
10 fdatasync(3<shard/tmp3>)            = 0
10 faccessat(AT_FDCWD, "/shardlease-mark/end:1:batch", F_OK) = -1 ENOENT (No such file or directory)
`
	got, err := parseStrace(strings.NewReader(log), func(path string) bool { return path == "shard" })
	want := []raw.Kernel{
		{Active: 1, Side: raw.Scalar, Call: "fsync", Kind: "file", Path: "shard/tmp"}, {Active: 1, Side: raw.Scalar, Call: "fsync", Kind: "dir", Path: "shard"},
		{Active: 1, Side: raw.Batch, Call: "fdatasync", Kind: "file", Path: "shard/tmp3"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := parseStrace(strings.NewReader("10 fsync(3</x>) = 0\n"), nil); err == nil {
		t.Error("a log without marks was accepted")
	}
}
