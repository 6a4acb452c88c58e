package groupcommit

import "shardlease/pkg/groupcommit/vfs"

// Unprobed returns a Writer that takes the strategy for possible and runs the operations of a batch one after the other, so that
// a trace is reproducible and the power can be cut between them.
func Unprobed(fsys vfs.FS, s Strategy) *Writer {
	w := newWriter(fsys, s)
	w.concurrent = 1
	return w
}

// InOrder does the same for a Writer that was probed.
func (w *Writer) InOrder() *Writer {
	w.concurrent = 1
	return w
}

// KeepSparesTooEarly is a planted bug: the spares are taken for usable before the barrier.
func (b *Batch) KeepSparesTooEarly() { b.keepSpares() }

// KnownSpares is how many records w has in memory.
func (w *Writer) KnownSpares() int { return len(w.spares.known) }

const (
	MaxWindow     = maxWindow
	MaxConcurrent = maxConcurrent
	MaxSpare      = maxSpare
)
