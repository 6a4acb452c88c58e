package experiments

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"shardlease/internal/diagrams"
	"shardlease/internal/evidence"
	"shardlease/internal/experiment"
	"shardlease/internal/figures"
	"shardlease/internal/report"
)

// source is the run that something is made from.
type source struct {
	root, run string
	id        evidence.Identity
	named     bool // the user asked for this very run
}

// paperSource is the run called name, or the newest full one. A smoke run is used only when it is named, and what is made
// from it says so.
func paperSource(name string) (source, error) {
	s := source{named: name != ""}
	var err error
	if s.root, err = root(); err != nil {
		return s, err
	}
	if s.named {
		s.run, err = locate(name)
	} else if s.run, err = evidence.FullRun(filepath.Join(s.root, "evidence")); err != nil {
		err = fail(Usage, "%w", err)
	}
	if err != nil {
		return s, err
	}
	s.id, err = evidence.Info(s.run)
	return s, err
}

func (s source) paper(parts ...string) string {
	return filepath.Join(append([]string{s.root, "paper"}, parts...)...)
}

// PaperFigures draws the figures of a run again from its raw samples, into paper/figures.
func PaperFigures(ctx context.Context, name string) error {
	s, err := paperSource(name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.paper("figures"), 0o755); err != nil {
		return err
	}
	var verdicts []experiment.Verdict
	if err := experiment.ReadJSON(filepath.Join(s.run, evidence.VerdictsFile), &verdicts); err != nil {
		return err
	}
	page := figures.IndexPage{
		Title: "Figures of run " + s.id.Name, Smoke: s.id.Scale == experiment.Smoke, Verdicts: pageVerdicts(verdicts),
		Intro: fmt.Sprintf("Drawn from the raw samples of commit %s.", s.id.Commit),
	}
	there := func(name string) bool { _, err := os.Stat(filepath.Join(s.run, name)); return err == nil }
	if err := drawAll(ctx, s.root, s.run, s.paper("figures"), registry(), page, there); err != nil {
		return err
	}
	fmt.Printf("figures of %s are in paper/figures\n", s.id.Name)
	return nil
}

// PaperTables writes the metrics of each experiment and the verdicts of a run as CSV, into paper/tables.
func PaperTables(name string) error {
	s, err := paperSource(name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.paper("tables"), 0o755); err != nil {
		return err
	}
	var verdicts []experiment.Verdict
	if err := experiment.ReadJSON(filepath.Join(s.run, evidence.VerdictsFile), &verdicts); err != nil {
		return err
	}
	if err := writeCSV(s.paper("tables", "verdicts.csv"), verdictRows(verdicts)); err != nil {
		return err
	}
	for _, part := range s.id.Parts {
		m, err := experiment.ReadMetrics(filepath.Join(s.run, part))
		if errors.Is(err, os.ErrNotExist) {
			continue // it broke; the verdicts say so
		}
		if err != nil {
			return err
		}
		rows := [][]string{{"metric", "value", "low", "high", "n", "unit", "confidence", "samples"}}
		for _, x := range m.Metrics {
			rows = append(rows, []string{x.Name, exact(x.Value), exact(x.Low), exact(x.High), strconv.Itoa(x.N), x.Unit, exact(x.Confidence), part + "/" + x.Samples})
		}
		if err := writeCSV(s.paper("tables", part+".csv"), rows); err != nil {
			return err
		}
	}
	fmt.Printf("tables of %s are in paper/tables\n", s.id.Name)
	return nil
}

func exact(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

func writeCSV(name string, rows [][]string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(csv.NewWriter(f).WriteAll(rows), f.Close())
}

func (s source) options() report.Options {
	return report.Options{Root: s.root, Run: s.run, Smoke: s.named}
}

// PaperHTML builds the report in each language from a run, into paper.
func PaperHTML(name string) error {
	s, err := paperSource(name)
	if err != nil {
		return err
	}
	return s.html(s.paper())
}

// html builds every template of paper/ into dir.
func (s source) html(dir string) error {
	templates, err := report.Templates(s.paper())
	if err != nil {
		return err
	}
	for _, t := range templates {
		o := s.options()
		o.Template, o.Out = t, filepath.Join(dir, filepath.Base(report.Output(t)))
		if err := report.Build(o); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(t), err)
		}
		fmt.Printf("%s is made from %s\n", relative(s.root, o.Out), s.id.Name)
	}
	return nil
}

// PaperPDF prints the HTML that is there.
func PaperPDF(ctx context.Context) error {
	dir, err := root()
	if err != nil {
		return err
	}
	templates, err := report.Templates(filepath.Join(dir, "paper"))
	if err != nil {
		return err
	}
	for _, t := range templates {
		if err := report.PDF(ctx, report.Output(t)); err != nil {
			return err
		}
	}
	return nil
}

// PaperAll makes figures, tables, HTML and PDF.
func PaperAll(ctx context.Context, name string) error {
	for _, step := range []func() error{
		func() error { return PaperFigures(ctx, name) },
		func() error { return PaperTables(name) },
		func() error { return PaperHTML(name) },
		func() error { return PaperPDF(ctx) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// Diagrams draws the diagrams again from recorded traces and from the code.
func Diagrams(ctx context.Context) error {
	dir, err := root()
	if err != nil {
		return err
	}
	return diagrams.Draw(ctx, filepath.Join(dir, "diagrams"))
}
