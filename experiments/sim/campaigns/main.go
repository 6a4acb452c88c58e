// Campaigns simulates campaigns, one for each seed, and writes one line of JSON for each: what happened in it, and which invariant it
// violated, if any. With -history it writes what happened in the first campaign instead, event by event. What the campaigns took goes to
// standard error, as JSON.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"syscall"
	"time"

	"shardlease/internal/campaign/sim"
)

func main() {
	seeds := flag.Int("seeds", 100, "number of `campaigns`")
	first := flag.Uint64("seed", 1, "seed of the first campaign; the others follow")
	history := flag.Bool("history", false, "write the history of the first campaign")
	until := flag.Bool("until-violation", false, "stop at the first violation")
	flag.Parse()
	if flag.NArg() > 0 || *seeds < 1 {
		fmt.Fprintln(os.Stderr, "campaigns: takes flags only, and at least one campaign; see -h")
		os.Exit(2)
	}
	if err := run(*seeds, *first, *history, *until); err != nil {
		fmt.Fprintln(os.Stderr, "campaigns:", err)
		os.Exit(1)
	}
}

func run(seeds int, first uint64, history, until bool) error {
	out := bufio.NewWriter(os.Stdout)
	if history {
		sim.Run(first, out)
		return out.Flush()
	}
	enc := json.NewEncoder(out)
	begin, done := time.Now(), 0
	for i := range seeds {
		r := sim.Run(first+uint64(i), nil)
		if err := enc.Encode(r); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
		done++
		if until && r.Violation != "" {
			break
		}
	}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return err
	}
	cpu := time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	return json.NewEncoder(os.Stderr).Encode(map[string]any{"campaigns": done, "wall_s": time.Since(begin).Seconds(), "cpu_s": cpu.Seconds()})
}
