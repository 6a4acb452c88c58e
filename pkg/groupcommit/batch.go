package groupcommit

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"shardlease/pkg/groupcommit/vfs"
)

// Update is a whole new content for one name.
type Update struct {
	Name string // the caller holds this record's lock
	Data []byte
	Perm fs.FileMode // of the new file, subject to the umask
}

// Batch collects renames and removals and makes their names durable with one barrier per directory:
//
//  1. content is made durable (Publish does it by the Strategy, the caller of Replace has done it);
//  2. the name is switched atomically, and its directory noted as pending;
//  3. Flush runs one barrier per pending directory, in order of first use (Overlapped ones concurrently).
//
// A barrier covers every change made in its directory before it starts, so a record's lock may be released once its
// name is switched; success may be reported only after Flush. A Batch may go on after a Flush. It is not safe for
// concurrent use.
type Batch struct {
	fsys    vfs.FS
	w       *Writer
	pending []string        // in order of first use
	waiting map[string]bool // the same as a set
	suspect []*BarrierError // directories whose barrier failed, for good
	syncs   int             // content syncs since the last Flush
	retired []retired       // since the last Flush

	buffers *buffers // nil if Publish has not been called since the last Flush
}

// buffers are what a batch works with. They are reused by the next window, and by the next batch.
type buffers struct {
	contents []content
	read     [MaxWorkers][]byte // a spare's old content
}

// NewBatch returns an empty batch with the Serial content strategy, the report's: write, file sync, rename, one record
// after the other. Writer.NewBatch returns one with another strategy.
func NewBatch(fsys vfs.FS) *Batch {
	return newWriter(fsys, Serial).NewBatch()
}

// Window is how many updates Publish gains from having at once. The caller holds the locks of that many records.
func (b *Batch) Window() int { return b.w.strategy.window() }

// Publish makes the content of each update durable, then switches its name to it, in order. The result has one error or
// nil per update; an update that failed does not stop the others. An error that matches ErrUnknown says that the name
// may have been switched; with any other error it was not. A nil error is a success only after Flush. The names of one
// call differ.
func (b *Batch) Publish(updates []Update) []error {
	return b.PublishFunc(len(updates), func(_, i int) (Update, error) { return updates[i], nil })
}

// PublishFunc is Publish of n updates that are made up only when it is their turn. It calls next(worker, i) once for each i from 0 to n-1, in
// this order if the Window is 1, else for those of one window by several goroutines at once. Each of these goroutines has a worker number of
// its own, from 0 to MaxWorkers-1, so that next may keep a buffer for each; Data must stay as it is until PublishFunc has returned. An error of next
// becomes the result for its update, of which nothing is done.
func (b *Batch) PublishFunc(n int, next func(worker, i int) (Update, error)) []error {
	errs := make([]error, n)
	for at := 0; at < n; {
		window := errs[at:min(at+b.Window(), n)]
		b.publish(window, func(worker, i int) (Update, error) { return next(worker, at+i) })
		at += len(window)
	}
	return errs
}

// Replace renames oldname, whose content the caller has synced, to newname. Different parents are refused with
// ErrCrossDirectory before anything is done (G8): crossing renames can form a cycle of directories, for which no order
// of barriers puts every destination before its source. Use the function Replace for them.
func (b *Batch) Replace(oldname, newname string) error {
	return b.pair(oldname, newname, func() error { return rename(b.fsys, b.fsys.Rename, oldname, newname) })
}

// Exchange swaps two names atomically, or fails with errors.ErrUnsupported. The caller has synced both contents.
// Different parents are refused as by Replace. Both names exist before and after, so that only an error which proves that
// nothing was done is a plain one; any other matches ErrUnknown.
func (b *Batch) Exchange(name1, name2 string) error {
	return b.pair(name1, name2, func() error { return exchange(b.fsys, name1, name2) })
}

func exchange(fsys vfs.FS, name1, name2 string) error {
	err := fsys.Exchange(name1, name2)
	if err == nil || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return err
	}
	return unknown(err)
}

// Remove removes a file or an empty directory. A name that does not exist is fs.ErrNotExist, and needs no barrier.
func (b *Batch) Remove(name string) error {
	return b.change(filepath.Dir(name), func() error { return remove(b.fsys, name) })
}

func (b *Batch) pair(oldname, newname string, do func() error) error {
	dir := filepath.Dir(newname)
	if filepath.Dir(oldname) != dir {
		return fmt.Errorf("%w: %s, %s", ErrCrossDirectory, oldname, newname)
	}
	return b.change(dir, do)
}

// refuse returns an error if an earlier barrier of dir failed.
func (b *Batch) refuse(dir string) error {
	for _, s := range b.suspect {
		if s.Dir == dir { // %v: the cause belongs to the earlier changes, not to this one
			return fmt.Errorf("%w: %v", ErrSuspect, s)
		}
	}
	return nil
}

// change runs one change in dir and notes the directory if the change was done or may have been.
func (b *Batch) change(dir string, do func() error) error {
	err := b.refuse(dir)
	if err != nil {
		return err
	}
	err = do()
	if (err == nil || errors.Is(err, ErrUnknown)) && !b.waiting[dir] {
		b.waiting[dir] = true
		b.pending = append(b.pending, dir)
	}
	return err
}

// Pending returns the directories that wait for their barrier, in order of first use.
func (b *Batch) Pending() []string { return append([]string(nil), b.pending...) }

// Flushed is the outcome of a Flush, each list in order of first use.
type Flushed struct {
	Durable []string // directories this Flush made durable
	Unknown []string // directories whose barrier failed, in this Flush or an earlier one
	// ContentSyncs is how many syncs of files, or of the whole file system, Publish has run since the last Flush.
	ContentSyncs int
}

// Flush runs the barrier of every pending directory, also after one failed. A nil error means that every name this batch
// has changed survives a power cut. Otherwise it joins one *BarrierError per failed directory, and Flushed tells the
// directories apart.
//
// A failed barrier is final. Its directory is suspect for the rest of the batch: Flush does not try it again and keeps
// reporting it, and changes in it are refused with ErrSuspect. No later success, of this or of any other barrier there,
// may acknowledge its names; the caller reads them again and writes anew in a new batch.
func (b *Batch) Flush() (Flushed, error) {
	res := Flushed{ContentSyncs: b.syncs}
	failed := make([]error, len(b.pending))
	mode := b.w.strategy.syncing()
	if mode == wholeFS {
		mode = oneByOne // only on journals, where the first barrier does nearly all
	}
	b.each(len(b.pending), mode, func(i int) { failed[i] = b.w.barriers.sync(b.pending[i]) })
	for i, dir := range b.pending {
		if failed[i] != nil {
			b.suspect = append(b.suspect, &BarrierError{Dir: dir, Err: failed[i]})
			continue
		}
		res.Durable = append(res.Durable, dir)
	}
	b.pending, b.syncs = b.pending[:0], 0
	clear(b.waiting)
	b.keepSpares()
	if b.buffers != nil {
		b.w.buffers.Put(b.buffers)
		b.buffers = nil
	}
	var errs []error
	for _, s := range b.suspect {
		res.Unknown = append(res.Unknown, s.Dir)
		errs = append(errs, s)
	}
	return res, errors.Join(errs...)
}
