// Package faults shows that the batch keeps the report's invariants G1 to G9 (its section 6) when operations fail, when
// tokens are stale and when the power fails, and that the same checks catch two planted bugs.
package faults

import (
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"shardlease/internal/experiment"
)

//go:embed experiment.yaml
var files embed.FS

// params: nothing here depends on the scale, since every case takes milliseconds.
type params struct{}

// Faults is the experiment.
type Faults struct{ spec *experiment.Spec }

// New reads the experiment's file.
func New() *Faults {
	spec, _ := experiment.MustLoad[params]("faults", files)
	return &Faults{spec}
}

// Spec returns the experiment's declaration.
func (f *Faults) Spec() *experiment.Spec { return f.spec }

// Run runs the cases on the library and on its broken doubles, the sweep, and the report's directed tests.
func (f *Faults) Run(ctx context.Context, env *experiment.Env) error {
	const parts = 3
	env.Progress(experiment.Tick{Done: 0, Total: parts, What: "directed faults and planted bugs"})
	cases, err := runCases(ctx, env.Work)
	if err != nil {
		return err
	}
	for _, c := range cases {
		fmt.Fprintf(env.Log, "%s, %s: held %v, injected %d, surfaced %d\n", c.Subject, c.Name, c.held(), c.Injected, c.Surfaced)
	}
	if err := write(env.Dir, casesFile, cases); err != nil {
		return err
	}
	env.Progress(experiment.Tick{Done: 1, Total: parts, What: "every operation of a batch fails once"})
	steps, err := sweep(ctx, env.Work)
	if err != nil {
		return err
	}
	if err := write(env.Dir, sweepFile, steps); err != nil {
		return err
	}
	env.Progress(experiment.Tick{Done: 2, Total: parts, What: "the report's directed tests"})
	directed, err := runDirected(ctx, env.Root, env.Work, env.Log)
	if err != nil {
		return err
	}
	env.Progress(experiment.Tick{Done: parts, Total: parts, What: "done"})
	return write(env.Dir, directedFile, directed)
}

func runCases(ctx context.Context, work string) ([]Case, error) {
	var out []Case
	for _, sc := range scenarios() {
		c, err := sc.on(ctx, work, library)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	for _, bug := range planted {
		for _, sc := range bug.scenarios {
			c, err := sc.on(ctx, work, bug.subject)
			if err != nil {
				return nil, err
			}
			out = append(out, c)
		}
	}
	return out, ctx.Err()
}

func write(dir, name string, v any) error {
	data, err := experiment.EncodeJSON(v)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), data, 0o644)
}

// Reduce computes the metrics:
//
//	g1 ... g9                     1 if every case of the library that shows the invariant held
//	cases.run, cases.broken       of the library
//	errors.injected, .surfaced, .hidden   over the cases and the sweep
//	sweep.operations, sweep.lied
//	planted.barrier, planted.token        1 if every case that must catch the bug did
//	directed.passed               of the report's nine
//	directed.<metric>             1 if the test passed, for each element of directed.json
//	directed.<metric>.states      of the model that it searched
func (f *Faults) Reduce(dir string) (*experiment.Metrics, error) {
	var cases []Case
	var steps []SweepStep
	var directed []Directed
	for name, v := range map[string]any{casesFile: &cases, sweepFile: &steps, directedFile: &directed} {
		if err := experiment.ReadJSON(filepath.Join(dir, name), v); err != nil {
			return nil, err
		}
	}
	m := &experiment.Metrics{Experiment: "faults", Metrics: invariants(cases)}
	add := func(name string, value int, unit, file string) {
		m.Metrics = append(m.Metrics, experiment.Exact(name, float64(value), unit, file))
	}
	total, broken, injected, told := 0, 0, 0, 0
	for _, c := range cases {
		if c.Subject != library.name {
			continue
		}
		total, injected, told = total+1, injected+c.Injected, told+c.Surfaced
		if !c.held() {
			broken++
		}
	}
	lied := 0
	for _, s := range steps {
		injected, told, lied = injected+s.Injected, told+s.Surfaced, lied+s.Lied
		if !s.ZeroBatch {
			lied++
		}
	}
	passed := 0
	for _, d := range directed {
		if d.Passed && d.Report != "" {
			passed++
		}
		m.Metrics = append(m.Metrics, experiment.Bool("directed."+d.Metric, d.Passed, directedFile))
		if d.States > 0 {
			add("directed."+d.Metric+".states", d.States, "states", directedFile)
		}
	}
	add("cases.run", total, "cases", casesFile)
	add("cases.broken", broken, "cases", casesFile)
	add("errors.injected", injected, "errors", sweepFile)
	add("errors.surfaced", told, "errors", sweepFile)
	add("errors.hidden", injected-told, "errors", sweepFile)
	add("sweep.operations", len(steps), "operations", sweepFile)
	add("sweep.lied", lied, "operations", sweepFile)
	add("directed.passed", passed, "tests", directedFile)
	for name, bug := range map[string]subject{"planted.barrier": barrierRemoved, "planted.token": staleAccepted} {
		m.Metrics = append(m.Metrics, experiment.Bool(name, caught(cases, bug.name), casesFile))
	}
	return m, m.Finish()
}

// invariants gives 1 for each invariant that at least one case of the library shows and none breaks.
func invariants(cases []Case) []experiment.Metric {
	var out []experiment.Metric
	for n := 1; n <= 9; n++ {
		name, shown, held := fmt.Sprintf("G%d", n), 0, true
		for _, c := range cases {
			if c.Subject == library.name && slices.Contains(c.Invariants, name) {
				shown, held = shown+1, held && c.held()
			}
		}
		metric := experiment.Bool(strings.ToLower(name), held && shown > 0, casesFile)
		metric.N = shown
		out = append(out, metric)
	}
	return out
}

// caught reports whether the bug was planted and every case run on it noticed.
func caught(cases []Case, bug string) bool {
	tried := 0
	for _, c := range cases {
		if c.Subject != bug {
			continue
		}
		if c.held() {
			return false
		}
		tried++
	}
	return tried > 0
}
