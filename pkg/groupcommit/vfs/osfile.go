package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// osFile is a bare descriptor. An os.File would cost an fstat at each open, a finalizer, and a lock at each call, for the sake of pipes,
// of deadlines and of concurrent use, none of which is there. Like any descriptor it must be closed.
type osFile struct {
	name   string
	fd     int // -1 once closed: the number may be somebody else's by then
	append bool
}

func (osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	// The flags of package os are those of the kernel, and so are the permission bits; the others are not for files made here.
	fd, err := open(name, flag|unix.O_NOFOLLOW, uint32(perm.Perm()))
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &osFile{name: name, fd: fd, append: flag&os.O_APPEND != 0}, nil
}

func (f *osFile) do(op string, call func(fd int) error) error {
	err := fs.ErrClosed
	if f.fd >= 0 {
		err = retry(func() error { return call(f.fd) })
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: f.name, Err: err}
	}
	return nil
}

func (f *osFile) Read(p []byte) (n int, err error) {
	if len(p) == 0 && f.fd >= 0 {
		return 0, nil
	}
	err = f.do("read", func(fd int) (err error) {
		n, err = unix.Read(fd, p)
		return err
	})
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (f *osFile) Write(p []byte) (int, error) {
	return f.writeAll("write", p, func(fd, done int) (int, error) { return unix.Write(fd, p[done:]) })
}

// errAppendAt: on Linux pwrite(2) appends to a file opened with O_APPEND, whatever the offset.
var errAppendAt = errors.New("vfs: WriteAt on a file opened with O_APPEND")

func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	if f.append {
		return 0, errAppendAt
	}
	if len(p) == 0 && off >= 0 {
		return 0, nil
	}
	return f.writeAll("write", p, func(fd, done int) (int, error) { return unix.Pwrite(fd, p[done:], off+int64(done)) })
}

// writeAll goes on after a short write, which says no reason; the next one does.
func (f *osFile) writeAll(op string, p []byte, write func(fd, done int) (int, error)) (done int, err error) {
	for {
		n := 0
		err = f.do(op, func(fd int) (err error) {
			n, err = write(fd, done)
			return err
		})
		done += max(n, 0)
		if err == nil && n == 0 && done < len(p) {
			err = io.ErrShortWrite
		}
		if err != nil || done >= len(p) {
			return done, err
		}
	}
}

// Stat borrows the descriptor to an os.File, which alone can make a fs.FileInfo. It is rare.
func (f *osFile) Stat() (info fs.FileInfo, err error) {
	err = f.do("stat", func(fd int) error {
		second, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		file := os.NewFile(uintptr(second), f.name)
		defer file.Close() // nothing was written
		info, err = file.Stat()
		return err
	})
	return info, err
}

func (f *osFile) Sync() error     { return f.do("fsync", unix.Fsync) }
func (f *osFile) Datasync() error { return f.do("fdatasync", unix.Fdatasync) }

func (f *osFile) StartSync() {
	if f.fd >= 0 {
		_ = unix.SyncFileRange(f.fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE) // not every file system knows it
	}
}

func (f *osFile) SyncFS() error {
	return f.do("syncfs", func(fd int) error {
		if err := reportsLostWrites(fd); err != nil {
			return err
		}
		return unix.Syncfs(fd)
	})
}

// Close is final even if it fails (close(2)), so it is not repeated.
func (f *osFile) Close() error {
	if f.fd < 0 {
		return &fs.PathError{Op: "close", Path: f.name, Err: fs.ErrClosed}
	}
	fd := f.fd
	f.fd = -1
	if err := unix.Close(fd); err != nil {
		return &fs.PathError{Op: "close", Path: f.name, Err: err}
	}
	return nil
}

// reportsLostWrites returns nil if syncfs fails on this file system after a failed write-back. The kernel does that since Linux 5.8
// (syncfs(2)), for file systems that write to their own superblock. On overlayfs it is the upper file system that
// learns of the failure, and nobody asks it.
func reportsLostWrites(fd int) error {
	if !modernSyncfs() {
		return fmt.Errorf("%w: syncfs of a kernel before 5.8 reports no failed write", errors.ErrUnsupported)
	}
	kind, err := fsType(fd)
	if err != nil {
		return err
	}
	switch kind {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC:
		return nil
	}
	return fmt.Errorf("%w: syncfs of a file system of type %#x is not relied upon", errors.ErrUnsupported, kind)
}

// fsType returns the magic number of a file's file system.
func fsType(fd int) (uint32, error) {
	var st unix.Statfs_t
	err := retry(func() error { return unix.Fstatfs(fd, &st) })
	return uint32(st.Type), err
}

var modernSyncfs = sync.OnceValue(func() bool {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return false
	}
	var major, minor int
	if n, _ := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); n != 2 {
		return false
	}
	return major > 5 || major == 5 && minor >= 8
})
