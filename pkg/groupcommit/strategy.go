package groupcommit

import (
	"fmt"
	"io/fs"
	"slices"
)

// Strategy is a way to make the contents of updates durable before their names are switched to them. All of them keep the
// contract of Batch: G1 and G2 hold for each update on its own, names are switched in order, one bad update does not
// stop the others. They differ in cost alone.
//
// The first three give each update a new file, renamed into place. The Spare ones create nothing in the steady state: each record owns a
// second file, its spare, which is overwritten in place, made durable, and exchanged with the live one (renameat2(2)). On
// ext4, XFS and btrfs creating and unlinking files is what is left of a renewal's cost once the syncs are shared.
type Strategy uint8

const (
	// Serial writes, syncs and renames one record after the other: the report's.
	Serial Strategy = iota
	// Overlapped writes the files of a window of updates, syncs them concurrently and then renames them.
	Overlapped
	// WholeFS writes the files of a window and makes all of them durable with one syncfs(2), which also flushes what others
	// have written to that file system.
	WholeFS
	// Spare overwrites, fdatasyncs and exchanges one record after the other.
	Spare
	// SpareOverlapped is Overlapped with spares.
	SpareOverlapped
	// SpareWholeFS is WholeFS with spares.
	SpareWholeFS
	// Auto measures the others for a moment, see NewWriter.
	Auto
)

var strategyNames = [...]string{"serial", "overlapped", "wholefs", "spare", "spare-overlapped", "spare-wholefs", "auto"}

// Strategies returns all but Auto.
func Strategies() []Strategy {
	return []Strategy{Serial, Overlapped, WholeFS, Spare, SpareOverlapped, SpareWholeFS}
}

func (s Strategy) String() string {
	if s > Auto {
		return fmt.Sprintf("strategy(%d)", uint8(s))
	}
	return strategyNames[s]
}

// MarshalText and UnmarshalText make a Strategy usable in flags and configuration files, by the names of String.
func (s Strategy) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s *Strategy) UnmarshalText(text []byte) error {
	i := slices.Index(strategyNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("groupcommit: strategy %.40q is unknown, want one of %q: %w", text, strategyNames, fs.ErrInvalid)
	}
	*s = Strategy(i)
	return nil
}

// syncing is how the contents of a window are made durable.
type syncing uint8

const (
	oneByOne syncing = iota
	concurrently
	wholeFS
)

func (s Strategy) spare() bool      { return s == Spare || s == SpareOverlapped || s == SpareWholeFS }
func (s Strategy) syncing() syncing { return [...]syncing{oneByOne, concurrently, wholeFS}[s%Spare] }

// with returns the strategy that has these two properties.
func with(spare bool, sync syncing) Strategy {
	s := Strategy(sync)
	if spare {
		s += Spare
	}
	return s
}

// maxWindow bounds what a batch holds at once: for each update of a window one open file and its buffer, and for the
// caller the lock of its record. Beyond some dozens the shared cost of a window no longer shows.
const maxWindow = 256

// maxConcurrent bounds the goroutines of a batch, each in one sync.
const maxConcurrent = 16

func (s Strategy) window() int {
	if s.syncing() == oneByOne {
		return 1
	}
	return maxWindow
}
