package crashfs

import (
	"bytes"
	"io/fs"
	"maps"
	"slices"
	"time"
)

// inode is a file or a directory. A disk and its clones share inodes; only disk.edit may hand one out for changing, and
// byte slices are never changed in place.
type inode struct {
	owner *token // the only disk state that may change this inode; nil: nobody may
	dir   bool
	perm  fs.FileMode
	mtime time.Time

	data   []byte  // what reads see
	disk   []byte  // what a power cut leaves of the content if it drops all writes
	writes []write // not covered by a sync that succeeded, in order
	strays bool    // a sync failed once: data may hold bytes that neither disk nor writes have

	names     map[string]int // what reads see: name to inode number
	diskNames map[string]int // what a power cut leaves if it drops all ops
	ops       []dirOp        // not covered by a barrier that succeeded, in order
}

// write is one change of a file's content: a truncation to nothing, or bytes at an offset.
type write struct {
	truncate bool
	off      int
	data     []byte
	doomed   bool // a sync failed on it; the next one that succeeds forgets it
}

// dirOp is one atomic change of a directory.
type dirOp struct {
	seq    uint64 // the two halves of a rename across directories have the same one
	set    []entry
	takes  []string // names that it moves away or removes
	doomed bool     // as for write
	text   string
}

// entry is a name with its inode number; 0 means that the name is gone.
type entry struct {
	name string
	ino  int
}

// copyFor returns a copy that only the owner may change.
func (in *inode) copyFor(owner *token) *inode {
	c := *in
	c.owner = owner
	c.writes, c.ops = slices.Clip(in.writes), slices.Clip(in.ops)
	c.names, c.diskNames = maps.Clone(in.names), maps.Clone(in.diskNames)
	return &c
}

func (in *inode) dirty() bool { return len(in.writes) > 0 || len(in.ops) > 0 }

// change applies w to what reads see and notes it as pending.
func (in *inode) change(w write) {
	in.data = apply(in.data, w)
	in.writes = append(in.writes, w)
}

// apply returns base changed by w, in new memory unless that is empty.
func apply(base []byte, w write) []byte {
	if w.truncate {
		return nil
	}
	size := max(len(base), w.off+len(w.data))
	out := make([]byte, size)
	copy(out, base)
	copy(out[w.off:], w.data)
	return out
}

// changeNames applies op to what reads see and notes it as pending.
func (in *inode) changeNames(op dirOp) {
	applyNames(in.names, op)
	in.ops = append(in.ops, op)
}

func applyNames(names map[string]int, op dirOp) {
	for _, e := range op.set {
		if e.ino == 0 {
			delete(names, e.name)
		} else {
			names[e.name] = e.ino
		}
	}
}

// sync makes pending changes durable, except those that an earlier sync failed on.
func (in *inode) sync() {
	if !in.strays {
		in.disk = in.data
	}
	for _, w := range in.writes {
		if in.strays && !w.doomed {
			in.disk = apply(in.disk, w)
		}
	}
	for _, op := range in.ops {
		if !op.doomed {
			applyNames(in.diskNames, op)
		}
	}
	in.writes, in.ops = nil, nil
}

// failSync leaves all pending changes in doubt.
func (in *inode) failSync() {
	in.writes, in.ops = slices.Clone(in.writes), slices.Clone(in.ops)
	in.strays = in.strays || len(in.writes) > 0
	for i := range in.writes {
		in.writes[i].doomed = true
	}
	for i := range in.ops {
		in.ops[i].doomed = true
	}
}

// content is what a power cut may leave in a file.
type content struct {
	kind string
	data []byte
}

// contents lists the distinct contents that a power cut may leave: dropped first, kept last.
func (in *inode) contents() []content {
	all := []content{{"dropped", in.disk}}
	if len(in.writes) == 0 {
		return all
	}
	kept, floor := in.disk, in.disk
	for _, w := range in.writes {
		kept = apply(kept, w)
		if w.truncate {
			floor = nil
		}
	}
	zeros := floor
	if len(kept) > len(floor) {
		zeros = apply(floor, write{off: len(floor), data: make([]byte, len(kept)-len(floor))})
	}
	for _, c := range []content{{"emptied", floor}, {"zeros", zeros}, {"torn", torn(floor, kept)}, {"kept", kept}} {
		same := func(o content) bool { return bytes.Equal(o.data, c.data) }
		if !slices.ContainsFunc(all, same) {
			all = append(all, c)
		}
	}
	return all
}

// torn returns the state in which the first half of what differs between old and new has been written back.
func torn(old, new []byte) []byte {
	first := 0
	for first < len(old) && first < len(new) && old[first] == new[first] {
		first++
	}
	end := len(new)
	for len(old) == len(new) && end > first && old[end-1] == new[end-1] {
		end--
	}
	half := (first + end) / 2
	out := slices.Clone(new[:half])
	if half < len(old) {
		out = append(out, old[half:]...)
	}
	return out
}

// needs lists, for each pending operation, the earlier pending ones that put the names there which it takes away.
// An operation that a failed sync left in doubt binds nobody: the next barrier forgets it and keeps the later ones.
func (in *inode) needs() [][]int {
	needs := make([][]int, len(in.ops))
	last := map[string]int{}
	for i, op := range in.ops {
		for _, name := range op.takes {
			if j, ok := last[name]; ok {
				needs[i] = append(needs[i], j)
			}
		}
		if op.doomed {
			continue
		}
		for _, e := range op.set {
			last[e.name] = i
		}
	}
	return needs
}
