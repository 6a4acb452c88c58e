// Command hybrid-solver is the solver program of the hybrid experiment: an honest stand-in for a program built with SymCC.
//
// It is no symbolic executor. It runs the experiment's own target, built so that it tells which comparisons of input bytes it
// makes, and writes one new input for each comparison that came out unequal, with the wanted bytes put in. That is what a concolic
// executor would find for this target, whose every branch compares input bytes with a constant; it says nothing about what SymCC or
// any other solver can do with other programs. The time that a real solver takes is a parameter (-think).
//
// It follows the contract of SymCC-built programs: the input is on standard input, or in the file that SYMCC_INPUT_FILE names; new
// inputs are written into SYMCC_OUTPUT_DIR; its exit status is the target's business and means nothing.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

func main() {
	think := flag.Duration("think", 0, "how long solving takes")
	log := flag.String("log", "", "append one line for each run to this file")
	flag.Parse()
	if err := run(*think, *log, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "hybrid-solver:", err)
		os.Exit(1)
	}
}

func run(think time.Duration, log string, target []string) error {
	out := os.Getenv("SYMCC_OUTPUT_DIR")
	if out == "" || len(target) == 0 {
		return errors.New("usage: SYMCC_OUTPUT_DIR=DIR hybrid-solver [flags] TARGET ARGS... < INPUT")
	}
	input, err := readInput()
	if err != nil {
		return err
	}
	if err := witness(log, input); err != nil {
		return err
	}
	observed, err := observe(target, input)
	if err != nil {
		return err
	}
	time.Sleep(think)
	for i, data := range solve(input, observed) {
		if err := os.WriteFile(filepath.Join(out, fmt.Sprintf("%06d", i)), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func readInput() ([]byte, error) {
	if name := os.Getenv("SYMCC_INPUT_FILE"); name != "" {
		return os.ReadFile(name)
	}
	return io.ReadAll(os.Stdin)
}

// Run is one line of the log: an account of what was executed that does not come from the campaign.
type Run struct {
	SHA256 string  `json:"sha256"`
	TimeS  float64 `json:"time_s"`
	PID    int     `json:"pid"`
}

func witness(log string, input []byte) error {
	if log == "" {
		return nil
	}
	f, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(input)
	line, err := json.Marshal(Run{SHA256: hex.EncodeToString(sum[:]), TimeS: float64(time.Now().UnixMicro()) / 1e6, PID: os.Getpid()})
	if err == nil {
		_, err = f.Write(append(line, '\n')) // one write: lines of several runs don't mix
	}
	return errors.Join(err, f.Close())
}

// observeLimit ends a target that hangs; what it has compared until then is known.
const observeLimit = time.Second

// observe runs the target and returns what it told. How it ends does not matter.
func observe(target []string, input []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), observeLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, target[0], target[1:]...)
	cmd.Stdin = bytes.NewReader(input)
	cmd.WaitDelay = observeLimit
	text, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return nil, err
	}
	return text, nil
}

// solve makes one new input for each line. Unlike SymCC, which keeps an input's length, it makes an input longer where the target
// wanted to read on.
func solve(input, observed []byte) [][]byte {
	var outputs [][]byte
	lines := bufio.NewScanner(bytes.NewReader(observed))
	for lines.Scan() {
		fields := bytes.Fields(lines.Bytes())
		var n []uint64
		for _, f := range fields[min(1, len(fields)):] {
			v, err := strconv.ParseUint(string(f), 10, 32)
			if err != nil {
				break
			}
			n = append(n, v)
		}
		switch {
		case len(n) == 2 && string(fields[0]) == "word" && n[0]+4 <= uint64(len(input)):
			data := bytes.Clone(input)
			binary.LittleEndian.PutUint32(data[n[0]:], uint32(n[1]))
			outputs = append(outputs, data)
		case len(n) == 1 && string(fields[0]) == "more" && n[0] > uint64(len(input)) && n[0] < 1<<16:
			outputs = append(outputs, append(bytes.Clone(input), make([]byte, n[0]-uint64(len(input)))...))
		}
	}
	return outputs
}
