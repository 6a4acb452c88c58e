// Package micro is the report's 64-record micro-benchmark (its section 8.2): the same renewals one by one and as a batch.
package micro

import (
	"context"
	"embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"shardlease/experiments/micro/raw"
	"shardlease/internal/child"
	"shardlease/internal/evidence"
	"shardlease/internal/experiment"
	"shardlease/internal/host"
)

//go:embed experiment.yaml
var files embed.FS

// params are the parameters of experiment.yaml.
type params struct {
	Records int   `yaml:"records"`
	Shards  int   `yaml:"shards"`
	Active  []int `yaml:"active"`
	TTL     int   `yaml:"ttl_s"`
	WarmUp  int   `yaml:"warm_up_rounds"`
	Rounds  int   `yaml:"rounds"`
	Passes  int   `yaml:"passes_per_side"`
}

// Micro is the experiment.
type Micro struct {
	spec   *experiment.Spec
	params map[experiment.Scale]params
}

// New reads the experiment's file.
func New() *Micro {
	spec, p := experiment.MustLoad[params]("micro", files)
	return &Micro{spec, p}
}

// Spec returns the experiment's declaration.
func (m *Micro) Spec() *experiment.Spec { return m.spec }

// Programs names the workload; it is a program of its own so that nothing of the pipeline runs beside what is measured.
func (m *Micro) Programs() []experiment.Program {
	return []experiment.Program{{Name: "micro-workload", Package: "./experiments/micro/workload"}}
}

// Run measures, then counts under strace where that is possible.
func (m *Micro) Run(ctx context.Context, env *experiment.Env) error {
	p := m.params[env.Scale]
	if env.Rounds > 0 {
		p.Rounds = env.Rounds
	}
	program := filepath.Join(env.Bin, "micro-workload")
	hash, err := evidence.HashFile(program)
	if err != nil {
		return err
	}
	w := raw.Workload{
		Seed: env.Seed, Records: p.Records, Shards: p.Shards, Active: p.Active, TTLSeconds: p.TTL, WarmUp: p.WarmUp, Rounds: p.Rounds, Passes: p.Passes,
		CPU: lastCPU(), GoVersion: runtime.Version(), SHA256: hash, Scale: string(env.Scale),
	}
	args := []string{
		"-records", strconv.Itoa(p.Records), "-shards", strconv.Itoa(p.Shards), "-ttl", strconv.Itoa(p.TTL), "-active", joined(p.Active),
		"-warmup", strconv.Itoa(p.WarmUp), "-rounds", strconv.Itoa(p.Rounds), "-passes", strconv.Itoa(p.Passes), "-seed", strconv.FormatUint(env.Seed, 10), "-cpu", strconv.Itoa(w.CPU),
	}
	env.Progress(experiment.Tick{Done: 0, Total: 2, What: fmt.Sprintf("%d interleaved rounds of %d passes", p.Rounds, p.Passes)})
	run := append([]string{"-root", filepath.Join(env.Work, "timed"), "-out", env.Dir}, args...)
	if err := child.Run(ctx, child.Cmd{Name: program, Args: run, Stdout: env.Log, Stderr: env.Log}); err != nil {
		return err
	}
	env.Progress(experiment.Tick{Done: 1, Total: 2, What: "the kernel's count"})
	if w.Kernel, err = m.kernelCount(ctx, env, program, args); err != nil {
		return err
	}
	if err := writeBench(env.Dir); err != nil {
		return err
	}
	data, err := experiment.EncodeJSON(w)
	if err != nil {
		return err
	}
	env.Progress(experiment.Tick{Done: 2, Total: 2, What: "done"})
	return os.WriteFile(filepath.Join(env.Dir, raw.WorkloadFile), data, 0o644)
}

// kernelCount returns the version of strace, or why it did not count. A container may forbid tracing, so its failure is
// recorded and not an error; a failure of the workload itself was seen before.
func (m *Micro) kernelCount(ctx context.Context, env *experiment.Env, program string, args []string) (string, error) {
	version := host.Version(ctx, "strace", "--version")
	if version == host.Unavailable {
		return "none: strace is not installed", raw.WriteKernel(filepath.Join(env.Dir, raw.KernelFile), nil)
	}
	log := filepath.Join(env.Work, "strace")
	argv := append([]string{"-f", "-y", "-qq", "-e", "trace=fsync,fdatasync,syncfs,faccessat,?access", "-e", "signal=none", "-o", log,
		program, "-count", "-root", filepath.Join(env.Work, "counted")}, args...)
	if err := child.Run(ctx, child.Cmd{Name: "strace", Args: argv, Stdout: env.Log, Stderr: env.Log}); err != nil {
		if ctx.Err() != nil {
			return "", err
		}
		fmt.Fprintf(env.Log, "strace: %v\n", err)
		return "none: strace could not trace the program", raw.WriteKernel(filepath.Join(env.Dir, raw.KernelFile), nil)
	}
	data, err := os.ReadFile(log)
	if err != nil {
		return "", err
	}
	// Temporary paths differ from run to run and may hold a name.
	text := strings.ReplaceAll(string(data), env.Work+"/counted/", "")
	if err := os.WriteFile(filepath.Join(env.Dir, raw.StraceFile), []byte(text), 0o644); err != nil {
		return "", err
	}
	isDir := func(path string) bool {
		st, err := os.Stat(filepath.Join(env.Work, "counted", path))
		return err == nil && st.IsDir()
	}
	list, err := parseStrace(strings.NewReader(text), isDir)
	if err != nil {
		return "", err
	}
	return version, raw.WriteKernel(filepath.Join(env.Dir, raw.KernelFile), list)
}

// writeBench repeats the rounds in the format of Go benchmarks, for benchstat.
func writeBench(dir string) error {
	rounds, err := raw.ReadRounds(filepath.Join(dir, raw.RoundsFile))
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, raw.BenchFile))
	if err != nil {
		return err
	}
	fmt.Fprintf(f, "goos: %s\ngoarch: %s\npkg: shardlease/experiments/micro\n", runtime.GOOS, runtime.GOARCH)
	for _, r := range rounds {
		if r.Kind == raw.AB {
			benchLine(f, r.Active, raw.Scalar, r.A)
			benchLine(f, r.Active, raw.Batch, r.B)
		}
	}
	return f.Close()
}

func benchLine(w io.Writer, active int, side string, ns int64) {
	fmt.Fprintf(w, "BenchmarkRenew/active=%d/side=%s 1 %d ns/op\n", active, side, ns)
}

// lastCPU leaves the first one, which serves most interrupts, alone.
func lastCPU() int {
	if n := runtime.NumCPU(); n > 1 {
		return n - 1
	}
	return -1
}

func joined(list []int) string {
	var words []string
	for _, n := range list {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, ",")
}
