package crashfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"shardlease/pkg/groupcommit/vfs"
)

// file is an open file or directory.
type file struct {
	view
	name string
	ino  int
	flag int
	off  int
}

func (f *file) inode() int { return f.ino }

// do is view.do for an open file.
func (f *file) do(op vfs.Op, run func() error) error {
	return f.view.do(op, f.name, "", func() error {
		if _, ok := f.proc.held[f]; !ok {
			return fs.ErrClosed
		}
		return run()
	})
}

func (f *file) Read(p []byte) (n int, err error) {
	err = f.do(vfs.OpRead, func() error {
		in := f.d.inodes[f.ino]
		switch {
		case len(p) == 0:
			return nil
		case f.flag&accessMask == os.O_WRONLY:
			return syscall.EBADF
		case in.dir:
			return syscall.EISDIR
		case f.off >= len(in.data):
			return io.EOF
		}
		n = copy(p, in.data[f.off:])
		f.off += n
		return nil
	})
	return n, err
}

func (f *file) Write(p []byte) (n int, err error) {
	err = f.do(vfs.OpWrite, func() error {
		if f.flag&os.O_APPEND != 0 {
			f.off = len(f.d.inodes[f.ino].data)
		}
		if err := f.put(p, f.off); err != nil {
			return err
		}
		f.off += len(p)
		n = len(p)
		return nil
	})
	return n, err
}

var errAppendAt = errors.New("WriteAt on a file opened with O_APPEND")

func (f *file) WriteAt(p []byte, off int64) (n int, err error) {
	if f.flag&os.O_APPEND != 0 {
		return 0, errAppendAt // as vfs.OS, which makes no *fs.PathError of it
	}
	if len(p) == 0 && off >= 0 {
		return 0, nil // vfs.OS does no system call then, whatever the state of the file
	}
	err = f.do(vfs.OpWriteAt, func() error {
		switch {
		case off < 0:
			return syscall.EINVAL
		case off > maxFileSize:
			return syscall.EFBIG
		}
		if err := f.put(p, int(off)); err != nil {
			return err
		}
		n = len(p)
		return nil
	})
	return n, err
}

// put writes p at off. Caller holds mu.
func (f *file) put(p []byte, off int) error {
	switch {
	case f.flag&accessMask == os.O_RDONLY:
		return syscall.EBADF
	case off+len(p) > maxFileSize:
		return syscall.EFBIG
	case len(p) == 0:
		return nil
	}
	in := f.d.edit(f.ino)
	in.change(write{off: off, data: append([]byte(nil), p...)})
	in.mtime = f.d.now()
	return nil
}

func (f *file) Stat() (fs.FileInfo, error) {
	var i fs.FileInfo
	err := f.do(vfs.OpStat, func() error {
		i = f.d.info(path.Base(f.name), f.ino)
		return nil
	})
	return i, err
}

func (f *file) Sync() error     { return f.sync(vfs.OpSync) }
func (f *file) Datasync() error { return f.sync(vfs.OpDatasync) }

// sync covers the content of a file, and the names in a directory.
func (f *file) sync(op vfs.Op) error {
	return f.do(op, func() error {
		f.d.sync(f.ino, true)
		return nil
	})
}

// StartSync changes nothing: unsynced content may survive in any case.
func (f *file) StartSync() {}

func (f *file) SyncFS() error {
	return f.do(vfs.OpSyncFS, func() error {
		f.d.syncAll(true)
		return nil
	})
}

func (f *file) Close() error {
	return f.do(vfs.OpClose, func() error { return f.letGo(f) })
}

// lockKey is a byte of a lock file.
type lockKey struct {
	ino int
	key uint64
}

type lock struct {
	view
	name string
	ino  int
	held []bool
	keys []lockKey // those held
}

func (l *lock) inode() int      { return l.ino }
func (l *lock) Held(i int) bool { return l.held[i] }

// TryLock keeps locks on inodes, as the kernel does: they don't survive a power cut, and a lock file that was removed
// and created again is another one. Keys that differ in the top bit alone are the same, as for vfs.OS.
func (v view) TryLock(name string, keys ...uint64) (vfs.Lock, error) {
	l := &lock{view: v, name: name}
	err := v.do(vfs.OpLock, name, "", func() error {
		p, err := v.d.find(name)
		if err != nil {
			return err
		}
		ino, err := v.d.openInode(p, os.O_RDWR|os.O_CREATE, 0o666)
		if errors.Is(err, syscall.EISDIR) {
			return fmt.Errorf("%w: %w", vfs.ErrNotRegular, err)
		}
		if err != nil {
			return err
		}
		l.ino = ino
		for _, key := range keys {
			k := lockKey{ino, key &^ (1 << 63)}
			holder := v.d.locks[k]
			l.held = append(l.held, holder == nil || holder == l)
			if holder == nil {
				v.d.locks[k] = l
				l.keys = append(l.keys, k)
			}
		}
		if len(l.keys) == 0 {
			return vfs.ErrLocked
		}
		v.keep(l)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (l *lock) Close() error {
	return l.do(vfs.OpUnlock, l.name, "", func() error { return l.letGo(l) })
}
