package crashfs

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	root        = 1    // inode number of the root directory
	maxName     = 255  // bytes of one path component, NAME_MAX
	maxPath     = 4095 // bytes of a path, PATH_MAX without its terminator
	maxFileSize = 1 << 30
)

// token is the identity that may change an inode. A clone takes new ones on both sides, which makes it cheap: whoever
// changes an inode first copies it. It has a size because pointers to empty structs may be equal.
type token struct{ _ byte }

// disk is the state behind FS and Process.
type disk struct {
	mu     sync.Mutex
	owner  *token
	inodes []*inode // by number; nil: free
	free   []int
	// collectAt is the length of inodes at which to look for unreferenced ones.
	collectAt int

	seq       uint64 // of the last directory operation
	committed uint64 // the last one that a barrier covered, in the order of the journal
	changes   uint64

	open  map[int]int // descriptors and locks that hold an inode
	locks map[lockKey]*lock

	now func() time.Time
	cut func() string
}

func newDisk() *disk {
	d := &disk{owner: new(token), collectAt: 1024, now: func() time.Time { return time.Unix(0, 0) }}
	d.resetVolatile()
	d.inodes = []*inode{nil, d.newInode(true, 0o755)}
	return d
}

func (d *disk) resetVolatile() {
	d.open, d.locks = map[int]int{}, map[lockKey]*lock{}
}

func (d *disk) newInode(dir bool, perm fs.FileMode) *inode {
	in := &inode{owner: d.owner, dir: dir, perm: perm.Perm(), mtime: d.now()}
	if dir {
		in.names, in.diskNames = map[string]int{}, map[string]int{}
	}
	return in
}

// snapshot returns a disk in the same state, durable and pending, without locks and open files. Caller holds mu.
func (d *disk) snapshot() *disk {
	d.owner = new(token)
	c := &disk{owner: new(token), inodes: slices.Clone(d.inodes), free: slices.Clone(d.free), collectAt: d.collectAt,
		seq: d.seq, committed: d.committed, now: d.now}
	c.resetVolatile()
	return c
}

// edit returns the inode for changing and counts the change.
func (d *disk) edit(ino int) *inode {
	d.changes++
	in := d.inodes[ino]
	if in.owner != d.owner {
		in = in.copyFor(d.owner)
		d.inodes[ino] = in
	}
	return in
}

func (d *disk) add(in *inode) int {
	if len(d.free) == 0 && len(d.inodes) >= d.collectAt {
		d.collect()
	}
	if n := len(d.free); n > 0 {
		ino := d.free[n-1]
		d.free = d.free[:n-1]
		d.inodes[ino] = in
		return ino
	}
	d.inodes = append(d.inodes, in)
	return len(d.inodes) - 1
}

// collect frees the inodes that no name, durable or pending, and no open file leads to.
func (d *disk) collect() {
	seen := make([]bool, len(d.inodes))
	todo := []int{root}
	for ino := range d.open {
		todo = append(todo, ino)
	}
	for len(todo) > 0 {
		ino := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if ino == 0 || seen[ino] {
			continue
		}
		seen[ino] = true
		in := d.inodes[ino]
		for _, child := range in.names {
			todo = append(todo, child)
		}
		for _, child := range in.diskNames {
			todo = append(todo, child)
		}
		for _, op := range in.ops {
			for _, e := range op.set {
				todo = append(todo, e.ino)
			}
		}
	}
	d.free = d.free[:0]
	for ino := len(d.inodes) - 1; ino > root; ino-- {
		if !seen[ino] {
			d.inodes[ino] = nil
			d.free = append(d.free, ino)
		}
	}
	d.collectAt = max(1024, 2*(len(d.inodes)-len(d.free)))
}

func (d *disk) hold(ino int) { d.open[ino]++ }

func (d *disk) release(ino int) {
	if d.open[ino]--; d.open[ino] == 0 {
		delete(d.open, ino)
	}
}

// place is where a path leads: the directory that holds its last name, and the inode there, 0 if there is none.
// The root has no directory: dir is 0.
type place struct {
	dir  int
	base string
	ino  int
}

// missing is the error of whoever needs the name of a place, or nil if it is there.
func (p place) missing() error {
	switch {
	case p.ino != 0:
		return nil
	case len(p.base) > maxName:
		return syscall.ENAMETOOLONG
	}
	return syscall.ENOENT
}

// find resolves a path. It is an error if a directory on the way is missing, not if the last name is.
func (d *disk) find(name string) (place, error) {
	p, err := d.resolve(name)
	if err == nil && len(p.base) > maxName {
		err = syscall.ENAMETOOLONG
	}
	return p, err
}

// resolve is find without a look at the last name.
func (d *disk) resolve(name string) (place, error) {
	if name == "" {
		return place{}, syscall.ENOENT
	}
	if len(name) > maxPath {
		return place{}, syscall.ENAMETOOLONG
	}
	p := place{ino: root}
	for part := range strings.SplitSeq(path.Clean("/" + name)[1:], "/") {
		if part == "" {
			return p, nil // the root itself
		}
		if err := p.missing(); err != nil {
			return place{}, err
		}
		in := d.inodes[p.ino]
		if !in.dir {
			return place{}, syscall.ENOTDIR
		}
		p = place{dir: p.ino, base: part, ino: in.names[part]}
	}
	return p, nil
}

// existing is find for a name that must be there.
func (d *disk) existing(name string) (place, error) {
	p, err := d.resolve(name)
	if err == nil {
		err = p.missing()
	}
	return p, err
}

// names changes a directory by one atomic operation. set and takes are as in dirOp.
func (d *disk) names(dir int, text string, takes []string, set ...entry) {
	d.seq++
	d.namesWithSeq(dir, text, takes, set...)
}

// namesWithSeq is names for the second half of an operation: it goes with the first in the order of the journal.
func (d *disk) namesWithSeq(dir int, text string, takes []string, set ...entry) {
	in := d.edit(dir)
	in.changeNames(dirOp{seq: d.seq, set: set, takes: takes, text: text})
	in.mtime = d.now()
}

// sync makes an inode durable, or leaves its pending changes in doubt.
func (d *disk) sync(ino int, ok bool) {
	if !d.inodes[ino].dirty() {
		return
	}
	in := d.edit(ino)
	if !ok {
		in.failSync()
		return
	}
	if slices.ContainsFunc(in.ops, func(op dirOp) bool { return !op.doomed }) {
		d.committed = d.seq
	}
	in.sync()
}

func (d *disk) syncAll(ok bool) {
	for ino, in := range d.inodes {
		if in != nil {
			d.sync(ino, ok)
		}
	}
}
