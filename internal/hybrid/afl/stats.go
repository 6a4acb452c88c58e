package afl

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// ErrIncomplete is returned for a fuzzer_stats file that ends before its last line: AFL++ replaces the file by a rename,
// older fuzzers and some network file systems show it half-written.
var ErrIncomplete = errors.New("statistics file is incomplete")

// Stats is the content of a fuzzer_stats file.
type Stats map[string]string

// lastKey is the key AFL++ writes last; a file without it is not complete.
const lastKey = "command_line"

// ParseStats reads the "key : value" lines. It fails with ErrIncomplete when the last line is cut or missing.
func ParseStats(data []byte) (Stats, error) {
	if len(data) == 0 || data[len(data)-1] != '\n' {
		return nil, fmt.Errorf("%w: it does not end with a line end", ErrIncomplete)
	}
	stats := make(Stats)
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, len(data)+1)
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok {
			stats[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if stats[lastKey] == "" {
		return nil, fmt.Errorf("%w: no %s", ErrIncomplete, lastKey)
	}
	return stats, nil
}

// Number returns the value of a key as a number; a missing or malformed value is 0 and false.
func (s Stats) Number(key string) (float64, bool) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(s[key], "%"), 64)
	return n, err == nil
}

// readAttempts and readPause bound the wait for a file that is being rewritten: half a second, and several of AFL's
// own update periods are much longer.
const (
	readAttempts = 10
	readPause    = 50 * time.Millisecond
)

// ReadStats reads a fuzzer_stats file. It tries again while the file is incomplete or, between two versions, absent.
func ReadStats(ctx context.Context, name string) (Stats, error) {
	var err error
	for attempt := range readAttempts {
		if attempt > 0 {
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-time.After(readPause):
			}
		}
		var data []byte
		if data, err = os.ReadFile(name); err == nil {
			var stats Stats
			if stats, err = ParseStats(data); err == nil {
				return stats, nil
			}
		}
		if !errors.Is(err, ErrIncomplete) && !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return nil, fmt.Errorf("read AFL statistics %s: %w", name, err)
}
