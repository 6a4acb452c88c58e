package groupcommit

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"shardlease/pkg/groupcommit/vfs"
)

// content is one update of a window on its way: written to a file under the temp name, made durable, switched to.
type content struct {
	name    string
	dir     string
	tmp     string
	file    vfs.File // open from before it was written until it is durable, so that no failed write-back is missed
	data    []byte   // what is written; the buffer of a padded content is reused
	mark    mark     // of data, zero if it is not padded
	inPlace bool     // file is the spare
	pair    pair     // what was known of the record's files
}

// retired is a record whose two files were exchanged, or whose live file is new. That is known for certain once its directory had its
// barrier.
type retired struct {
	name string
	pair pair
}

// publish makes the contents of one window durable, then switches their names in order. errs is all nil, and as long as the window.
func (b *Batch) publish(errs []error, next func(worker, i int) (Update, error)) {
	if b.buffers == nil {
		b.buffers = b.w.buffers.Get().(*buffers)
	}
	for len(b.buffers.contents) < len(errs) {
		b.buffers.contents = append(b.buffers.contents, content{})
	}
	window := b.buffers.contents[:len(errs)]
	one := func(worker, i int) {
		u, err := next(worker, i)
		c := &window[i]
		*c = content{name: u.Name, dir: filepath.Dir(u.Name), tmp: u.Name + tempSuffix, data: c.data[:0]}
		if err == nil {
			err = b.refuse(c.dir)
		}
		if err == nil {
			err = b.write(c, &u, &b.buffers.read[worker])
		}
		errs[i] = err
	}
	first := 0
	for first < len(window) && (first == 0 || window[first-1].file == nil) { // one is open before the others are written, see sync
		one(0, first)
		first++
	}
	spread(len(window)-first, func(worker, i int) { one(worker, first+i) })
	b.sync(window, errs)
	for i := range window {
		if c := &window[i]; errs[i] == nil {
			errs[i] = b.change(c.dir, func() error { return b.switchTo(c) })
		}
	}
}

// write writes u's content, to the record's spare if there is one that may be overwritten, otherwise to a new file.
func (b *Batch) write(c *content, u *Update, buf *[]byte) (err error) {
	data := u.Data
	if b.w.strategy.spare() && len(u.Data) <= maxSpare {
		c.pair = b.w.spares.take(u.Name)
		size := c.pair.spare.size
		c.data, c.mark = pad(c.data, u.Data, size)
		data = c.data
		if c.mark.size == size && b.overwrite(c, buf) {
			return nil
		}
	}
	c.file, err = stage(b.fsys, c.tmp, data, u.Perm)
	return err
}

// overwrite writes the content over the spare, if that is the file which was retired. In doubt it does not, and if anything goes
// wrong the file is left to be replaced, as garbage.
func (b *Batch) overwrite(c *content, buf *[]byte) bool {
	f, err := b.fsys.OpenFile(c.tmp, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	size := c.pair.spare.size
	if len(*buf) <= size {
		*buf = make([]byte, size+spareUnit)
	}
	n, err := f.Read((*buf)[:size+1]) // a file that is longer, or read in pieces, has another mark
	if err == nil && markOf((*buf)[:n]) == c.pair.spare {
		n, err = f.WriteAt(c.data, 0)
		if whole(c.tmp, n, len(c.data), err) == nil {
			c.file, c.inPlace = f, true
			if b.w.strategy.syncing() != oneByOne {
				f.StartSync() // by several goroutines, instead of by one thread of the kernel
			}
			return true
		}
	}
	_ = f.Close() // whatever it is, it is replaced
	return false
}

// sync makes the written contents durable and closes their files.
func (b *Batch) sync(window []content, errs []error) {
	var written []int
	for i := range window {
		if window[i].file != nil {
			written = append(written, i)
		}
	}
	mode := b.w.strategy.syncing()
	if mode == wholeFS {
		mode = b.w.auto.mode(len(written))
	}
	start := time.Now()
	if mode == wholeFS {
		b.syncs++
		err := window[written[0]].file.SyncFS() // it was opened before any of the others was written
		for _, i := range written {
			errs[i] = finish(b.fsys, window[i].tmp, window[i].file, err)
		}
	} else {
		b.syncs += len(written)
		b.each(len(written), mode, func(k int) {
			c := &window[written[k]]
			errs[written[k]] = finish(b.fsys, c.tmp, c.file, c.syncAlone())
		})
	}
	b.w.auto.took(mode, len(written), time.Since(start))
}

func (c *content) syncAlone() error {
	if c.inPlace {
		return c.file.Datasync() // neither its size nor its blocks have changed
	}
	return c.file.Sync()
}

// each runs f(0) to f(n-1), in order or concurrently.
func (b *Batch) each(n int, mode syncing, f func(i int)) {
	workers := min(n, b.w.concurrent)
	if workers <= 1 || mode == oneByOne {
		for i := range n {
			f(i)
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				f(i)
			}
		})
	}
	wg.Wait()
}

// switchTo gives the durable content its name: by an exchange, which keeps the old file as the next spare, if the old
// file is one of this process, otherwise by a rename.
func (b *Batch) switchTo(c *content) error {
	name := c.name
	if c.mark == (mark{}) {
		return switchTo(b.fsys, c.tmp, name)
	}
	next := pair{live: c.mark}
	if c.pair.live != (mark{}) {
		switch err := exchange(b.fsys, c.tmp, name); {
		case err == nil:
			next.spare = c.pair.live
			b.retired = append(b.retired, retired{name, next})
			return nil
		case errors.Is(err, ErrUnknown):
			return err // either file may be the live one: both stay
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errors.ErrUnsupported):
			_ = b.fsys.Remove(c.tmp) // garbage
			return err
		}
	}
	err := switchTo(b.fsys, c.tmp, name)
	if err == nil {
		b.retired = append(b.retired, retired{name, next})
	}
	return err
}

// keepSpares remembers the files of the records whose directories had a good barrier. Those of the others stay forgotten.
func (b *Batch) keepSpares() {
	for _, r := range b.retired {
		if b.refuse(filepath.Dir(r.name)) == nil {
			b.w.spares.put(r.name, r.pair)
		}
	}
	b.retired = b.retired[:0]
}
