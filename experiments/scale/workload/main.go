// Workload is the program that the scale experiment measures: it renews leases in several ways, numbers and distributions, in interleaved
// rounds. It reads its plan from a file and prints nothing on success; its raw files are described in package raw.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"shardlease/experiments/scale/raw"
	"shardlease/internal/experiment"
)

func main() {
	root := flag.String("root", "", "empty folder for the lease tables")
	dir := flag.String("dir", "", "folder with the plan; the raw files go there too")
	flag.Parse()
	if *root == "" || *dir == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "workload: -root and -dir are needed, and no other arguments")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *root, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "workload:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root, dir string) error {
	var plan raw.Plan
	if err := experiment.ReadJSON(filepath.Join(dir, raw.PlanFile), &plan); err != nil {
		return err
	}
	var benches []*bench
	for i, c := range plan.Cases {
		b, err := newBench(ctx, filepath.Join(root, fmt.Sprintf("%02d-%s", i, c.Name())), c)
		if err != nil {
			return fmt.Errorf("set up %s: %w", c.Name(), err)
		}
		defer b.close()
		benches = append(benches, b)
	}
	if err := settle(root); err != nil {
		return err
	}
	sides, err := rounds(ctx, plan, benches)
	if err != nil {
		return err
	}
	var totals []raw.Totals
	for _, b := range benches {
		totals = append(totals, b.totals())
	}
	return errors.Join(
		raw.Write(filepath.Join(dir, raw.SidesFile), sides),
		raw.Write(filepath.Join(dir, raw.TotalsFile), totals),
	)
}

// rounds times every case once a round, in an order drawn from the seed, as long as the case has rounds left.
func rounds(ctx context.Context, plan raw.Plan, benches []*bench) ([]raw.Side, error) {
	most := 0
	for _, c := range plan.Cases {
		most = max(most, c.Rounds)
	}
	rng := rand.New(rand.NewPCG(plan.Seed, 0))
	var sides []raw.Side
	for round := -plan.WarmUp; round < most; round++ {
		if round == 0 {
			for _, b := range benches {
				b.before = b.table.Stats()
			}
		}
		for place, i := range rng.Perm(len(benches)) {
			b := benches[i]
			if round >= b.Rounds {
				continue
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			s, err := b.side(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", b.Name(), round, err)
			}
			if round >= 0 {
				s.Round, s.Place = round, place
				sides = append(sides, s)
			}
		}
	}
	return sides, nil
}
