//go:build mage

// Targets of the reproduction pipeline. What they do is in package experiments; this file is their list.
package main

import (
	"context"

	"github.com/magefile/mage/mg"

	"shardlease/experiments"
)

// Doctor tells what is missing or unsuitable on this host, and how to fix it (seconds).
func Doctor(ctx context.Context) error { return experiments.Doctor(ctx) }

// Setup installs what is missing: Debian packages, the charting script, Go modules. Does nothing when all is there.
func Setup(ctx context.Context) error { return experiments.Setup(ctx) }

// Build compiles the programs that the experiments run.
func Build(ctx context.Context) error { return experiments.Build(ctx) }

// Test lints and runs every test, those that need Open MPI included.
func Test(ctx context.Context) error { return experiments.Test(ctx) }

// Lint runs go vet and staticcheck.
func Lint(ctx context.Context) error { return experiments.Lint(ctx) }

// Smoke runs everything at small scale into a folder of its own (about five minutes). -resume goes on after a kill.
func Smoke(ctx context.Context, resume *bool, out *string) error {
	return experiments.Reproduce(ctx, experiments.Options{Smoke: true, Resume: value(resume), Out: value(out)})
}

// Reproduce runs every experiment, decides every paper claim and seals the run (about 16 minutes).
//
// -smoke: small scale. -long: everything there is, over half an hour. -resume: go on with the run that was interrupted. -rounds=N: instead of the experiments' own.
// -seed=N: of every random choice. -out=DIR: instead of evidence/runs. -keepGoing=false: stop at the first experiment
// that breaks. Exit code: 0 all claims PASS, 1 a step broke, 2 wrong use, 3 a claim FAILED, 4 INCONCLUSIVE or unsuitable.
func Reproduce(ctx context.Context, smoke, long, resume, keepGoing *bool, rounds, seed *int, out *string) error {
	return experiments.Reproduce(ctx, experiments.Options{
		Smoke: value(smoke), Long: value(long), Resume: value(resume), Stop: keepGoing != nil && !*keepGoing,
		Rounds: value(rounds), Seed: uint64(value(seed)), Out: value(out),
	})
}

// Verify checks a sealed run and computes its verdicts again from the raw samples; -dir=RUN, else the newest.
func Verify(ctx context.Context, dir *string) error { return experiments.Verify(ctx, value(dir)) }

// Compare shows two runs side by side and marks the verdicts that changed.
func Compare(a, b string) error { return experiments.Compare(a, b) }

// Claims lists the paper claims with bands and last verdicts, and renews the table in README.md.
func Claims() error { return experiments.Claims() }

// Diagrams draws the diagrams again, from recorded traces and from the code.
func Diagrams(ctx context.Context) error { return experiments.Diagrams(ctx) }

// Sim simulates campaigns with faults: -seeds=N of them from -seed=S on, or replays the one of -seed=S and prints its history.
func Sim(ctx context.Context, seeds, seed *int) error {
	return experiments.Simulate(ctx, value(seeds), uint64(value(seed)))
}

// Clean removes build products and the charting script. It never touches evidence.
func Clean() error { return experiments.Clean() }

// Exp holds the experiments one by one, for those who change them.
type Exp mg.Namespace

// Micro renews 64 leases one by one and as a batch (about a minute). -smoke, -resume, -rounds=N, -out=DIR.
func (Exp) Micro(ctx context.Context, smoke, resume *bool, rounds *int, out *string) error {
	return one(ctx, "micro", smoke, resume, rounds, out)
}

// Peers times renewals beside bbolt, SQLite, Pebble and PostgreSQL on one disk (three minutes). -smoke, -resume, -rounds=N, -out=DIR.
func (Exp) Peers(ctx context.Context, smoke, resume *bool, rounds *int, out *string) error {
	return one(ctx, "peers", smoke, resume, rounds, out)
}

// Filesystems times the strategies on ext4, XFS, btrfs, overlayfs and tmpfs, and with slow syncs (two and a half minutes; needs root).
// -smoke, -resume, -rounds=N, -out=DIR.
func (Exp) Filesystems(ctx context.Context, smoke, resume *bool, rounds *int, out *string) error {
	return one(ctx, "filesystems", smoke, resume, rounds, out)
}

// Scale measures the cost of a heartbeat period up to 100 000 leases, and how many masters a store carries (a minute and a half).
// -smoke, -resume, -rounds=N, -out=DIR.
func (Exp) Scale(ctx context.Context, smoke, resume *bool, rounds *int, out *string) error {
	return one(ctx, "scale", smoke, resume, rounds, out)
}

// Mpi runs the forced-heartbeat campaign on eight ranks (about a minute). -smoke, -resume, -out=DIR.
func (Exp) Mpi(ctx context.Context, smoke, resume *bool, out *string) error {
	return one(ctx, "mpi", smoke, resume, nil, out)
}

// Hybrid runs two jobs beside a real AFL++, and kills one (two and a half minutes). -smoke, -resume, -out=DIR.
func (Exp) Hybrid(ctx context.Context, smoke, resume *bool, out *string) error {
	return one(ctx, "hybrid", smoke, resume, nil, out)
}

// Faults injects each directed fault and two planted bugs (half a minute). -smoke, -resume, -out=DIR.
func (Exp) Faults(ctx context.Context, smoke, resume *bool, out *string) error {
	return one(ctx, "faults", smoke, resume, nil, out)
}

// Reboot kills emulated machines in the middle of their work and boots them again (two minutes; needs qemu, not root). -smoke, -long,
// -resume, -out=DIR.
func (Exp) Reboot(ctx context.Context, smoke, long, resume *bool, out *string) error {
	return experiments.Reproduce(ctx, experiments.Options{
		Only: "reboot", Smoke: value(smoke), Long: value(long), Resume: value(resume), Out: value(out),
	})
}

// Powercut cuts the power of ext4, XFS and btrfs, and breaks their disks (two and a half minutes; needs root). -smoke, -long (each
// position of every recording), -resume, -out=DIR.
func (Exp) Powercut(ctx context.Context, smoke, long, resume *bool, out *string) error {
	return experiments.Reproduce(ctx, experiments.Options{
		Only: "powercut", Smoke: value(smoke), Long: value(long), Resume: value(resume), Out: value(out),
	})
}

// Restart kills, stops and restarts real campaigns and fills their disk (two minutes). -smoke, -resume, -out=DIR.
func (Exp) Restart(ctx context.Context, smoke, resume *bool, out *string) error {
	return one(ctx, "restart", smoke, resume, nil, out)
}

// Sim simulates campaigns with faults by the thousand and plants protocol bugs (two and a half minutes). -smoke, -long, -resume, -out=DIR.
func (Exp) Sim(ctx context.Context, smoke, long, resume *bool, out *string) error {
	return experiments.Reproduce(ctx, experiments.Options{
		Only: "sim", Smoke: value(smoke), Long: value(long), Resume: value(resume), Out: value(out),
	})
}

func one(ctx context.Context, name string, smoke, resume *bool, rounds *int, out *string) error {
	return experiments.Reproduce(ctx, experiments.Options{
		Only: name, Smoke: value(smoke), Resume: value(resume), Rounds: value(rounds), Out: value(out),
	})
}

// Paper makes what is published from existing evidence, without running anything.
type Paper mg.Namespace

// Figures draws the figures again; -run=RUN, else the newest full run.
func (Paper) Figures(ctx context.Context, run *string) error {
	return experiments.PaperFigures(ctx, value(run))
}

// Tables writes metrics and verdicts as CSV; -run=RUN, else the newest full run.
func (Paper) Tables(run *string) error { return experiments.PaperTables(value(run)) }

// Html builds the report in each language; -run=RUN, else the newest full run.
func (Paper) Html(run *string) error { return experiments.PaperHTML(value(run)) }

// Pdf prints the HTML that is there, with Chromium.
func (Paper) Pdf(ctx context.Context) error { return experiments.PaperPDF(ctx) }

// All makes figures, tables, HTML and PDF; -run=RUN, else the newest full run.
func (Paper) All(ctx context.Context, run *string) error {
	return experiments.PaperAll(ctx, value(run))
}

// value is what an optional flag says, or the zero value when it was left out.
func value[T any](flag *T) (v T) {
	if flag != nil {
		v = *flag
	}
	return v
}
