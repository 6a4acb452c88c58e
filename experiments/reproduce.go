package experiments

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"shardlease/internal/evidence"
	"shardlease/internal/experiment"
	"shardlease/internal/host"
	"shardlease/internal/setup"
	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
)

// Options of a run. The zero value is a whole new run at full scale.
type Options struct {
	Smoke  bool
	Long   bool // beyond full scale, where experiments declare it
	Resume bool
	Stop   bool   // after the first experiment that breaks, instead of going on
	Rounds int    // overrides the experiments' own; 0 does not
	Seed   uint64 // 0 draws one
	Out    string // folder of runs; "" means evidence/runs
	Only   string // one experiment; "" means all
}

// pipeline is one run on its way from Create to Seal.
type pipeline struct {
	Options
	root     string
	runs     string
	list     []entry
	run      *evidence.Run
	facts    *host.Facts
	log      *os.File
	term     *terminal
	verdicts []experiment.Verdict
	broken   map[string]error // what did not finish
	started  time.Time
}

// Reproduce runs the experiments, decides the paper claims, and seals the run. Its error has the documented exit code.
func Reproduce(ctx context.Context, o Options) error {
	p, unlock, err := prepare(ctx, o)
	if err != nil {
		return err
	}
	defer unlock()
	sealed, err := p.execute(ctx)
	if ctx.Err() != nil {
		return fail(Broken, "interrupted; go on with: go tool mage %s", p.again())
	}
	if err != nil {
		return fail(Broken, "%w; the unfinished run is kept in %s", err, p.run.Dir)
	}
	return p.conclude(sealed)
}

// again is the target with the flags that resume this run.
func (p *pipeline) again() string {
	var b strings.Builder
	b.WriteString("reproduce -resume")
	if p.Only != "" {
		b.Reset()
		b.WriteString("exp:" + p.Only + " -resume")
	}
	if p.Smoke {
		b.WriteString(" -smoke")
	}
	if p.Long {
		b.WriteString(" -long")
	}
	if p.Rounds > 0 {
		fmt.Fprintf(&b, " -rounds=%d", p.Rounds)
	}
	if p.Out != "" {
		fmt.Fprintf(&b, " -out=%s", p.Out)
	}
	return b.String()
}

func prepare(ctx context.Context, o Options) (*pipeline, func(), error) {
	if o.Smoke && o.Long {
		return nil, nil, fail(Usage, "-smoke and -long exclude each other: choose one")
	}
	if o.Rounds != 0 && o.Rounds < experiment.MinSamples {
		return nil, nil, fail(Usage, "-rounds=%d is too few for an interval; give at least %d", o.Rounds, experiment.MinSamples)
	}
	dir, err := root()
	if err != nil {
		return nil, nil, err
	}
	p := &pipeline{Options: o, root: dir, runs: filepath.Join(dir, "evidence", "runs"), list: registry(), broken: map[string]error{}}
	if o.Out != "" {
		if p.runs, err = filepath.Abs(o.Out); err != nil {
			return nil, nil, err
		}
	}
	if o.Only != "" {
		e, err := find(o.Only)
		if err != nil {
			return nil, nil, err
		}
		p.list = []entry{e}
	} else if err := preflight(ctx, dir, p.runs); err != nil {
		return nil, nil, err
	}
	return p.lockAndOpen(ctx)
}

func (p *pipeline) lockAndOpen(ctx context.Context) (*pipeline, func(), error) {
	unlock, err := lock(p.runs)
	if err != nil {
		return nil, nil, err
	}
	if err := errors.Join(p.sweep(), p.open(ctx)); err != nil {
		unlock()
		return nil, nil, err
	}
	return p, unlock, nil
}

// preflight finds in seconds what would otherwise break a run after minutes.
func preflight(ctx context.Context, root, runs string) error {
	var bad []string
	for _, c := range setup.Doctor(ctx, root, runs) {
		if c.Level == setup.Bad {
			bad = append(bad, fmt.Sprintf("%s: %s; fix: %s", c.Name, c.Detail, c.Fix))
		}
	}
	if len(bad) > 0 {
		return fail(Undecided, "this host can't reproduce the report yet:\n  %s", strings.Join(bad, "\n  "))
	}
	return nil
}

// lock keeps two runs from measuring each other. The kernel drops it with the process.
func lock(runs string) (func(), error) {
	if err := groupcommit.MkdirAll(vfs.OS, runs, 0o755); err != nil {
		return nil, fail(Undecided, "evidence can't be written: %w; choose another folder with -out", err)
	}
	l, err := vfs.OS.TryLock(filepath.Join(runs, ".lock"), 0)
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fail(Undecided, "another run is writing to %s: wait for it, two would disturb each other's times", runs)
	}
	if err != nil {
		return nil, fail(Undecided, "evidence can't be written: %w; choose another folder with -out", err)
	}
	return func() { _ = l.Close() }, nil
}

// workPattern names the scratch folders of experiments, beside the runs, so that they are on the same file system.
const workPattern = "work-*.partial"

// sweep removes scratch folders of runs that were killed. The lock is held, so nobody is using them.
func (p *pipeline) sweep() error {
	stale, err := filepath.Glob(filepath.Join(p.runs, workPattern))
	for _, dir := range stale {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// open creates or resumes the run folder and its log.
func (p *pipeline) open(ctx context.Context) error {
	p.facts = host.Capture(ctx, p.root, p.runs)
	id := evidence.Identity{
		Commit: p.facts.Git["commit"], Dirty: p.facts.Git["dirty"] != "false", DiffSHA256: p.facts.Git["diff_sha256"],
		Scale: experiment.Full, Rounds: p.Rounds, Seed: p.Seed, Start: time.Now(), Complete: p.Only == "",
	}
	if id.Commit == host.Unavailable {
		id.Commit = "unknown"
	}
	if p.Smoke {
		id.Scale = experiment.Smoke
	}
	if p.Long {
		id.Scale = experiment.Long
	}
	for _, e := range p.list {
		id.Parts = append(id.Parts, e.Spec().Name)
	}
	if id.Seed == 0 {
		var b [8]byte
		rand.Read(b[:])                                  // never fails
		id.Seed = binary.LittleEndian.Uint64(b[:]) >> 11 // exact in JSON readers that only have doubles
	}
	var err error
	if p.Resume {
		p.run, err = evidence.Resume(p.runs, id)
	} else {
		p.run, err = evidence.Create(p.runs, id)
	}
	if errors.Is(err, evidence.ErrNothingToResume) {
		return fail(Usage, "%w", err)
	}
	if err != nil {
		return fail(Undecided, "%w; choose another folder with -out", err)
	}
	if p.log, err = os.OpenFile(filepath.Join(p.run.Dir, "run.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return err
	}
	p.term = newTerminal(p.log)
	if id.Dirty && p.facts.Git["commit"] != host.Unavailable {
		return p.run.Write("uncommitted.diff", []byte(host.WithoutHome(host.Diff(ctx, p.root))))
	}
	return nil
}

// execute runs everything and returns the sealed folder. Only what makes sealing impossible is an error; experiments that
// break are recorded.
func (p *pipeline) execute(ctx context.Context) (string, error) {
	defer p.log.Close()
	p.started = time.Now()
	p.announce()
	if err := p.build(ctx); err != nil {
		return "", err
	}
	for _, e := range p.list {
		err := p.experiment(ctx, e)
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if err != nil {
			p.broken[e.Spec().Name] = err
			p.term.line("%s: BROKE: %v", e.Spec().Name, err)
			if p.Stop {
				return "", err
			}
		}
	}
	return p.finish(ctx)
}

func (p *pipeline) announce() {
	p.term.line("run %s, %s scale, seed %d; expect about %.1f min on two cores", p.run.Name, p.run.Scale, p.run.Seed, p.predicted())
	p.term.line("host is %s%s", p.facts.Suitability, prefixed(": ", strings.Join(p.facts.Reasons, "; ")))
}

// predicted is the sum of what the experiments' files expect, in minutes.
func (p *pipeline) predicted() float64 {
	minutes := 0.0
	for _, e := range p.list {
		minutes += e.Spec().Minutes[p.run.Scale]
	}
	return minutes
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

func (p *pipeline) build(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(p.run.Dir, "build.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	p.term.line("build: programs of the experiments")
	_, err = p.run.Do(evidence.Step{Name: "build"}, "", func() error {
		p.facts.Programs, err = build(ctx, p.root, p.list, log)
		return err
	})
	return err
}

// experiment runs one as a step: raw files, then what they reduce to.
func (p *pipeline) experiment(ctx context.Context, e entry) error {
	spec := e.Spec()
	p.term.prefix = spec.Name
	step := evidence.Step{Name: spec.Name, Predicted: 60 * spec.Minutes[p.run.Scale], InputHash: p.inputHash(e)}
	p.term.line("%s: %s (about %.1f min)", spec.Name, spec.Title, spec.Minutes[p.run.Scale])
	start := time.Now()
	skipped, err := p.run.Do(step, spec.Name, func() error { return p.measure(ctx, e) })
	if err != nil {
		return err
	}
	if skipped {
		p.term.line("%s: done before with the same inputs, outputs unchanged", spec.Name)
		return nil
	}
	p.term.line("%s: done in %.1f min", spec.Name, time.Since(start).Minutes())
	return nil
}

func (p *pipeline) measure(ctx context.Context, e entry) (err error) {
	name := e.Spec().Name
	dir, err := p.run.Fresh(name)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(p.runs, workPattern)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if err := os.Chmod(work, 0o755); err != nil { // servers that refuse root run in it as another user
		return err
	}
	log, err := os.Create(filepath.Join(dir, "log.txt"))
	if err != nil {
		return err
	}
	env := &experiment.Env{
		Root: p.root, Dir: dir, Work: work, Bin: binDir(p.root), Scale: p.run.Scale, Rounds: p.Rounds, Seed: p.run.Seed,
		Log: log, Progress: p.term.tick,
	}
	if err := errors.Join(e.Run(ctx, env), log.Close()); err != nil {
		return err
	}
	metrics, err := e.Reduce(dir)
	if err != nil {
		return fmt.Errorf("reduce the raw samples: %w", err)
	}
	return p.run.WriteJSON(name+"/"+experiment.ResultsFile, metrics)
}

// inputHash covers all that the step's outputs depend on; the commit and its changes are those of the whole run.
func (p *pipeline) inputHash(e entry) string {
	programs := map[string]string{}
	if b, ok := e.Experiment.(experiment.Builder); ok {
		for _, program := range b.Programs() {
			programs[program.Name] = p.facts.Programs[program.Name]
		}
	}
	data, err := json.Marshal([]any{e.Spec(), programs, p.run.Scale, p.run.Rounds, p.run.Seed, p.run.Commit, p.run.DiffSHA256})
	if err != nil {
		panic(err) // plain data
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
