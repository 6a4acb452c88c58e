// Target is the program that the campaign runs on each input: it reads the input, works for a while, that is sleeps, and
// writes one child, the same for every input. It stands in for an instrumented program; the sleep makes each run outlast
// several heartbeats.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// child is that of the report's target, so that its hash, and with it its shard, is the report's too.
const child = "f324-heartbeat-child\n"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "target:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: target DURATION < INPUT")
	}
	work, err := time.ParseDuration(os.Args[1])
	if err != nil || work < 0 {
		return fmt.Errorf("%q is no duration of at least 0, such as 1.2s", os.Args[1])
	}
	dir := os.Getenv("SYMCC_OUTPUT_DIR")
	if dir == "" {
		return fmt.Errorf("SYMCC_OUTPUT_DIR is not set")
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	time.Sleep(work)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "out"), []byte(child), 0o644)
}
