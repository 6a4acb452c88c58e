package tracefs

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"shardlease/pkg/groupcommit/vfs"
)

// Check returns nil if everything was durable that had to be at each mark with the label:
//
//   - before a rename, exchange or link began, the content of the file had been synced after its last write ended (a
//     sync of the whole file system does as well). This holds for marked and unmarked ones. A file that was not opened
//     for writing in this trace is taken for durable;
//   - before a file that got its name by an exchange was written again, a successful sync of the directory began after the exchange
//     and ended before the write: until then the disk may know the file under its other name. This holds throughout too;
//   - for each rename, exchange and link that ended before the mark, a successful sync of the destination directory began
//     after that and ended before the mark; for a rename from another directory, a sync of the source directory began
//     after that one ended (so that a power cut never leaves it without a name) and ended before the mark.
//
// Otherwise it joins one error per violation. A label that was never marked is an error too: a check of nothing must
// not pass. Failed renames are not acknowledged by a mark.
func (t *Trace) Check(label string) error {
	events := t.Events()
	var errs []error
	for _, e := range events {
		if switches(e) {
			errs = append(errs, checkContent(events, e))
		}
		if writes(e, e.Name) {
			errs = append(errs, checkRetired(events, e))
		}
	}
	marks := 0
	for _, m := range events {
		if m.Op != OpMark || m.Name != label {
			continue
		}
		marks++
		for _, e := range events {
			if switches(e) && e.End < m.Begin {
				errs = append(errs, checkBarriers(events, e, m))
			}
		}
	}
	if marks == 0 {
		errs = append(errs, fmt.Errorf("tracefs: nothing marked %q", label))
	}
	return errors.Join(errs...)
}

func switches(e Event) bool {
	switch e.Op {
	case vfs.OpRename, vfs.OpRenameNoReplace, vfs.OpExchange, vfs.OpLink:
		return e.Err == nil
	}
	return false
}

// checkContent looks at the last write to the file that carries e's source name when e begins. A write still running
// then is covered by no sync.
func checkContent(events []Event, e Event) error {
	names := []string{e.Name}
	if e.Op == vfs.OpExchange {
		names = append(names, e.NewName)
	}
	for _, name := range names {
		written, synced := int64(math.MinInt64), int64(math.MinInt64) // End of the last write, Begin of the last good sync
		for _, w := range events {
			if w.Begin > e.Begin {
				continue
			}
			switch {
			case moves(w, name) && w.End < e.Begin:
				written, synced = math.MinInt64, math.MinInt64 // another file has the name now; it was checked when it moved
			case writes(w, name):
				written = max(written, w.End)
			case w.Err == nil && w.End < e.Begin && (w.Op == vfs.OpSyncFS || w.Name == name && (w.Op == vfs.OpSync || w.Op == vfs.OpDatasync)):
				synced = max(synced, w.Begin)
			}
		}
		if written > synced {
			return fmt.Errorf("tracefs: %s %s -> %s: content of %s is not synced after its last write", e.Op, e.Name, e.NewName, name)
		}
	}
	return nil
}

// checkRetired looks at how the file that w writes got its name.
func checkRetired(events []Event, w Event) error {
	var last Event
	for _, e := range events { // in order of their end
		if e.End < w.Begin && moves(e, w.Name) {
			last = e
		}
	}
	if last.Op != vfs.OpExchange {
		return nil
	}
	if _, ok := barrier(events, filepath.Dir(w.Name), last.End, w.Begin); ok {
		return nil
	}
	return fmt.Errorf("tracefs: %s %s: no sync of its directory between the write and %s %s -> %s: the disk may still know the file under the other name",
		w.Op, w.Name, last.Op, last.Name, last.NewName)
}

// moves reports whether w gave name another file, or none.
func moves(w Event, name string) bool {
	return switches(w) && (w.NewName == name || w.Name == name && w.Op != vfs.OpLink) ||
		w.Op == vfs.OpRemove && w.Err == nil && w.Name == name
}

// writes reports whether w may have changed the content of name; creating a file does, for an empty one can be lost too.
func writes(w Event, name string) bool {
	if w.Name != name {
		return false
	}
	return w.Op == vfs.OpWrite || w.Op == vfs.OpWriteAt ||
		w.Op == vfs.OpOpen && w.Err == nil && w.Flag&(os.O_CREATE|os.O_TRUNC) != 0
}

func checkBarriers(events []Event, e, mark Event) error {
	src, dst := filepath.Dir(e.Name), filepath.Dir(e.NewName)
	end, ok := barrier(events, dst, e.End, mark.Begin)
	if !ok {
		return fmt.Errorf("tracefs: %s %s -> %s: no sync of %s between it and mark %q", e.Op, e.Name, e.NewName, dst, mark.Name)
	}
	if src == dst || e.Op == vfs.OpLink {
		return nil
	}
	if _, ok := barrier(events, src, end, mark.Begin); !ok {
		return fmt.Errorf("tracefs: %s %s -> %s: no sync of %s between that of %s and mark %q", e.Op, e.Name, e.NewName, src, dst, mark.Name)
	}
	return nil
}

// barrier returns the end of the first good sync of dir that began after from and ended before to.
func barrier(events []Event, dir string, from, to int64) (end int64, ok bool) {
	for _, s := range events { // in order of their end
		if s.Op == vfs.OpSyncDir && s.Err == nil && filepath.Clean(s.Name) == dir && s.Begin > from && s.End < to {
			return s.End, true
		}
	}
	return 0, false
}
