package groupcommit

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"shardlease/pkg/groupcommit/vfs"
)

// SyncDir is the directory barrier. An error is never swallowed; where the file system can't sync directories it
// matches ErrNotDurable besides its cause. An input/output error never does.
func SyncDir(fsys vfs.FS, dir string) error {
	err := fsys.SyncDir(dir)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) { // ENOTSUP, ENOSYS
		return fmt.Errorf("%w: %w", ErrNotDurable, err)
	}
	return err
}

// barrier is SyncDir after a change in dir: its failure leaves that change unknown.
func barrier(fsys vfs.FS, dir string) error {
	if err := SyncDir(fsys, dir); err != nil {
		return &BarrierError{Dir: dir, Err: err}
	}
	return nil
}

// MkdirAll creates dir and its missing parents, top-down, and syncs each new directory and then its parent, up to the
// first that existed. perm is subject to the umask. Nothing is synced when dir exists (assumption A5).
//
// A directory that somebody else creates meanwhile is synced like an own one. After a failed barrier the directory is
// removed again, if it can be, so that doing it again doesn't find it and take it for durable. An existing name that is no directory
// fails with ENOTDIR; a symbolic link to a directory is one.
func MkdirAll(fsys vfs.FS, dir string, perm fs.FileMode) error {
	dir = filepath.Clean(dir)
	var missing []string
	for {
		err := isDir(fsys, dir)
		if err == nil {
			break
		}
		parent := filepath.Dir(dir)
		if !errors.Is(err, fs.ErrNotExist) || parent == dir {
			return err
		}
		missing = append(missing, dir)
		dir = parent
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if err := mkdir(fsys, missing[i], perm); err != nil {
			return err
		}
	}
	return nil
}

func mkdir(fsys vfs.FS, dir string, perm fs.FileMode) error {
	err := fsys.Mkdir(dir, perm)
	created := err == nil
	if errors.Is(err, fs.ErrExist) {
		err = isDir(fsys, dir) // lost the race; the winner may not have synced yet
	}
	if err != nil {
		return err
	}
	err = barrier(fsys, dir)
	if err == nil {
		err = barrier(fsys, filepath.Dir(dir))
	}
	if err != nil && created {
		_ = fsys.Remove(dir) // else the next MkdirAll would find it and take it for durable
	}
	return err
}

// isDir returns nil for a directory and for a symbolic link to one.
func isDir(fsys vfs.FS, name string) error {
	info, err := fsys.Lstat(name)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		info, err = fsys.Lstat(name + "/.") // path resolution follows the link
		if err != nil {
			return &fs.PathError{Op: "mkdir", Path: name, Err: fmt.Errorf("symbolic link to no directory: %w", syscall.ENOTDIR)}
		}
	}
	if err == nil && !info.IsDir() {
		return &fs.PathError{Op: "mkdir", Path: name, Err: syscall.ENOTDIR}
	}
	return err
}

// Replace renames oldname to newname, whatever newname was (a symbolic link there is replaced, not followed). The
// caller has synced the content of oldname. The destination barrier comes before the source barrier: a power cut
// between the two may leave the object under both names, never under neither. If it has both names already, rename(2)
// does nothing and both stay: whoever repeats a Replace after a power cut removes oldname if it is still there.
func Replace(fsys vfs.FS, oldname, newname string) error {
	if err := rename(fsys, fsys.Rename, oldname, newname); err != nil {
		return err
	}
	return moved(fsys, oldname, newname)
}

// RenameNoReplace is Replace that fails with fs.ErrExist if newname exists, and with errors.ErrUnsupported where the
// kernel or the file system can't exclude that atomically. It never checks first and renames then.
func RenameNoReplace(fsys vfs.FS, oldname, newname string) error {
	if err := rename(fsys, fsys.RenameNoReplace, oldname, newname); err != nil {
		return err
	}
	return moved(fsys, oldname, newname)
}

func moved(fsys vfs.FS, oldname, newname string) error {
	src, dst := filepath.Dir(oldname), filepath.Dir(newname)
	if err := barrier(fsys, dst); err != nil || src == dst {
		return err // without the destination the source must not lose its name for good
	}
	return barrier(fsys, src)
}

// rename reports a failed rename as unknown if oldname is not there any more: a network file system may answer a
// repeated request with an error although the first one was done.
func rename(fsys vfs.FS, do func(oldname, newname string) error, oldname, newname string) error {
	err := do(oldname, newname)
	if err == nil {
		return nil
	}
	if _, lerr := fsys.Lstat(oldname); lerr != nil {
		return unknown(err)
	}
	return err
}

// Link gives oldname's file the second name newname, which must not exist (fs.ErrExist). The caller has synced the
// content.
func Link(fsys vfs.FS, oldname, newname string) error {
	if err := fsys.Link(oldname, newname); err != nil {
		if _, lerr := fsys.Lstat(newname); lerr == nil && !errors.Is(err, fs.ErrExist) {
			return unknown(err) // the name is there in spite of the error
		}
		return err
	}
	return barrier(fsys, filepath.Dir(newname))
}

// Remove removes a file or an empty directory. A name that does not exist is fs.ErrNotExist.
func Remove(fsys vfs.FS, name string) error {
	if err := remove(fsys, name); err != nil {
		return err
	}
	return barrier(fsys, filepath.Dir(name))
}

// remove reports a failed removal as unknown if the name is gone all the same. ErrNotExist says by itself that it is.
func remove(fsys vfs.FS, name string) error {
	err := fsys.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, lerr := fsys.Lstat(name); lerr != nil {
		return unknown(err)
	}
	return err
}

// RemoveAll removes dir and all that is in it, without following symbolic links, then syncs its parent. It stops at
// the first error. A dir that does not exist is not an error, and the parent is synced all the same, so that doing it
// again after a crash ends with the same promise. "", "/", "." and ".." are refused with fs.ErrInvalid.
func RemoveAll(fsys vfs.FS, dir string) error {
	switch filepath.Base(dir) {
	case ".", "..", "/": // Base("") is "."
		return &fs.PathError{Op: "removeall", Path: dir, Err: fs.ErrInvalid}
	}
	if err := removeTree(fsys, dir); err != nil {
		return err
	}
	return barrier(fsys, filepath.Dir(filepath.Clean(dir)))
}

func removeTree(fsys vfs.FS, name string) error {
	info, err := fsys.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		entries, err := fsys.ReadDir(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			if err := removeTree(fsys, filepath.Join(name, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
