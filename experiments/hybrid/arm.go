package hybrid

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"shardlease/internal/child"
	"shardlease/internal/experiment"
	"shardlease/internal/host"
	"shardlease/internal/hybrid/afl"
)

// armPlan is what one arm is to do.
type armPlan struct {
	params
	name    string
	jobs    []string
	seconds float64
	kill    float64 // when the victim's coordinator is killed; 0 means never
}

// arm is one arm while it runs: work is thrown away, dir keeps what is recorded.
type arm struct {
	armPlan
	env       *experiment.Env
	dir, work string
	start     time.Time
	record    Arm
}

const fuzzerName = "main"

func (a *arm) sync() string     { return filepath.Join(a.work, "sync") }
func (a *arm) table() string    { return filepath.Join(a.work, "leases", "work") }
func (a *arm) elapsed() float64 { return time.Since(a.start).Seconds() }

// runArm runs afl-fuzz and the arm's jobs to their end, records everything and returns how many seconds the arm took. Nothing of it is left
// running, whatever fails.
func runArm(ctx context.Context, env *experiment.Env, plan armPlan, versions []string) (seconds float64, err error) {
	a := &arm{armPlan: plan, env: env, dir: filepath.Join(env.Dir, plan.name), work: filepath.Join(env.Work, plan.name)}
	if err := errors.Join(os.MkdirAll(a.dir, 0o755), os.MkdirAll(filepath.Join(a.work, "seeds"), 0o755)); err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(a.work, "seeds", "seed"), []byte(strings.Repeat("x", 24)), 0o644); err != nil {
		return 0, err
	}
	a.record = Arm{Name: a.name, Jobs: []Job{}, Versions: versions}
	stop, err := a.startFuzzer(ctx)
	if err != nil {
		return 0, err
	}
	inst, err := a.attach(ctx)
	if err == nil {
		a.start = time.Now()
		a.record.StartUnixS = float64(a.start.UnixMicro()) / 1e6
		err = a.runJobs(ctx)
		if err == nil && a.name == leased {
			err = a.awaitLook(ctx)
		}
		a.record.EndS = a.elapsed()
	}
	if err = errors.Join(err, stop()); err != nil {
		return 0, err
	}
	return a.record.EndS, a.collect(ctx, inst)
}

// startFuzzer starts afl-fuzz -M. stop asks it to end, which it does in good order, and waits for it.
func (a *arm) startFuzzer(ctx context.Context) (stop func() error, err error) {
	log, err := os.Create(filepath.Join(a.dir, fuzzerLog))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- child.Run(ctx, child.Cmd{
			Name: "afl-fuzz",
			Args: []string{"-M", fuzzerName, "-i", filepath.Join(a.work, "seeds"), "-o", a.sync(), "-s", strconv.FormatUint(a.env.Seed%1_000_000, 10), "--", filepath.Join(a.env.Work, fuzzTarget)},
			Env: []string{"AFL_NO_UI=1", "AFL_NO_AFFINITY=1", "AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES=1", "AFL_SKIP_CPUFREQ=1", "AFL_NO_COLOR=1",
				"AFL_SYNC_TIME=1"},
			Dir: a.work, Stdout: a.hide(log), Stderr: a.hide(log),
			Grace: time.Minute, // killed, it would leave the statistics of its start
		})
	}()
	return func() error {
		var early error
		select {
		case early = <-done:
			early = fmt.Errorf("%w: %w", errFuzzer, early)
		default:
			cancel()
			<-done // stopped by the context
		}
		cancel()
		return errors.Join(early, log.Close())
	}, nil
}

// attach waits until the instance can be attached to.
func (a *arm) attach(ctx context.Context) (*afl.Instance, error) {
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		var inst *afl.Instance
		if inst, err = afl.Attach(ctx, a.sync(), fuzzerName); err == nil {
			return inst, nil
		}
	}
	return nil, errors.Join(err, ctx.Err())
}

// runJobs runs the jobs side by side until their wall timeouts, or, if there is none, lets the fuzzer work as long.
func (a *arm) runJobs(ctx context.Context) error {
	if len(a.jobs) == 0 {
		return sleep(ctx, a.seconds)
	}
	done := make(chan error, len(a.jobs))
	a.record.Jobs = make([]Job, len(a.jobs))
	for i, name := range a.jobs {
		go func() { done <- a.runJob(ctx, name, &a.record.Jobs[i]) }()
	}
	var errs []error
	if a.kill > 0 {
		errs = append(errs, a.killVictim(ctx))
	}
	killed := a.elapsed()
	for range a.jobs {
		errs = append(errs, <-done)
	}
	for i := range a.record.Jobs {
		if a.kill > 0 && a.record.Jobs[i].Name == victim {
			a.record.Jobs[i].KilledS = killed
		}
	}
	return errors.Join(errs...)
}

func sleep(ctx context.Context, seconds float64) error {
	select {
	case <-time.After(time.Duration(seconds * float64(time.Second))):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// runJob runs one campaign. How it ends is recorded, not judged.
func (a *arm) runJob(ctx context.Context, name string, job *Job) error {
	log, err := os.Create(filepath.Join(a.dir, name+logSuffix))
	if err != nil {
		return err
	}
	defer log.Close() // for people; the statistics decide
	float := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	args := []string{"hybrid", "--ranks", strconv.Itoa(a.Workers + 1), "-a", fuzzerName, "-o", a.sync(), "-n", name, "-t", "10", "--wall-timeout", float(a.seconds),
		"--stats-json", filepath.Join(a.dir, name+statsSuffix), "--event-log", filepath.Join(a.dir, name+eventsSuffix), "--",
		filepath.Join(a.env.Bin, "hybrid-solver"), "-think", a.Think, "-log", filepath.Join(a.dir, runsFile), filepath.Join(a.env.Work, observed)}
	if os.Geteuid() == 0 {
		args = append([]string{args[0], "--allow-run-as-root"}, args[1:]...)
	}
	leases := "0"
	if a.name == leased {
		leases = "1"
	}
	job.Name = name
	for _, arg := range append([]string{"shardlease"}, args...) {
		job.Argv = append(job.Argv, a.hidden(arg))
	}
	err = child.Run(ctx, child.Cmd{Name: filepath.Join(a.env.Bin, "shardlease"), Args: args, Dir: a.work, Stdout: a.hide(log), Stderr: a.hide(log),
		Grace: time.Minute, // it stops its ranks in order, bounded by the graces below
		Env: []string{"SYMCC_MULTI_MASTER_LEASES=" + leases, "SYMCC_MULTI_MASTER_LEASE_DIR=" + a.table(),
			"SYMCC_MULTI_MASTER_TARGET_LEASE_DIR=" + filepath.Join(a.work, "leases", "targets"), "SYMCC_MULTI_MASTER_LEASE_SHARDS=" + strconv.Itoa(a.Shards),
			"SYMCC_WORK_LEASE_TTL=" + float(a.TTL), "SYMCC_MULTI_MASTER_TARGET_LEASE_TTL=" + float(a.TTL),
			"SYMCC_SHUTDOWN_GRACE_SEC=20", "SYMCC_FINALIZE_GRACE_SEC=10"}})
	var exit *child.ExitError
	if ctx.Err() == nil && errors.As(err, &exit) {
		job.ExitCode, err = exit.Code, nil
	}
	return err
}

// hidden replaces temporary folders, which differ from run to run and may hold a name, and the machine's name in that of a coordinator.
func (a *arm) hidden(text string) string {
	replace := []string{a.env.Work, "$WORK", a.env.Dir, "$OUT", a.env.Bin, "$BIN", a.env.Root, "$ROOT"}
	if name, err := os.Hostname(); err == nil {
		replace = append(replace, name+":", "host:")
	}
	return host.WithoutHome(strings.NewReplacer(replace...).Replace(text))
}

// hide is a writer that hides.
func (a *arm) hide(w io.Writer) io.Writer { return hider{a, w} }

type hider struct {
	a *arm
	w io.Writer
}

func (h hider) Write(p []byte) (int, error) {
	if _, err := io.WriteString(h.w, h.a.hidden(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
