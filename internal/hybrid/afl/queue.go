package afl

import (
	"cmp"
	"container/heap"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Sum is the SHA-256 of an input's content: its identity, whatever its name.
type Sum = [sha256.Size]byte

// Input is one queue entry.
type Input struct {
	Path     string
	Sum      Sum
	Size     int64
	Modified time.Time
	Origin   string // what made it, as its name says: "havoc", "splice", "symcc", a peer's name after "sync:", ...
}

// MaxInput is the longest input AFL++ itself takes from a queue (its MAX_FILE).
const MaxInput = 1 << 20

// Scanner finds the inputs of some queue directories, each content once. Only what changed since the last Scan is
// read again. It is not safe for concurrent use.
type Scanner struct {
	dirs  []string
	files map[string]seenFile
	known map[Sum]bool
}

type seenFile struct {
	size     int64
	modified time.Time
}

// NewScanner scans the directories in the order given: of two equal inputs the first is kept.
func NewScanner(dirs ...string) *Scanner {
	return &Scanner{dirs: dirs, files: make(map[string]seenFile), known: make(map[Sum]bool)}
}

// Scan returns the inputs whose content was not seen before. A file that vanishes meanwhile is skipped, for the fuzzer
// may remove it at any time; one that can't be read is skipped too, and tried again by the next Scan, and the joined
// error says so. Inputs are returned besides an error.
func (s *Scanner) Scan() ([]Input, error) {
	var fresh []Input
	var failed []error
	for _, dir := range s.dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			failed = append(failed, fmt.Errorf("scan queue: %w", err))
			continue
		}
		for _, entry := range entries {
			if !entry.Type().IsRegular() || !strings.HasPrefix(entry.Name(), "id:") {
				continue
			}
			input, isNew, err := s.look(dir, entry)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				failed = append(failed, fmt.Errorf("scan queue: %w", err))
			}
			if isNew {
				fresh = append(fresh, input)
			}
		}
	}
	return fresh, errors.Join(failed...)
}

// look reads one file if it is new or was rewritten. A file is remembered only after it was read.
func (s *Scanner) look(dir string, entry fs.DirEntry) (Input, bool, error) {
	path := filepath.Join(dir, entry.Name())
	info, err := entry.Info()
	if err != nil {
		return Input{}, false, err
	}
	now := seenFile{size: info.Size(), modified: info.ModTime()}
	if s.files[path] == now || now.size == 0 || now.size > MaxInput {
		return Input{}, false, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Input{}, false, err
	}
	s.files[path] = now
	input := Input{Path: path, Sum: sha256.Sum256(data), Size: int64(len(data)), Modified: now.modified, Origin: origin(entry.Name())}
	if s.known[input.Sum] || len(data) == 0 {
		return Input{}, false, nil
	}
	s.known[input.Sum] = true
	return input, true, nil
}

// origin takes the operator, or the peer it came from, from a queue entry's name.
func origin(name string) string {
	for field := range strings.SplitSeq(name, ",") {
		key, value, ok := strings.Cut(field, ":")
		switch {
		case ok && (key == "op" || key == "sync"):
			return value
		case ok && key == "orig":
			return key
		}
	}
	return ""
}

// Score says how promising an input is: new coverage first, then rare edges, then what a solver made, then short and
// fresh ones, and by up to 30 points those from an origin whose inputs were worth it before (yield, 0 to 1).
func Score(in Input, now time.Time, yield float64) float64 {
	name := filepath.Base(in.Path)
	score := 30 * yield
	if strings.Contains(name, "+cov") {
		score += 100
	}
	if strings.Contains(name, "+rare") {
		score += 60
	}
	if strings.Contains(name, "symcc") {
		score += 20
	}
	score += 10 / (1 + float64(in.Size)/1024)
	return score + 10*math.Exp2(-max(0, now.Sub(in.Modified).Minutes()))
}

// Yield learns which origins lead to new coverage.
type Yield map[string]struct{ Analysed, Found int }

// Add counts one analysed input of the origin, and whether anything new came of it.
func (y Yield) Add(origin string, found bool) {
	count := y[origin]
	count.Analysed++
	if found {
		count.Found++
	}
	y[origin] = count
}

// Rate is the part of the origin's analysed inputs that led to something, 0 when none was analysed.
func (y Yield) Rate(origin string) float64 {
	return float64(y[origin].Found) / float64(max(1, y[origin].Analysed))
}

// Top returns the limit inputs with the highest scores, best first; equal scores in the order of their sums, so that
// the choice does not depend on the order of a directory.
func Top(inputs []Input, limit int, score func(Input) float64) []Input {
	best := make(worstFirst, 0, limit+1)
	for _, in := range inputs {
		heap.Push(&best, scored{in, score(in)})
		if len(best) > limit {
			heap.Pop(&best)
		}
	}
	slices.SortFunc(best, func(a, b scored) int { return compareScored(b, a) })
	top := make([]Input, len(best))
	for i := range best {
		top[i] = best[i].input
	}
	return top
}

type scored struct {
	input Input
	score float64
}

func compareScored(a, b scored) int {
	if c := cmp.Compare(a.score, b.score); c != 0 {
		return c
	}
	return slices.Compare(b.input.Sum[:], a.input.Sum[:])
}

type worstFirst []scored

func (h worstFirst) Len() int           { return len(h) }
func (h worstFirst) Less(i, j int) bool { return compareScored(h[i], h[j]) < 0 }
func (h worstFirst) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *worstFirst) Push(x any)        { *h = append(*h, x.(scored)) }
func (h *worstFirst) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
