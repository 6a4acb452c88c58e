package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// OS is the file system of the operating system (Linux).
//
// An interrupted system call (EINTR) is repeated, except Exchange: repeating a swap that did happen would undo it.
var OS FS = osFS{}

type osFS struct{}

// Rename calls rename(2) itself: os.Rename looks at newname first, one more system call for each record.
func (osFS) Rename(oldname, newname string) error {
	err := retry(func() error { return unix.Rename(oldname, newname) })
	if err != nil {
		return &os.LinkError{Op: "rename", Old: oldname, New: newname, Err: err}
	}
	return nil
}

func (osFS) RenameNoReplace(oldname, newname string) error {
	return renameFlags("rename-noreplace", oldname, newname, retry(func() error {
		return unix.Renameat2(unix.AT_FDCWD, oldname, unix.AT_FDCWD, newname, unix.RENAME_NOREPLACE)
	}))
}

func (osFS) Exchange(name1, name2 string) error {
	return renameFlags("exchange", name1, name2,
		unix.Renameat2(unix.AT_FDCWD, name1, unix.AT_FDCWD, name2, unix.RENAME_EXCHANGE))
}

// renameFlags wraps an error of renameat2. A file system that does not know a flag answers EINVAL (rename(2)).
func renameFlags(op, oldname, newname string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL):
		err = fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	return &os.LinkError{Op: op, Old: oldname, New: newname, Err: err}
}

func (osFS) Link(oldname, newname string) error        { return os.Link(oldname, newname) }
func (osFS) Remove(name string) error                  { return os.Remove(name) }
func (osFS) Mkdir(name string, perm fs.FileMode) error { return os.Mkdir(name, perm) }
func (osFS) Lstat(name string) (fs.FileInfo, error)    { return os.Lstat(name) }
func (osFS) ReadDir(name string) (d []fs.DirEntry, _ error) {
	d, err := os.ReadDir(name)
	if err != nil {
		return nil, err // half a listing is none
	}
	return d, nil
}

// SyncDir opens the directory once more after the sync, as a question to XFS. That calls fsync(2) of a directory a success when
// somebody else's failed write has shut its log down after the directory was changed: the change is dropped, whereupon there is nothing left
// to sync. Calls made after the shutdown are refused, if they are of the kind that looks; open(2) is.
//
// On btrfs syncfs(2) comes before it, which commits the transaction. With Linux 6.18, an fsync of a directory that races a commit, somebody
// else's syncfs for one, can return before its names are durable: the powercut experiment lost acknowledged renewals that way
// in half of its recordings, and also when fsync was followed by a wait for the commit under way. The fsync then is a question, too: before
// Linux 5.17 syncfs does not say that a commit has failed.
func (osFS) SyncDir(name string) error {
	return syncFD("fsync", name, unix.O_DIRECTORY, func(fd int) error {
		kind, err := fsType(fd)
		if err == nil && kind == unix.BTRFS_SUPER_MAGIC {
			err = unix.Syncfs(fd)
		}
		if err == nil {
			err = unix.Fsync(fd)
		}
		if err != nil {
			return err
		}
		again, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		_ = unix.Close(again) // nothing was written
		return nil
	})
}

// syncFD opens name, syncs it, and closes it also after a failure; no error is dropped.
func syncFD(op, name string, flag int, sync func(fd int) error) error {
	fd, err := open(name, unix.O_RDONLY|flag, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	err = retry(func() error { return sync(fd) })
	if cerr := unix.Close(fd); cerr != nil && err == nil {
		op, err = "close", cerr
	} else if cerr != nil {
		err = errors.Join(err, cerr)
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

// TryLock takes open file description locks (fcntl(2), F_OFD_SETLK) of the bytes at the offsets keys, without their top bits.
// Process-owned locks would not do: they exclude no goroutine, and closing any descriptor of the file drops them.
func (osFS) TryLock(name string, keys ...uint64) (Lock, error) {
	fd, err := open(name, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW, 0o666)
	if err != nil {
		if err == unix.EISDIR || err == unix.ELOOP {
			err = fmt.Errorf("%w: %w", ErrNotRegular, err)
		}
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	l := &osLock{name: name}
	err = l.take(fd, keys)
	if err != nil {
		_ = unix.Close(fd) // releases what is held; the first error counts
		return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	l.fd.Store(int64(fd))
	return l, nil
}

type osLock struct {
	name   string
	failed []int        // indices of the keys that were not free
	fd     atomic.Int64 // -1 once closed: the number may be somebody else's by then
}

func (l *osLock) take(fd int, keys []uint64) error {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return ErrNotRegular
	}
	for i, key := range keys {
		err := setLock(fd, unix.Flock_t{Type: unix.F_WRLCK, Start: int64(key &^ (1 << 63)), Len: 1})
		if err == unix.EACCES || err == unix.EAGAIN {
			l.failed = append(l.failed, i)
		} else if err != nil {
			return err
		}
	}
	if len(l.failed) == len(keys) {
		return ErrLocked
	}
	return nil
}

func (l *osLock) Held(i int) bool {
	_, found := slices.BinarySearch(l.failed, i)
	return !found
}

func setLock(fd int, lock unix.Flock_t) error {
	return retry(func() error { return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &lock) })
}

// Close unlocks before it closes. Between fork and exec a child has a copy of the descriptor in spite of O_CLOEXEC,
// and closing ours would leave the locks with that copy for as long as the exec takes.
func (l *osLock) Close() error {
	fd := int(l.fd.Swap(-1))
	if fd < 0 {
		return &fs.PathError{Op: "unlock", Path: l.name, Err: fs.ErrClosed}
	}
	_ = setLock(fd, unix.Flock_t{Type: unix.F_UNLCK}) // all of the file; the close releases it in any case
	if err := unix.Close(fd); err != nil {
		return &fs.PathError{Op: "unlock", Path: l.name, Err: err}
	}
	return nil
}

func open(name string, flag int, perm uint32) (fd int, err error) {
	err = retry(func() error {
		fd, err = unix.Open(name, flag|unix.O_CLOEXEC, perm)
		return err
	})
	return fd, err
}

// retry repeats a call that a signal interrupted. close(2) must not come here: Linux has closed the descriptor even then.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
