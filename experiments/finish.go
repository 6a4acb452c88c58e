package experiments

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"shardlease/internal/evidence"
	"shardlease/internal/experiment"
	"shardlease/internal/figures"
	"shardlease/internal/host"
)

// finish decides the claims, draws the figures, describes the run and seals it.
func (p *pipeline) finish(ctx context.Context) (string, error) {
	if err := p.decide(); err != nil {
		return "", err
	}
	_, err := p.run.Do(evidence.Step{Name: "figures"}, "figures", func() error { return p.draw(ctx) })
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		p.broken["figures"] = err
		p.term.line("figures: BROKE: %v", err)
	}
	after := host.Now()
	p.facts.After = &after
	if err := errors.Join(p.run.WriteJSON("env.json", p.facts), p.run.WriteGuide()); err != nil {
		return "", err
	}
	p.term.line("sealing %s", p.run.Name)
	if err := p.log.Close(); err != nil {
		return "", err
	}
	if err := errors.Join(p.run.WriteCrate(specs(p.list)), p.run.WriteStatement(p.verdicts)); err != nil {
		return "", err
	}
	sealed, err := p.run.Seal()
	if err != nil {
		return "", err
	}
	return sealed, evidence.SetLatest(p.runs, sealed, p.run.Identity)
}

// decide writes the claims and the verdicts. A claim whose metric is missing breaks its experiment.
func (p *pipeline) decide() error {
	p.verdicts = []experiment.Verdict{}
	for _, e := range p.list {
		spec := e.Spec()
		cause := p.broken[spec.Name]
		var list []experiment.Verdict
		if cause == nil {
			list, cause = decideFrom(filepath.Join(p.run.Dir, spec.Name), spec, p.facts.Suitability)
		}
		if cause != nil {
			p.broken[spec.Name] = cause
			list = experiment.Broken(spec, cause)
		}
		p.verdicts = append(p.verdicts, list...)
	}
	return errors.Join(p.run.WriteJSON(evidence.ClaimsFile, specs(p.list)), p.run.WriteJSON(evidence.VerdictsFile, p.verdicts))
}

func decideFrom(dir string, spec *experiment.Spec, host experiment.Suitability) ([]experiment.Verdict, error) {
	metrics, err := experiment.ReadMetrics(dir)
	if err != nil {
		return nil, err
	}
	return experiment.Decide(spec, metrics, host)
}

// draw writes option, picture and page of each figure, and the index of the run.
func (p *pipeline) draw(ctx context.Context) error {
	dir, err := p.run.Fresh("figures")
	if err != nil {
		return err
	}
	page := figures.IndexPage{
		Title: "Run " + p.run.Name, Smoke: p.run.Scale == experiment.Smoke, Verdicts: pageVerdicts(p.verdicts),
		Intro: fmt.Sprintf("Commit %s, %s scale, host %s.", p.run.Commit, p.run.Scale, p.facts.Suitability),
	}
	for _, name := range []string{evidence.VerdictsFile, evidence.ClaimsFile, "env.json", "steps.json", evidence.SumsFile, evidence.GuideFile} {
		page.Links = append(page.Links, figures.Link{Text: name, Href: "../" + name})
	}
	return drawAll(ctx, p.root, p.run.Dir, dir, p.list, page, func(name string) bool { return p.broken[name] == nil })
}

// drawAll draws the figures of every experiment that is there from the raw files of run into dir.
func drawAll(ctx context.Context, root, run, dir string, list []entry, page figures.IndexPage, there func(name string) bool) error {
	a := artist{root: root, dir: dir}
	links := page.Links
	var pages []figures.Link // of the experiments
	for _, e := range list {
		spec := e.Spec()
		if e.figures == nil || !there(spec.Name) {
			continue
		}
		all, err := e.figures(filepath.Join(run, spec.Name))
		if err != nil {
			return fmt.Errorf("%s: %w", spec.Name, err)
		}
		own := page
		own.Title, own.Entries = spec.Title, nil
		own.Links = append([]figures.Link{{Text: "all experiments", Href: "index.html"}, {Text: "raw files", Href: "../" + spec.Name + "/"}}, links...)
		own.Verdicts = slices.DeleteFunc(slices.Clone(page.Verdicts), func(v figures.Verdict) bool { return !claims(spec, v.Claim) })
		for _, f := range all {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			entry, err := a.draw(f, page.Smoke)
			if err != nil {
				return fmt.Errorf("%s: figure %s: %w", spec.Name, f.ID, err)
			}
			own.Entries = append(own.Entries, entry)
		}
		if err := writeIndex(filepath.Join(dir, spec.Name+".html"), own); err != nil {
			return err
		}
		page.Entries = append(page.Entries, own.Entries...)
		pages = append(pages, figures.Link{Text: spec.Title, Href: spec.Name + ".html"})
	}
	page.Links = append(pages, links...)
	return writeIndex(filepath.Join(dir, "index.html"), page)
}

func claims(spec *experiment.Spec, id string) bool {
	return slices.ContainsFunc(spec.Claims, func(c experiment.Claim) bool { return c.ID == id })
}

func writeIndex(name string, page figures.IndexPage) error {
	text, err := figures.Index(page)
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o644)
}

// artist draws figures into a folder.
type artist struct {
	root, dir string
	renderer  *figures.Renderer // made for the first figure: without any, the charting script is not needed
}

// draw writes one figure as option, picture and page.
func (a *artist) draw(f figures.Figure, smoke bool) (figures.Entry, error) {
	var err error
	if a.renderer == nil {
		if a.renderer, err = figures.NewRenderer(figures.ScriptPath(a.root)); err != nil {
			return figures.Entry{}, err
		}
	}
	if smoke {
		if f, err = f.Smoke(); err != nil {
			return figures.Entry{}, err
		}
	}
	svg, err := a.write(f)
	return figures.Entry{Figure: f, SVG: svg, Page: f.ID + ".html"}, err
}

func (a *artist) write(f figures.Figure) ([]byte, error) {
	svg, err := a.renderer.SVG(f)
	if err != nil {
		return nil, err
	}
	page, err := figures.HTML(f, svg, figures.ScriptHref(a.root, a.dir))
	if err != nil {
		return nil, err
	}
	base := filepath.Join(a.dir, f.ID)
	return svg, errors.Join(
		os.WriteFile(base+".option.json", f.Option, 0o644),
		os.WriteFile(base+".svg", svg, 0o644),
		os.WriteFile(base+".html", page, 0o644),
	)
}

func pageVerdicts(list []experiment.Verdict) []figures.Verdict {
	var out []figures.Verdict
	for _, v := range list {
		out = append(out, figures.Verdict{
			Claim: v.Claim, Sentence: v.Sentence, Verdict: string(v.Verdict), Value: optional(v.Value), Interval: interval(v),
			Report: optional(v.Report), Band: limits(v.Band),
		})
	}
	return out
}

// conclude prints the closing table and turns the outcome into the exit code.
func (p *pipeline) conclude(sealed string) error {
	table(os.Stdout, verdictRows(p.verdicts))
	for _, v := range p.verdicts {
		if v.Verdict != experiment.Pass {
			fmt.Printf("%s %s: %s\n", v.Claim, v.Verdict, v.Reason)
		}
	}
	fmt.Printf("sealed in %s after %.1f min (predicted %.1f); check it with: go tool mage verify\n",
		relative(p.root, sealed), time.Since(p.started).Minutes(), p.predicted())
	if err := p.report(sealed); err != nil {
		p.broken["report"] = err
	}
	for name, err := range p.broken {
		return fail(Broken, "%s broke: %w", name, err)
	}
	switch worst := experiment.Worst(p.verdicts); {
	case worst == experiment.Fail:
		return fail(Failed, "a paper claim FAILED")
	case worst == experiment.Inconclusive && p.run.Scale != experiment.Smoke:
		return fail(Undecided, "a paper claim is INCONCLUSIVE")
	case worst == experiment.Inconclusive:
		fmt.Println("smoke scale leaves claims that need more samples undecided; that is no failure")
	}
	return nil
}

// report builds the report of a run that holds all experiments, beside the sealed folder and not in it. What is published
// in paper/ is made by the paper targets only, so that running changes nothing in the checkout.
func (p *pipeline) report(sealed string) error {
	if !p.run.Complete || len(p.broken) > 0 {
		return nil
	}
	s := source{root: p.root, run: sealed, id: p.run.Identity, named: true}
	dir := sealed + "-report"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return s.html(dir)
}

func relative(root, name string) string {
	if rel, err := filepath.Rel(root, name); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return name
}
