// Workload is the program that the micro-benchmark measures: it renews leases one by one and as a batch, in interleaved
// rounds, pinned to one CPU. It prints nothing on success; its raw files are described in package raw.
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
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"shardlease/experiments/micro/raw"
)

type config struct {
	root, out               string
	records, shards, warmUp int
	rounds, passes          int
	ttlSeconds, cpu         int
	active                  []int
	seed                    uint64
	countOnly               bool
}

func main() {
	c, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "workload:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, c); err != nil {
		fmt.Fprintln(os.Stderr, "workload:", err)
		os.Exit(1)
	}
}

func parse(args []string) (config, error) {
	var c config
	var active string
	fs := flag.NewFlagSet("workload", flag.ContinueOnError)
	fs.StringVar(&c.root, "root", "", "empty folder for the lease tables")
	fs.StringVar(&c.out, "out", "", "folder for the raw files")
	fs.StringVar(&active, "active", "1,8", "shards that hold records, one scenario each")
	fs.IntVar(&c.records, "records", 64, "records")
	fs.IntVar(&c.shards, "shards", 64, "shards of the table")
	fs.IntVar(&c.ttlSeconds, "ttl", 3600, "seconds a lease lives")
	fs.IntVar(&c.warmUp, "warmup", 5, "rounds that are run first and dropped")
	fs.IntVar(&c.rounds, "rounds", 30, "rounds")
	fs.IntVar(&c.passes, "passes", 5, "passes that one side of a round consists of")
	fs.IntVar(&c.cpu, "cpu", -1, "the CPU to run on; -1 does not pin")
	fs.Uint64Var(&c.seed, "seed", 1, "of the order of the sides")
	fs.BoolVar(&c.countOnly, "count", false, "one scalar and one batch pass per scenario between marks, for strace; no raw files")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	for word := range strings.SplitSeq(active, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > c.shards {
			return c, fmt.Errorf("-active %q: %q is not between 1 and the number of shards, %d", active, word, c.shards)
		}
		c.active = append(c.active, n)
	}
	if c.root == "" || c.out == "" && !c.countOnly || c.records < 1 || c.rounds < 1 || c.passes < 1 || c.warmUp < 0 || fs.NArg() > 0 {
		return c, errors.New("-root and -out are needed, -records, -rounds and -passes at least 1, and no other arguments")
	}
	return c, nil
}

func run(ctx context.Context, c config) error {
	if err := pin(c.cpu); err != nil {
		return err
	}
	var rounds []raw.Round
	var passes []raw.Pass
	var syncs []raw.Sync
	rng := rand.New(rand.NewPCG(c.seed, 0))
	for _, active := range c.active {
		b, err := newBench(ctx, c, active)
		if err != nil {
			return err
		}
		if c.countOnly {
			err = b.count(ctx)
		} else {
			err = b.measure(ctx, c, rng)
		}
		if err = errors.Join(err, b.close()); err != nil {
			return fmt.Errorf("%d active shards: %w", active, err)
		}
		rounds, passes, syncs = append(rounds, b.rounds...), append(passes, b.passes...), append(syncs, b.syncs...)
	}
	if c.countOnly {
		return nil
	}
	return errors.Join(
		raw.WriteRounds(filepath.Join(c.out, raw.RoundsFile), rounds),
		raw.WritePasses(filepath.Join(c.out, raw.PassesFile), passes),
		raw.WriteSyncs(filepath.Join(c.out, raw.SyncsFile), syncs),
	)
}

// pinned marks the environment of the program that pin started again.
const pinned = "SHARDLEASE_WORKLOAD_PINNED"

// pin starts this program again on one CPU. Affinity belongs to threads, and by now the runtime has several; after an
// exec from a pinned thread they all inherit it.
func pin(cpu int) error {
	debug.SetGCPercent(-1) // collected between the sides instead
	if cpu < 0 || os.Getenv(pinned) != "" {
		return nil
	}
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin to CPU %d: %w", cpu, err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return fmt.Errorf("exec %s: %w", self, syscall.Exec(self, os.Args, append(os.Environ(), pinned+"=1")))
}
