package experiments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"shardlease/internal/child"
	"shardlease/internal/evidence"
	"shardlease/internal/experiment"
	"shardlease/internal/setup"
)

// root finds the repository above the working folder.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fail(Usage, "run this inside the repository: no go.mod in the working folder or above it")
		}
		dir = up
	}
}

func binDir(root string) string { return filepath.Join(root, ".build", "bin") }

// Build compiles the programs of all experiments into .build/bin.
func Build(ctx context.Context) error {
	dir, err := root()
	if err != nil {
		return err
	}
	_, err = build(ctx, dir, registry(), os.Stderr)
	return err
}

// build compiles reproducibly: no paths and no checkout state go into the programs, so that the same source gives the same
// bytes. It returns name -> SHA-256.
func build(ctx context.Context, root string, list []entry, log io.Writer) (map[string]string, error) {
	hashes := map[string]string{}
	for _, e := range list {
		b, ok := e.Experiment.(experiment.Builder)
		if !ok {
			continue
		}
		for _, p := range b.Programs() {
			if hashes[p.Name] != "" {
				continue
			}
			name := filepath.Join(binDir(root), p.Name)
			fmt.Fprintf(log, "building %s\n", p.Name)
			args := []string{"build", "-trimpath", "-buildvcs=false", "-tags", p.Tags, "-o", name, p.Package}
			if err := child.Run(ctx, child.Cmd{Name: "go", Args: args, Dir: filepath.Join(root, p.Module), Stdout: log}); err != nil {
				return nil, fmt.Errorf("build %s: %w", filepath.Join(p.Module, p.Package), err)
			}
			if err := child.Run(ctx, child.Cmd{Name: "go", Args: []string{"version", "-m", p.Name}, Dir: binDir(root), Stdout: log}); err != nil {
				return nil, fmt.Errorf("read the build facts of %s: %w", p.Name, err)
			}
			hash, err := evidence.HashFile(name)
			if err != nil {
				return nil, err
			}
			hashes[p.Name] = hash
		}
	}
	return hashes, nil
}

// Test vets, lints, and runs every test, those that need Open MPI included.
func Test(ctx context.Context) error {
	if err := Lint(ctx); err != nil {
		return err
	}
	err := inRoot(ctx,
		[]string{"go", "test", "./..."},
		[]string{"go", "test", "-tags", "mpi", "./pkg/mpirun/...", "./internal/campaign/...", "./cmd/...", "./experiments/hybrid"},
	)
	if err != nil {
		return err
	}
	return inModules(ctx, []string{"go", "test", "./..."})
}

// Lint vets and runs staticcheck, over the magefile, the MPI parts and the modules of their own too.
func Lint(ctx context.Context) error {
	err := inRoot(ctx,
		[]string{"go", "vet", "./..."},
		[]string{"go", "vet", "-tags", "mpi", "./pkg/mpirun/...", "./internal/campaign/...", "./cmd/...", "./experiments/hybrid"},
		[]string{"go", "vet", "-tags", "mage", "."},
		[]string{"go", "tool", "staticcheck", "./..."},
	)
	if err != nil {
		return err
	}
	return inModules(ctx, []string{"go", "vet", "./..."})
}

// inRoot runs one command after the other, so that tests which measure or wait do not fight for the cores.
func inRoot(ctx context.Context, commands ...[]string) error {
	dir, err := root()
	if err != nil {
		return err
	}
	return inDir(ctx, dir, commands)
}

// inModules is inRoot for each module beside the root's.
func inModules(ctx context.Context, commands ...[]string) error {
	dir, err := root()
	if err != nil {
		return err
	}
	for _, module := range setup.Modules[1:] {
		if err := inDir(ctx, filepath.Join(dir, module), commands); err != nil {
			return fmt.Errorf("%s: %w", module, err)
		}
	}
	return nil
}

func inDir(ctx context.Context, dir string, commands [][]string) error {
	for _, argv := range commands {
		fmt.Fprintln(os.Stderr, "+", strings.Join(argv, " "))
		if err := child.Run(ctx, child.Cmd{Name: argv[0], Args: argv[1:], Dir: dir, Stdout: os.Stdout, Stderr: os.Stderr}); err != nil {
			if exit := (*child.ExitError)(nil); errors.As(err, &exit) {
				err = exit.Err // its output has been seen
			}
			return fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
		}
	}
	return nil
}

// Clean removes what Build and setup made. Evidence is never touched: there is no target that removes any.
func Clean() error {
	dir, err := root()
	if err != nil {
		return err
	}
	for _, name := range []string{".build", "bin", filepath.Join("internal", "figures", "npm", "node_modules")} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
