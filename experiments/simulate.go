package experiments

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"shardlease/internal/campaign/sim"
)

// Simulate runs simulated campaigns with the given number of seeds from first on, on all cores, and sums up. A campaign that breaks an invariant is
// told with its seed, and the first one with its history; the exit code is then Failed. With seeds 0 the history of the one campaign is written to
// standard output.
func Simulate(ctx context.Context, seeds int, first uint64) error {
	if seeds < 0 {
		return fail(Usage, "-seeds=%d: give at least 1, or leave it out to replay the campaign of -seed", seeds)
	}
	if seeds == 0 {
		if r := sim.Run(first, os.Stdout); r.Violation != "" {
			return fail(Failed, "seed %d: %s", first, r.Violation)
		}
		return nil
	}
	begin := time.Now()
	results := simulate(ctx, seeds, first)
	var total sim.Counts
	var items, executions, bound, done int
	var bad []sim.Result
	for _, r := range results {
		if r.Jobs == 0 {
			continue // not begun
		}
		done++
		total.Add(r.Counts)
		items, executions, bound = items+r.Items, executions+r.Executions, bound+r.Bound
		if r.Violation != "" {
			bad = append(bad, r)
		}
	}
	fmt.Printf("%d campaigns in %.1f s (%.0f a minute), seeds %d to %d\n", done, time.Since(begin).Seconds(), float64(done)/time.Since(begin).Minutes(), first, first+uint64(seeds)-1)
	fmt.Printf("%d items, %d executions, bound %d\n%+v\n", items, executions, bound, total)
	if ctx.Err() != nil {
		return fail(Broken, "interrupted after %d of %d campaigns", done, seeds)
	}
	if len(bad) == 0 {
		return nil
	}
	sim.Run(bad[0].Seed, os.Stdout)
	for _, r := range bad {
		fmt.Fprintf(os.Stderr, "seed %d: %s\n", r.Seed, r.Violation)
	}
	return fail(Failed, "%d of %d campaigns broke an invariant; replay with: go tool mage sim -seed=%d", len(bad), seeds, bad[0].Seed)
}

// simulate runs the campaigns, each on one core, until ctx ends.
func simulate(ctx context.Context, seeds int, first uint64) []sim.Result {
	results := make([]sim.Result, seeds)
	var next atomic.Int64
	var running sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), seeds) {
		running.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= seeds {
					return
				}
				results[i] = sim.Run(first+uint64(i), nil)
				if i%500 == 499 {
					fmt.Fprintf(os.Stderr, "%d of %d\n", i+1, seeds)
				}
			}
		})
	}
	running.Wait()
	return results
}
