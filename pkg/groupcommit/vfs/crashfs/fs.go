package crashfs

import (
	"errors"
	"time"

	"shardlease/pkg/groupcommit/vfs"
)

// FS is an in-memory file system with a page cache and a stable storage. The zero value is not usable; see New.
//
// It behaves like vfs.OS: same results, same errno values in *fs.PathError and *os.LinkError. Paths are resolved from
// the root, which always exists and is durable; "." and ".." are resolved by name. There is no umask. All methods may be
// called concurrently.
type FS struct{ view }

// Process is a view of an FS that can be killed: the process crash, as against the power cut.
type Process struct{ view }

var (
	_ vfs.FS = (*FS)(nil)
	_ vfs.FS = (*Process)(nil)
)

// ErrKilled is the cause of every error of a Process, and of its files, after Kill.
var ErrKilled = errors.New("the process was killed")

// New returns an empty file system.
func New() *FS { return fsOf(newDisk()) }

func fsOf(d *disk) *FS { return &FS{view{d, newProc()}} }

// SetClock sets the source of modification times. Without one every file is as old as the epoch. Clones and crashed
// file systems inherit it.
func (f *FS) SetClock(now func() time.Time) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.d.now = now
}

// WithFaults returns a view of the file system, or of the process, on which fault decides over each operation: nil lets it
// happen, an error fails it with that cause. A failed operation does nothing, except that a failed sync leaves what it should
// have covered in doubt: see the package comment. A file is known by the name it was opened with. Wrap with faultfs where the
// disk itself should stay well. fault may be called concurrently.
func (v view) WithFaults(fault func(*vfs.Call) error) vfs.FS {
	return vfs.Intercept(v, func(c *vfs.Call, do func() error) error {
		err := fault(c)
		if err == nil {
			return do()
		}
		v.d.failSync(c)
		return wrap(c.Op, c.Name, c.NewName, err)
	})
}

// failSync leaves what a sync would have covered in doubt.
func (d *disk) failSync(c *vfs.Call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch c.Op {
	case vfs.OpSync, vfs.OpDatasync, vfs.OpSyncDir:
		if p, err := d.existing(c.Name); err == nil {
			d.sync(p.ino, false)
		}
	case vfs.OpSyncFS:
		d.syncAll(false)
	}
}

// Changes counts the changes of what is durable or pending. Equal counts mean that the same states can follow.
func (f *FS) Changes() uint64 {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return f.d.changes
}

// Inodes counts the files and directories that are kept, among them removed ones that are open, that may come back
// after a power cut, or that nobody has looked for yet.
func (f *FS) Inodes() int {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return len(f.d.inodes) - 1 - len(f.d.free)
}

// Clone returns a file system in the same state, pending operations included, with no locks or open files. The two are
// independent from then on. It costs one pointer for each inode.
func (f *FS) Clone() *FS {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return fsOf(f.d.snapshot())
}

// Process returns a view with open files and locks of its own. FS itself acts as one that is never killed.
func (f *FS) Process() *Process { return &Process{view{f.d, newProc()}} }

// Kill ends the process: its locks are free and its open files are closed at once, and every later call through the view
// or its files fails with ErrKilled. What it wrote stays visible to others and as durable as it was: the page cache
// belongs to the kernel.
func (p *Process) Kill() {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	p.proc.dead = true
	for h := range p.proc.held {
		p.d.drop(h)
	}
	p.proc.held = nil
}

// proc is what dies with a process.
type proc struct {
	dead bool
	held map[handle]struct{}
}

func newProc() *proc { return &proc{held: map[handle]struct{}{}} }

// handle is an open file or a lock.
type handle interface{ inode() int }

// drop gives back what a handle holds. Caller holds mu.
func (d *disk) drop(h handle) {
	d.release(h.inode())
	if l, ok := h.(*lock); ok {
		for _, k := range l.keys {
			delete(d.locks, k)
		}
	}
}
