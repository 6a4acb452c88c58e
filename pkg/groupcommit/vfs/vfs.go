// Package vfs is the file-system seam under groupcommit and lease: the few operations that durable publication needs.
//
// OS is the real file system. tracefs, faultfs and crashfs implement or wrap FS for anyone's tests: they record,
// fail, delay or crash any operation.
package vfs

import (
	"errors"
	"io"
	"io/fs"
)

// FS does what its names say and nothing more: no syncs on the side, no retries but of interrupted system calls. Names
// are passed on as given. Errors are *fs.PathError or *os.LinkError, so that errors.Is works with the io/fs sentinels and with errno values.
// All methods may be called concurrently.
type FS interface {
	// OpenFile opens with the os.O_* flags and with O_CLOEXEC and O_NOFOLLOW added. perm is subject to the umask.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// Rename replaces newname if it exists.
	Rename(oldname, newname string) error
	// RenameNoReplace fails with fs.ErrExist if newname exists, and with errors.ErrUnsupported where the kernel or the
	// file system can't exclude that atomically.
	RenameNoReplace(oldname, newname string) error
	// Exchange swaps two names atomically, or fails with errors.ErrUnsupported.
	Exchange(name1, name2 string) error
	Link(oldname, newname string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	Mkdir(name string, perm fs.FileMode) error
	// SyncDir is the directory barrier: fsync of the directory itself, or more where that does not suffice. When it returns nil, every name
	// changed in the directory before the call survives a power cut.
	SyncDir(name string) error
	// ReadDir lists a directory, sorted by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	Lstat(name string) (fs.FileInfo, error)
	// TryLock takes those of the exclusive locks number keys of the lock file name that are free, creating the file if needed,
	// or fails with ErrLocked at once if none is. Closing the result releases them; so does the death of the process. Each call
	// stands alone, so goroutines of one process exclude each other too; equal keys of one call are one lock. Lock files are
	// never removed.
	TryLock(name string, keys ...uint64) (Lock, error)
}

// Lock is what a TryLock has taken.
type Lock interface {
	io.Closer
	Held(i int) bool // whether the i-th of the keys was free; of one key, it was
}

// File is an open file. Methods of one File must not be called concurrently.
type File interface {
	io.Reader
	io.Writer
	io.WriterAt
	io.Closer
	Stat() (fs.FileInfo, error)
	Sync() error     // fsync: content and metadata
	Datasync() error // fdatasync: content, and the metadata needed to read it
	// SyncFS writes back everything dirty on the file system of this file, as if each of its files and directories were synced (syncfs(2)).
	// It fails if any write-back there has failed since this File was opened; so whoever means to rely on it opens
	// the file before writing. Where the system would not tell, it is errors.ErrUnsupported and nothing is done.
	SyncFS() error
	// StartSync begins to write back the dirty content and does not wait (sync_file_range(2)), so that a later sync has less to do. It
	// is a hint: it promises nothing, and if a write-back fails it is the later sync that says so.
	StartSync()
}

var (
	// ErrLocked is returned by TryLock when somebody else holds the lock.
	ErrLocked = errors.New("locked by another holder")
	// ErrNotRegular is returned by TryLock when name exists and is not a regular file.
	ErrNotRegular = errors.New("not a regular file")
)

// ReadFile reads the whole file, or fails with an error matching ErrTooLarge if it is longer than limit bytes.
func ReadFile(fsys FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.OpenFile(name, 0, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // nothing was written
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, &fs.PathError{Op: "read", Path: name, Err: ErrTooLarge}
	}
	return data, nil
}

// ErrTooLarge is returned by ReadFile for a file over its limit.
var ErrTooLarge = errors.New("file is larger than the limit")
