// Target is the program that the campaign runs on each input: it works for a while, that is sleeps, and writes one child that tells this execution from
// all others, so that it can be seen whose result was published. The children have none.
package main

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

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
		return fmt.Errorf("%q is no duration of at least 0, such as 0.5s", os.Args[1])
	}
	dir := os.Getenv("SYMCC_OUTPUT_DIR")
	if dir == "" {
		return fmt.Errorf("SYMCC_OUTPUT_DIR is not set")
	}
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	time.Sleep(work)
	if strings.HasPrefix(string(input), "mark ") {
		return nil
	}
	mark := fmt.Sprintf("mark %x %s\n", sha256.Sum256(input), rand.Text())
	return os.WriteFile(filepath.Join(dir, "mark"), []byte(mark), 0o644)
}
