// Campaigns simulates campaigns, one for each seed, and writes one line of JSON for each: what happened in it, and which invariant it
// violated, if any. With -history it writes what happened in the first campaign instead, event by event.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"

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
	for i := range seeds {
		r := sim.Run(first+uint64(i), nil)
		if err := enc.Encode(r); err != nil {
			return err
		}
		if until && r.Violation != "" {
			break
		}
	}
	return out.Flush()
}
