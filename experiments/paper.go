package experiments

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"shardlease/internal/evidence"
	"shardlease/internal/experiment"
	"shardlease/internal/figures"
)

// paperRun is the run that paper/ is made from: name, or the newest full one. A smoke run is used only when it is named,
// and what is made from it says so.
func paperRun(name string) (dir, run string, id evidence.Identity, err error) {
	if dir, err = root(); err != nil {
		return "", "", id, err
	}
	if name != "" {
		run, err = locate(name)
	} else if run, err = evidence.FullRun(filepath.Join(dir, "evidence")); err != nil {
		err = fail(Usage, "%w", err)
	}
	if err != nil {
		return "", "", id, err
	}
	id, err = evidence.Info(run)
	return dir, run, id, err
}

// PaperFigures draws the figures of a run again from its raw samples, into paper/figures.
func PaperFigures(ctx context.Context, name string) error {
	dir, run, id, err := paperRun(name)
	if err != nil {
		return err
	}
	out := filepath.Join(dir, "paper", "figures")
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	var verdicts []experiment.Verdict
	if err := experiment.ReadJSON(filepath.Join(run, evidence.VerdictsFile), &verdicts); err != nil {
		return err
	}
	page := figures.IndexPage{
		Title: "Figures of run " + id.Name, Smoke: id.Scale == experiment.Smoke, Verdicts: pageVerdicts(verdicts),
		Intro: fmt.Sprintf("Drawn from the raw samples of commit %s.", id.Commit),
	}
	there := func(name string) bool { _, err := os.Stat(filepath.Join(run, name)); return err == nil }
	if err := drawAll(ctx, dir, run, out, registry(), page, there); err != nil {
		return err
	}
	fmt.Printf("figures of %s are in paper/figures\n", id.Name)
	return nil
}
