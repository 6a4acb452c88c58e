// Package tracefs records every operation on a file system, in order: for golden traces, for counting barriers, and for
// checking that what was acknowledged had been made durable before (Trace.Check).
package tracefs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"shardlease/pkg/groupcommit/vfs"
)

// OpMark is the Op of the event that Mark records.
const OpMark vfs.Op = "mark"

// Event is one finished operation. Begin and End come from one counter shared by all events of a trace, so that a.End <
// b.Begin says that a was over before b began, also among goroutines.
type Event struct {
	Begin, End int64
	Op         vfs.Op
	Name       string // as given; the label of a mark
	NewName    string // second name of a rename, exchange or link
	Flag       int    // of an open
	Bytes      int    // of a read or write
	Took       time.Duration
	Err        error
}

// Trace is a vfs.FS that passes every operation on and records it. It is safe for concurrent use.
type Trace struct {
	vfs.FS
	base  string
	clock atomic.Int64

	mu     sync.Mutex
	events []Event // in order of their end
}

// New traces fsys. String shows names relative to base.
func New(fsys vfs.FS, base string) *Trace {
	t := &Trace{base: base}
	t.FS = vfs.Intercept(fsys, t.around)
	return t
}

func (t *Trace) around(c *vfs.Call, do func() error) error {
	e := Event{Op: c.Op, Name: c.Name, NewName: c.NewName, Flag: c.Flag, Begin: t.clock.Add(1)}
	start := time.Now()
	e.Err = do()
	e.Took, e.Bytes = time.Since(start), c.N
	t.add(e)
	return e.Err
}

func (t *Trace) add(e Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.End = t.clock.Add(1)
	t.events = append(t.events, e)
}

// Mark records that the program acknowledges what it has done so far. Labels need not be unique.
func (t *Trace) Mark(label string) {
	t.add(Event{Begin: t.clock.Add(1), Op: OpMark, Name: label})
}

// Events returns a copy of what was recorded, in the order in which the operations ended.
func (t *Trace) Events() []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Event(nil), t.events...)
}

// Reset forgets all events.
func (t *Trace) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = nil
}

// Counts are operations that succeeded.
type Counts struct {
	FileSyncs, DirSyncs, FSSyncs int
	Renames                      map[string]int // renames and exchanges by destination directory
}

// Counts counts the events so far.
func (t *Trace) Counts() Counts {
	c := Counts{Renames: make(map[string]int)}
	for _, e := range t.Events() {
		if e.Err != nil {
			continue
		}
		switch e.Op {
		case vfs.OpSync, vfs.OpDatasync:
			c.FileSyncs++
		case vfs.OpSyncDir:
			c.DirSyncs++
		case vfs.OpSyncFS:
			c.FSSyncs++
		case vfs.OpRename, vfs.OpRenameNoReplace, vfs.OpExchange:
			c.Renames[filepath.Dir(e.NewName)]++
		}
	}
	return c
}

// String is the trace as text, one line per event, without times and without absolute paths, so that it can be compared
// with a golden file.
func (t *Trace) String() string {
	var b strings.Builder
	for _, e := range t.Events() {
		fmt.Fprintf(&b, "%s %s", e.Op, t.rel(e.Name))
		if e.NewName != "" {
			fmt.Fprintf(&b, " -> %s", t.rel(e.NewName))
		}
		switch e.Op {
		case vfs.OpOpen:
			b.WriteString(flags(e.Flag))
		case vfs.OpRead, vfs.OpWrite, vfs.OpWriteAt:
			fmt.Fprintf(&b, " %d", e.Bytes)
		}
		if e.Err != nil {
			fmt.Fprintf(&b, " = %s", cause(e.Err))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (t *Trace) rel(name string) string {
	if name == t.base {
		return "."
	}
	return strings.TrimPrefix(name, t.base+string(filepath.Separator))
}

func flags(flag int) string {
	text := [4]string{os.O_RDONLY: " rdonly", os.O_WRONLY: " wronly", os.O_RDWR: " rdwr"}[flag&(os.O_WRONLY|os.O_RDWR)]
	for _, f := range []struct {
		bit  int
		name string
	}{{os.O_CREATE, " create"}, {os.O_EXCL, " excl"}, {os.O_TRUNC, " trunc"}, {os.O_APPEND, " append"}} {
		if flag&f.bit != 0 {
			text += f.name
		}
	}
	return text
}

// cause is the innermost message, which has no path in it.
func cause(err error) string {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case err == io.EOF:
		return "EOF"
	case errors.As(err, &path):
		return path.Err.Error()
	case errors.As(err, &link):
		return link.Err.Error()
	}
	return err.Error()
}
