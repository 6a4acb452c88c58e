package groupcommit

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"shardlease/pkg/groupcommit/vfs"
)

// Writer is what the batches of one process have in common: the strategy, what is known of the spares, and the barriers that
// batches run by several goroutines at the same time share. It is safe for concurrent use.
type Writer struct {
	fsys     vfs.FS
	strategy Strategy
	auto     *chooser // nil unless Auto chose a WholeFS strategy
	spares   spares
	barriers barriers

	buffers    sync.Pool // of *buffers
	concurrent int       // maxConcurrent, less in tests that must replay
}

// NewWriter returns a Writer with the given strategy, or with one that does what it can of it: Spare strategies need
// renameat2(2) with RENAME_EXCHANGE, WholeFS strategies a syncfs(2) that reports failed writes (vfs.File.SyncFS). Whether
// the file system has them is found out now and here. Strategy tells the outcome.
//
// scratch is a name for a directory on the file system in question, in a durable directory that no batch writes to. Unless
// the strategy is Serial or Overlapped, it is made and removed again; scratch + ".lock" stays, as the lock that keeps two
// processes from measuring at the same time.
//
// Auto writes some records with each strategy, for some tenths of a second, about one where each sync is slow, and takes the fastest; Serial
// if none is clearly faster. The result holds for all Writers of this process with the same scratch. When syncfs
// gets slow later, because others write much to the file system, windows that would cost less without it do without it.
//
// A failure to find out, say of a full disk, is not an error: the Writer then does without.
func NewWriter(fsys vfs.FS, strategy Strategy, scratch string) (*Writer, error) {
	if strategy > Auto {
		return nil, fmt.Errorf("groupcommit: %v is unknown: %w", strategy, fs.ErrInvalid)
	}
	w := newWriter(fsys, strategy)
	if strategy != Serial && strategy != Overlapped {
		w.strategy, w.auto = settle(fsys, strategy, scratch)
	}
	return w, nil
}

func newWriter(fsys vfs.FS, strategy Strategy) *Writer {
	w := &Writer{fsys: fsys, strategy: strategy, concurrent: maxConcurrent}
	w.barriers = barriers{fsys: fsys, dirs: make(map[string]*round)}
	w.buffers.New = func() any { return new(buffers) }
	return w
}

// Strategy returns the strategy in use, never Auto.
func (w *Writer) Strategy() Strategy { return w.strategy }

// NewBatch returns an empty batch.
func (w *Writer) NewBatch() *Batch {
	return &Batch{fsys: w.fsys, w: w, waiting: make(map[string]bool)}
}

// lockPatience bounds the wait for another process that measures.
const lockPatience = 2 * time.Second

// settle probes scratch's file system, and measures it if the strategy is Auto.
func settle(fsys vfs.FS, strategy Strategy, scratch string) (Strategy, *chooser) {
	plain := Serial
	if strategy != Auto {
		plain = with(false, min(strategy.syncing(), concurrently))
	}
	unlock, err := lockScratch(fsys, scratch+".lock")
	if err != nil {
		return plain, nil
	}
	defer unlock()
	defer func() { _ = removeTree(fsys, scratch) }()
	if err := removeTree(fsys, scratch); err != nil { // of a killed process
		return plain, nil
	}
	if err := fsys.Mkdir(scratch, 0o777); err != nil {
		return plain, nil
	}
	can := probe(fsys, scratch)
	if strategy == Auto {
		return calibrated(fsys, scratch, can)
	}
	return can.limit(strategy), nil
}

func lockScratch(fsys vfs.FS, name string) (unlock func(), err error) {
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		l, err := fsys.TryLock(name, 0)
		if err == nil {
			return func() { _ = l.Close() }, nil // the kernel releases it even if this fails
		}
		if !errors.Is(err, vfs.ErrLocked) || time.Since(start) > lockPatience {
			return nil, err
		}
	}
}

// ability is what a file system can do.
type ability struct{ exchange, syncFS bool }

// limit returns what is left of s.
func (a ability) limit(s Strategy) Strategy {
	sync := s.syncing()
	if sync == wholeFS && !a.syncFS {
		sync = concurrently
	}
	return with(s.spare() && a.exchange, sync)
}

func probe(fsys vfs.FS, scratch string) (can ability) {
	names := [2]string{filepath.Join(scratch, "probe1"), filepath.Join(scratch, "probe2")}
	for i, name := range names {
		f, err := create(fsys, name, 0o666)
		if err != nil {
			return ability{}
		}
		_, err = f.Write([]byte{byte(i)})
		if i == 0 {
			can.syncFS = err == nil && f.SyncFS() == nil
		}
		if cerr := f.Close(); err != nil || cerr != nil {
			return ability{}
		}
	}
	if err := fsys.Exchange(names[0], names[1]); err != nil {
		return can
	}
	// A layer that drops the flag would have renamed.
	for i, name := range names {
		data, err := vfs.ReadFile(fsys, name, 1)
		can.exchange = err == nil && len(data) == 1 && int(data[0]) == 1-i
		if !can.exchange || fsys.Remove(name) != nil {
			break
		}
	}
	return can
}
