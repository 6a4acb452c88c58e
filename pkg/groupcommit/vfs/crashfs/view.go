package crashfs

import (
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"syscall"
	"time"

	"shardlease/pkg/groupcommit/vfs"
)

// view is a process's sight of a disk. It implements vfs.FS for FS and Process.
type view struct {
	d    *disk
	proc *proc
}

// do runs one operation under the disk's lock.
func (v view) do(op vfs.Op, name, newname string, run func() error) error {
	v.d.mu.Lock()
	defer v.d.mu.Unlock()
	if v.proc.dead {
		return wrap(op, name, newname, ErrKilled)
	}
	return wrap(op, name, newname, run())
}

func wrap(op vfs.Op, name, newname string, err error) error {
	switch {
	case err == nil, err == io.EOF:
		return err
	case newname != "":
		return &os.LinkError{Op: string(op), Old: name, New: newname, Err: err}
	}
	return &fs.PathError{Op: string(op), Path: name, Err: err}
}

const (
	accessMask = syscall.O_RDONLY | syscall.O_WRONLY | syscall.O_RDWR
	knownFlags = accessMask | os.O_CREATE | os.O_EXCL | os.O_TRUNC | os.O_APPEND |
		syscall.O_CLOEXEC | syscall.O_NOFOLLOW | syscall.O_DIRECTORY | syscall.O_LARGEFILE
)

// OpenFile fails with EINVAL for flags outside the model, such as O_SYNC.
func (v view) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f := &file{view: v, name: name, flag: flag}
	err := v.do(vfs.OpOpen, name, "", func() error {
		p, err := v.d.find(name)
		if err != nil {
			return err
		}
		f.ino, err = v.d.openInode(p, flag, perm)
		if err != nil {
			return err
		}
		v.keep(f)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (d *disk) openInode(p place, flag int, perm fs.FileMode) (int, error) {
	access := flag & accessMask
	switch {
	case flag&^knownFlags != 0:
		return 0, syscall.EINVAL
	case p.ino == 0 && flag&os.O_CREATE == 0:
		return 0, syscall.ENOENT
	case p.ino == 0:
		ino := d.add(d.newInode(false, perm))
		d.names(p.dir, "create "+p.base, nil, entry{p.base, ino})
		return ino, nil
	case flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
		return 0, syscall.EEXIST
	}
	in := d.inodes[p.ino]
	switch {
	case in.dir && (access != os.O_RDONLY || flag&(os.O_CREATE|os.O_TRUNC) != 0):
		return 0, syscall.EISDIR
	case !in.dir && flag&syscall.O_DIRECTORY != 0:
		return 0, syscall.ENOTDIR
	case flag&os.O_TRUNC != 0 && len(in.data) > 0:
		in = d.edit(p.ino)
		in.change(write{truncate: true})
		in.mtime = d.now()
	}
	return p.ino, nil
}

// keep notes an open file or a lock as the process's. Caller holds mu.
func (v view) keep(h handle) {
	v.d.hold(h.inode())
	v.proc.held[h] = struct{}{}
}

// letGo is the end of an open file or lock; it fails if the process has it no more. Caller holds mu.
func (v view) letGo(h handle) error {
	if _, ok := v.proc.held[h]; !ok {
		return fs.ErrClosed
	}
	delete(v.proc.held, h)
	v.d.drop(h)
	return nil
}

func (v view) Rename(oldname, newname string) error {
	return v.do(vfs.OpRename, oldname, newname, func() error { return v.d.rename(oldname, newname, true) })
}

func (v view) RenameNoReplace(oldname, newname string) error {
	return v.do(vfs.OpRenameNoReplace, oldname, newname, func() error { return v.d.rename(oldname, newname, false) })
}

func (v view) Exchange(name1, name2 string) error {
	return v.do(vfs.OpExchange, name1, name2, func() error { return v.d.exchange(name1, name2) })
}

func (v view) Link(oldname, newname string) error {
	return v.do(vfs.OpLink, oldname, newname, func() error {
		from, err := v.d.existing(oldname)
		if err != nil {
			return err
		}
		to, err := v.d.find(newname)
		switch {
		case err != nil:
			return err
		case to.ino != 0:
			return syscall.EEXIST
		case v.d.inodes[from.ino].dir:
			return syscall.EPERM
		}
		v.d.names(to.dir, "link "+oldname+" to "+to.base, nil, entry{to.base, from.ino})
		return nil
	})
}

func (v view) Remove(name string) error {
	return v.do(vfs.OpRemove, name, "", func() error {
		p, err := v.d.existing(name)
		if err != nil {
			return err
		}
		in := v.d.inodes[p.ino]
		switch {
		case p.dir == 0:
			return syscall.EBUSY
		case in.dir && len(in.names) > 0:
			return syscall.ENOTEMPTY
		}
		v.d.names(p.dir, "remove "+p.base, []string{p.base}, entry{p.base, 0})
		return nil
	})
}

func (v view) Mkdir(name string, perm fs.FileMode) error {
	return v.do(vfs.OpMkdir, name, "", func() error {
		p, err := v.d.find(name)
		if err != nil {
			return err
		}
		if p.ino != 0 {
			return syscall.EEXIST
		}
		ino := v.d.add(v.d.newInode(true, perm))
		v.d.names(p.dir, "mkdir "+p.base, nil, entry{p.base, ino})
		return nil
	})
}

func (v view) SyncDir(name string) error {
	return v.do(vfs.OpSyncDir, name, "", func() error {
		p, err := v.d.existing(name)
		if err != nil {
			return err
		}
		if !v.d.inodes[p.ino].dir {
			return syscall.ENOTDIR
		}
		v.d.sync(p.ino, true)
		return nil
	})
}

// SyncFS makes everything durable that was done, by whomever. Programs do it through an open file.
func (v view) SyncFS(name string) error {
	return v.do(vfs.OpSyncFS, name, "", func() error {
		_, err := v.d.existing(name)
		if err == nil {
			v.d.syncAll(true)
		}
		return err
	})
}

func (v view) ReadDir(name string) ([]fs.DirEntry, error) {
	var list []fs.DirEntry
	err := v.do(vfs.OpReadDir, name, "", func() error {
		p, err := v.d.existing(name)
		if err != nil {
			return err
		}
		in := v.d.inodes[p.ino]
		if !in.dir {
			return syscall.ENOTDIR
		}
		list = make([]fs.DirEntry, 0, len(in.names))
		for _, n := range slices.Sorted(maps.Keys(in.names)) {
			list = append(list, fs.FileInfoToDirEntry(v.d.info(n, in.names[n])))
		}
		return nil
	})
	return list, err
}

func (v view) Lstat(name string) (fs.FileInfo, error) {
	var i fs.FileInfo
	err := v.do(vfs.OpLstat, name, "", func() error {
		p, err := v.d.existing(name)
		if err == nil {
			i = v.d.info(path.Base(name), p.ino)
		}
		return err
	})
	return i, err
}

// info is a fs.FileInfo; its fields are those of the moment of the call.
type info struct {
	name string
	size int64
	mode fs.FileMode
	time time.Time
}

func (d *disk) info(name string, ino int) fs.FileInfo {
	in := d.inodes[ino]
	i := info{name: name, size: int64(len(in.data)), mode: in.perm, time: in.mtime}
	if in.dir {
		i.mode |= fs.ModeDir
	}
	return i
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return i.time }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (i info) Sys() any           { return nil }
func (i info) String() string     { return fs.FormatFileInfo(i) }
