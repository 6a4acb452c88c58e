package scale

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shardlease/experiments/scale/raw"
	"shardlease/internal/child"
	"shardlease/internal/experiment"
	"shardlease/pkg/lease"
)

// world makes raw files: what each way costs, and how its syncs are counted.
type world struct {
	file, dir, rest float64 // ms of a file sync, a directory sync, and what else a lease costs
	beat, lookup    float64 // ms of a beat's flush, and for each lease
	auto            float64 // ms of all content syncs of the chosen strategy
	bent            float64 // exponent of N that the model does not have, less 1
	extra           int     // syncs too many in one pass
	counted         float64 // what the library's clock makes of a sync
}

var good = world{file: 0.3, dir: 0.2, rest: 0.05, beat: 0.2, lookup: 20e-6, auto: 1, counted: 1.05}

// call is one call of the library for n leases in k shards.
func (w world) call(way string, n, k int) raw.Call {
	var c raw.Call
	add := func(dir bool, before, took float64) {
		c.Syncs = append(c.Syncs, raw.Sync{Directory: dir, Before: int64(before * 1e6), Took: int64(took * 1e6), Whole: int64(took * 1e6)})
	}
	switch way {
	case raw.OneFlush, raw.OneFlushAgain:
		add(false, w.lookup*float64(n), w.beat)
		return c
	case raw.Auto:
		add(false, 0.5, w.auto)
	default:
		for range n {
			add(false, w.rest, w.file*power(n, w.bent))
		}
	}
	for range k {
		add(true, 0, w.dir)
	}
	return c
}

func power(n int, bent float64) float64 {
	if bent == 0 {
		return 1
	}
	return float64(n) * bent
}

func (c call) ns() (ns int64) {
	for _, y := range c.Syncs {
		ns += y.Before + y.Took
	}
	return ns + c.After
}

type call raw.Call

// write makes the raw files of a run with the cases of full scale. Rounds differ a little, in the same way for all.
func (w world) write(t *testing.T) string {
	t.Helper()
	p := New().params[experiment.Full]
	plan := raw.Plan{Seed: 3, Scale: "full", Cases: p.Cases, Simulation: raw.Simulation{
		Records: 64, Active: 8, TTLSeconds: 1, Servers: []int{1}, Masters: []int{1, 100, 1000}, Replicates: 7}}
	var sides []raw.Side
	var totals []raw.Totals
	for _, c := range plan.Cases {
		total := raw.Totals{Way: c.Way, Records: c.Records, Active: c.Active, FileSync: map[int]int{}, DirectorySync: map[int]int{}}
		for round := range c.Rounds {
			noise := 1 + 0.01*float64(round%3)
			s := raw.Side{Way: c.Way, Records: c.Records, Active: c.Active, Round: round, Renewed: c.Records * c.Passes}
			var calls []raw.Call
			if c.Way == raw.Scalar {
				for range c.Records {
					calls = append(calls, w.call(c.Way, 1, 1))
				}
			} else {
				calls = append(calls, w.call(c.Way, c.Records, min(c.Records, c.Active)))
			}
			for _, one := range calls {
				s.PassNS += int64(float64(call(one).ns()) * noise)
				for _, y := range one.Syncs {
					counts := total.FileSync
					if s.FileSyncs += c.Passes; y.Directory {
						counts = total.DirectorySync
						s.FileSyncs, s.DirSyncs = s.FileSyncs-c.Passes, s.DirSyncs+c.Passes
					}
					counts[bucketOf(float64(y.Whole)*w.counted)]++
				}
			}
			if s.FileSyncs += w.extra; c.Traced {
				s.Calls = calls
			}
			sides = append(sides, s)
		}
		totals = append(totals, total)
	}
	dir := t.TempDir()
	data, err := experiment.EncodeJSON(plan)
	err = errors.Join(err, os.WriteFile(filepath.Join(dir, raw.PlanFile), data, 0o600),
		raw.Write(filepath.Join(dir, raw.SidesFile), sides), raw.Write(filepath.Join(dir, raw.TotalsFile), totals))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func bucketOf(ns float64) int {
	var h lease.Histogram
	i := 0
	for float64(h.UpperBound(i)) < ns {
		i++
	}
	return i
}

// notPassed lists the claims without a PASS.
func notPassed(t *testing.T, dir string) []string {
	t.Helper()
	x := New()
	m, err := x.Reduce(dir)
	if err != nil {
		t.Fatal(err)
	}
	list, err := experiment.Decide(x.Spec(), m, experiment.Suitable)
	if err != nil {
		t.Fatal(err)
	}
	var bad []string
	for _, v := range list {
		if v.Verdict != experiment.Pass {
			bad = append(bad, v.Claim+" "+string(v.Verdict))
		}
	}
	return bad
}

func TestClaimsHoldWhereABeatCostsOneFlush(t *testing.T) {
	if bad := notPassed(t, good.write(t)); bad != nil {
		t.Errorf("not passed: %v", bad)
	}
}

func TestEachPlantedFaultFailsItsClaim(t *testing.T) {
	for name, p := range map[string]struct {
		plant func(w *world)
		fails []string
	}{
		"a pass with a sync too many":        {func(w *world) { w.extra = 1 }, []string{"SC1 FAIL"}},
		"a batch that grows as N squared":    {func(w *world) { w.bent = 0.1 }, []string{"SC2 FAIL"}},
		"beats that grow with N":             {func(w *world) { w.lookup = 2000e-6 }, []string{"SC3 FAIL"}},
		"beats nearly as slow as batches":    {func(w *world) { w.beat = 3 }, []string{"SC5 FAIL"}},
		"a strategy as slow as the report's": {func(w *world) { w.auto = 20 }, []string{"SC6 FAIL"}},
		"latencies counted twice":            {func(w *world) { w.counted = 2 }, []string{"SC7 FAIL"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := good
			p.plant(&w)
			if bad := notPassed(t, w.write(t)); !slices.Equal(bad, p.fails) {
				t.Errorf("not passed: %v, want %v", bad, p.fails)
			}
		})
	}
}

func TestTheModelsCostsAreFoundAgain(t *testing.T) {
	dir := good.write(t)
	m, err := New().Reduce(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"batch.fr_ms": 0.35, "batch.d_ms": 0.2, "one_flush.constant_ms": 0.2, "one_flush.lease_ns": 20} {
		if v, ok := m.Get(name); !ok || v.Value < 0.98*want || v.Value > 1.03*want {
			t.Errorf("%s is %v, want %v", name, v.Value, want)
		}
	}
	again, err := New().Reduce(dir)
	if err != nil || !reflect.DeepEqual(m, again) {
		t.Errorf("a second reduction differs: %v", err)
	}
	if list, err := Figures(dir); err != nil || len(list) != 2 {
		t.Errorf("%d figures, %v", len(list), err)
	}
}

func TestDamagedRawFilesAreNamedWithTheirLine(t *testing.T) {
	for text, want := range map[string]string{
		`{"way":"batch","records":1,"active_shards":1,"pass_ns":0,"renewed":1}`:                                      "sides.jsonl:1: not a timing of batch",
		`{"way":"batch","unknown":1}`:                                                                                "sides.jsonl:1:",
		`{"way":"batch","records":1,"active_shards":1,"pass_ns":1,"renewed":1,"calls":[{"syncs":[{"took_ns":-1}]}]}`: "sides.jsonl:1: not a sync of batch",
	} {
		dir := good.write(t)
		if err := os.WriteFile(filepath.Join(dir, raw.SidesFile), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := New().Reduce(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
	dir := good.write(t)
	if err := os.WriteFile(filepath.Join(dir, raw.TotalsFile), []byte(`{"file_sync_ns":{"999":1}}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New().Reduce(dir); err == nil || !strings.Contains(err.Error(), "totals.jsonl:1: bucket 999") {
		t.Errorf("error %v", err)
	}
}

// The real program, with few leases and the fewest rounds that have an interval.
func TestTheWorkloadCountsExactlyAndAgreesWithTheLibrary(t *testing.T) {
	base := t.TempDir()
	x := New()
	p := x.params[experiment.Smoke]
	p.Cases = nil
	for _, way := range raw.Ways {
		p.Cases = append(p.Cases, raw.Case{Way: way, Records: 12, Active: 3, Passes: 2, Traced: true})
	}
	x.params[experiment.Smoke] = p
	env := &experiment.Env{
		Dir: filepath.Join(base, "raw"), Work: filepath.Join(base, "work"), Bin: filepath.Join(base, "bin"), Scale: experiment.Smoke,
		Rounds: experiment.MinSamples, Seed: 5, Log: io.Discard, Progress: func(experiment.Tick) {},
	}
	program := x.Programs()[0]
	build := child.Cmd{Name: "go", Args: []string{"build", "-o", filepath.Join(env.Bin, program.Name), program.Package}, Dir: "../.."}
	if err := errors.Join(os.Mkdir(env.Dir, 0o755), os.Mkdir(env.Work, 0o755), child.Run(context.Background(), build)); err != nil {
		t.Fatal(err)
	}
	if err := x.Run(context.Background(), env); err != nil {
		t.Fatal(err)
	}
	s, err := load(env.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := s.counted(); err != nil || m[0].Value != 1 || m[0].N != len(raw.Ways)*experiment.MinSamples {
		t.Errorf("counts %+v, %v", m, err)
	}
	for _, total := range s.totals {
		file, err := raw.Histogram(total.FileSync)
		if err != nil {
			t.Fatal(err)
		}
		dir, err := raw.Histogram(total.DirectorySync)
		if err != nil {
			t.Fatal(err)
		}
		files, dirs := s.singles(raw.Case{Way: total.Way, Records: total.Records, Active: total.Active})
		if int(file.Total()) != len(files) || int(dir.Total()) != len(dirs) || len(files) == 0 {
			t.Errorf("%s: the library counted %d and %d syncs, there were %d and %d", total.Way, file.Total(), dir.Total(), len(files), len(dirs))
		}
	}
}
