package experiments

import (
	"context"
	"os"
	"path/filepath"

	"shardlease/internal/setup"
)

// Doctor prints one line for each thing the pipeline needs, with the command that repairs it.
func Doctor(ctx context.Context) error {
	dir, err := root()
	if err != nil {
		return err
	}
	checks := setup.Doctor(ctx, dir, filepath.Join(dir, "evidence", "runs"))
	rows := [][]string{{"check", "", "found", "fix"}}
	for _, c := range checks {
		rows = append(rows, []string{c.Name, string(c.Level), c.Detail, c.Fix})
	}
	table(os.Stdout, rows)
	if setup.Worst(checks) == setup.Bad {
		return fail(Undecided, "this host can't reproduce the report yet; see the lines with FAIL")
	}
	return nil
}

// Setup installs what is missing.
func Setup(ctx context.Context) error {
	dir, err := root()
	if err != nil {
		return err
	}
	return setup.Run(ctx, dir, os.Stderr)
}
