package groupcommit

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"shardlease/pkg/groupcommit/vfs"
)

// tempSuffix makes the one temp name of a record. It is the same in every process, so a killed writer leaves at most
// one file per record, and two writers of one record meet at O_EXCL instead of mixing their contents.
const tempSuffix = ".tmp"

// Stage writes data to the temp file of name (name + ".tmp" in the same directory) and syncs it; renaming the result
// to name publishes it. perm is subject to the umask. The base name leaves room for the suffix: it has at most 251 bytes.
//
// The caller holds the lock of the record called name. A temp file found there is therefore the garbage of a killed
// writer: it is removed and created anew, never opened; a symbolic link is removed, not followed; a directory is an
// error. On failure the temp file is removed as far as possible and the first error is returned. A failed sync is final
// for that file: the kernel may have dropped the pages and call the next sync clean.
func Stage(fsys vfs.FS, name string, data []byte, perm fs.FileMode) (tmp string, err error) {
	tmp = name + tempSuffix
	f, err := stage(fsys, tmp, data, perm)
	if err != nil {
		return "", err
	}
	if err := finish(fsys, tmp, f, f.Sync()); err != nil {
		return "", err
	}
	return tmp, nil
}

// stage creates the temp file and writes it. It is not yet durable.
func stage(fsys vfs.FS, tmp string, data []byte, perm fs.FileMode) (vfs.File, error) {
	f, err := create(fsys, tmp, perm)
	if errors.Is(err, fs.ErrExist) {
		if err = removeLeftover(fsys, tmp); err == nil {
			f, err = create(fsys, tmp, perm)
		}
	}
	if err != nil {
		return nil, err
	}
	n, err := f.Write(data)
	if err := whole(tmp, n, len(data), err); err != nil {
		return nil, finish(fsys, tmp, f, err)
	}
	return f, nil
}

func whole(name string, n, size int, err error) error {
	if err == nil && n < size {
		return &fs.PathError{Op: "write", Path: name, Err: io.ErrShortWrite}
	}
	return err
}

// finish closes a temp file that was written and synced, and removes it if any of that failed.
func finish(fsys vfs.FS, tmp string, f vfs.File, err error) error {
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = fsys.Remove(tmp) // the next Stage of this record tries again
	}
	return err
}

func create(fsys vfs.FS, name string, perm fs.FileMode) (vfs.File, error) {
	return fsys.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
}

func removeLeftover(fsys vfs.FS, tmp string) error {
	info, err := fsys.Lstat(tmp)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() { // Remove would take an empty one
		return &fs.PathError{Op: "stage", Path: tmp, Err: syscall.EISDIR}
	}
	return fsys.Remove(tmp)
}

// WriteFile replaces the file called name by one with the given content, durably. It is Stage and Replace: the caller
// holds the record's lock, and a symbolic link called name is replaced, not followed.
func WriteFile(fsys vfs.FS, name string, data []byte, perm fs.FileMode) error {
	tmp, err := Stage(fsys, name, data, perm)
	if err != nil {
		return err
	}
	if err := switchTo(fsys, tmp, name); err != nil {
		return err
	}
	return barrier(fsys, filepath.Dir(name))
}

// switchTo renames a staged file into place (G2). The barrier is left to the caller.
func switchTo(fsys vfs.FS, tmp, name string) error {
	err := rename(fsys, fsys.Rename, tmp, name)
	if err != nil {
		_ = fsys.Remove(tmp) // garbage, if it is still there
	}
	return err
}
