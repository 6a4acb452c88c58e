package vfs

import (
	"io/fs"
)

// Op names an operation of FS, File or a lock.
type Op string

// The operations, as traces spell them and fault rules match them.
const (
	OpOpen            Op = "open"
	OpRead            Op = "read"
	OpWrite           Op = "write"
	OpWriteAt         Op = "write-at"
	OpStat            Op = "stat"
	OpSync            Op = "sync"
	OpDatasync        Op = "datasync"
	OpClose           Op = "close"
	OpRename          Op = "rename"
	OpRenameNoReplace Op = "rename-noreplace"
	OpExchange        Op = "exchange"
	OpLink            Op = "link"
	OpRemove          Op = "remove"
	OpMkdir           Op = "mkdir"
	OpSyncDir         Op = "syncdir"
	OpSyncFS          Op = "syncfs"
	OpReadDir         Op = "readdir"
	OpLstat           Op = "lstat"
	OpLock            Op = "lock"
	OpUnlock          Op = "unlock"
)

// Call is one operation on its way through Intercept.
type Call struct {
	Op      Op
	Name    string // of a File: the name it was opened with
	NewName string // second name of Rename, RenameNoReplace, Exchange, Link
	Flag    int    // OpOpen
	Data    []byte // OpRead, OpWrite, OpWriteAt: the buffer; it may be shortened before the operation, not changed
	N       int    // OpRead, OpWrite, OpWriteAt: bytes done, set by the operation
}

// Intercept returns fsys with every operation going through around, which calls do to have it done, or doesn't, and
// returns the error that the caller sees. around may be called concurrently. An open file or lock that the caller does
// not get because of an error from around is closed.
func Intercept(fsys FS, around func(c *Call, do func() error) error) FS {
	return &intercepted{fsys, around}
}

type intercepted struct {
	fsys   FS
	around func(c *Call, do func() error) error
}

func (x *intercepted) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	var f File
	err := x.around(&Call{Op: OpOpen, Name: name, Flag: flag}, func() (err error) {
		f, err = x.fsys.OpenFile(name, flag, perm)
		return err
	})
	if err != nil {
		if f != nil {
			_ = f.Close() // the caller sees the error of around
		}
		return nil, err
	}
	return &interceptedFile{f, name, x.around}, nil
}

func (x *intercepted) two(op Op, oldname, newname string, do func(oldname, newname string) error) error {
	return x.around(&Call{Op: op, Name: oldname, NewName: newname}, func() error { return do(oldname, newname) })
}

func (x *intercepted) one(op Op, name string, do func(name string) error) error {
	return x.around(&Call{Op: op, Name: name}, func() error { return do(name) })
}

func (x *intercepted) Rename(oldname, newname string) error {
	return x.two(OpRename, oldname, newname, x.fsys.Rename)
}

func (x *intercepted) RenameNoReplace(oldname, newname string) error {
	return x.two(OpRenameNoReplace, oldname, newname, x.fsys.RenameNoReplace)
}

func (x *intercepted) Exchange(name1, name2 string) error {
	return x.two(OpExchange, name1, name2, x.fsys.Exchange)
}

func (x *intercepted) Link(oldname, newname string) error {
	return x.two(OpLink, oldname, newname, x.fsys.Link)
}

func (x *intercepted) Remove(name string) error  { return x.one(OpRemove, name, x.fsys.Remove) }
func (x *intercepted) SyncDir(name string) error { return x.one(OpSyncDir, name, x.fsys.SyncDir) }

func (x *intercepted) Mkdir(name string, perm fs.FileMode) error {
	return x.one(OpMkdir, name, func(name string) error { return x.fsys.Mkdir(name, perm) })
}

func (x *intercepted) ReadDir(name string) (entries []fs.DirEntry, err error) {
	err = x.one(OpReadDir, name, func(name string) (err error) {
		entries, err = x.fsys.ReadDir(name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return entries, nil
}

func (x *intercepted) Lstat(name string) (info fs.FileInfo, err error) {
	err = x.one(OpLstat, name, func(name string) (err error) {
		info, err = x.fsys.Lstat(name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return info, nil
}

func (x *intercepted) TryLock(name string, keys ...uint64) (Lock, error) {
	var lock Lock
	err := x.one(OpLock, name, func(name string) (err error) {
		lock, err = x.fsys.TryLock(name, keys...)
		return err
	})
	if err != nil {
		if lock != nil {
			_ = lock.Close() // as for OpenFile
		}
		return nil, err
	}
	return &interceptedLock{lock, name, x}, nil
}

type interceptedLock struct {
	Lock
	name string
	x    *intercepted
}

func (l *interceptedLock) Close() error {
	return l.x.one(OpUnlock, l.name, func(string) error { return l.Lock.Close() })
}

type interceptedFile struct {
	f      File
	name   string
	around func(c *Call, do func() error) error
}

func (x *interceptedFile) bytes(op Op, p []byte, do func(p []byte) (int, error)) (int, error) {
	c := &Call{Op: op, Name: x.name, Data: p}
	err := x.around(c, func() (err error) {
		c.N, err = do(c.Data)
		return err
	})
	return c.N, err
}

func (x *interceptedFile) one(op Op, do func() error) error {
	return x.around(&Call{Op: op, Name: x.name}, do)
}

func (x *interceptedFile) Read(p []byte) (int, error)  { return x.bytes(OpRead, p, x.f.Read) }
func (x *interceptedFile) Write(p []byte) (int, error) { return x.bytes(OpWrite, p, x.f.Write) }

func (x *interceptedFile) WriteAt(p []byte, off int64) (int, error) {
	return x.bytes(OpWriteAt, p, func(p []byte) (int, error) { return x.f.WriteAt(p, off) })
}

func (x *interceptedFile) Sync() error     { return x.one(OpSync, x.f.Sync) }
func (x *interceptedFile) Datasync() error { return x.one(OpDatasync, x.f.Datasync) }
func (x *interceptedFile) SyncFS() error   { return x.one(OpSyncFS, x.f.SyncFS) }
func (x *interceptedFile) Close() error    { return x.one(OpClose, x.f.Close) }

// StartSync has no outcome that could be another one.
func (x *interceptedFile) StartSync() { x.f.StartSync() }

func (x *interceptedFile) Stat() (info fs.FileInfo, err error) {
	err = x.one(OpStat, func() (err error) {
		info, err = x.f.Stat()
		return err
	})
	if err != nil {
		return nil, err
	}
	return info, nil
}
