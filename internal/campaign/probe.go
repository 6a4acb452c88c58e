package campaign

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
)

// Check is one finding about a file system.
type Check struct {
	Name     string  `json:"name"`
	OK       bool    `json:"ok"`
	Required bool    `json:"required"`
	Error    string  `json:"error"`
	TimeMS   float64 `json:"time_ms"`
	err      error
}

// ErrUnsuitable says that a file system lacks something that durability or exclusion needs.
var ErrUnsuitable = errors.New("file system is not suitable")

// Probe tries what a campaign does to a file system, in the directory dir, which is its own: it is
// made anew and removed again. It can't see whether the disk lies about
// syncs, or whether locks of different machines exclude each other.
func Probe(fsys vfs.FS, dir string, now func() time.Time) []Check {
	p := &probe{fs: fsys, dir: dir, now: now}
	p.try("make directory durably", true, func() error {
		if err := groupcommit.RemoveAll(fsys, dir); err != nil { // what a probe that was killed has left
			return err
		}
		return groupcommit.MkdirAll(fsys, p.at("sub"), 0o700)
	})
	if err := Unsuitable(p.checks); err != nil && !errors.Is(err, ErrUnsuitable) {
		return p.checks // nothing can be written: all others would fail for lack of the directory
	}
	p.try("write and sync file", true, func() error { return groupcommit.WriteFile(fsys, p.at("file"), []byte("one"), 0o600) })
	p.try("sync directory", true, func() error { return groupcommit.SyncDir(fsys, dir) })
	p.try("replace by rename", true, func() error {
		return errors.Join(groupcommit.WriteFile(fsys, p.at("file"), []byte("two"), 0o600), p.expect("file", "two"))
	})
	p.try("rename to another directory", true, func() error {
		return errors.Join(groupcommit.Replace(fsys, p.at("file"), p.at("sub/file")), p.expect("sub/file", "two"))
	})
	p.try("rename without replacing", true, p.noReplace)
	p.try("hard link", true, func() error { return groupcommit.Link(fsys, p.at("sub/file"), p.at("link")) })
	p.try("exchange two names", false, p.exchange)
	p.try("exclusive lock", true, p.lock)
	p.try("remove durably", true, func() error { return groupcommit.RemoveAll(fsys, dir) })
	return p.checks
}

// Unsuitable is nil if every required check succeeded. It matches ErrUnsuitable unless the first failure says that the directory can't be written
// at all, or that the disk is full.
func Unsuitable(checks []Check) error {
	var missing []string
	var first error
	for _, c := range checks {
		if !c.Required || c.OK {
			continue
		}
		missing = append(missing, c.Name+": "+c.Error)
		if first == nil {
			first = c.err
		}
	}
	if len(missing) == 0 {
		return nil
	}
	for _, trouble := range []error{fs.ErrPermission, fs.ErrNotExist, syscall.EROFS, syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(first, trouble) {
			return first
		}
	}
	return fmt.Errorf("%w: %s; use another one, and see shardlease probe DIR", ErrUnsuitable, strings.Join(missing, "; "))
}

type probe struct {
	fs     vfs.FS
	dir    string
	now    func() time.Time
	checks []Check
}

func (p *probe) at(name string) string { return filepath.Join(p.dir, name) }

func (p *probe) try(name string, required bool, f func() error) {
	begin := p.now()
	err := f()
	c := Check{Name: name, Required: required, OK: err == nil, TimeMS: float64(p.now().Sub(begin).Microseconds()) / 1000, err: err}
	if err != nil {
		c.Error = OneLine(err.Error())
	}
	p.checks = append(p.checks, c)
}

func (p *probe) expect(name, content string) error {
	data, err := vfs.ReadFile(p.fs, p.at(name), 100)
	if err == nil && string(data) != content {
		err = fmt.Errorf("%s reads %q instead of %q", name, data, content)
	}
	return err
}

func (p *probe) noReplace() error {
	if err := groupcommit.WriteFile(p.fs, p.at("other"), []byte("other"), 0o600); err != nil {
		return err
	}
	if err := groupcommit.RenameNoReplace(p.fs, p.at("other"), p.at("sub/file")); !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("a name that exists is not refused: %w", errors.Join(err, p.expect("sub/file", "two")))
	}
	return groupcommit.RenameNoReplace(p.fs, p.at("other"), p.at("sub/other"))
}

func (p *probe) exchange() error {
	return errors.Join(p.fs.Exchange(p.at("sub/file"), p.at("sub/other")), p.expect("sub/file", "other"))
}

func (p *probe) lock() error {
	first, err := p.fs.TryLock(p.at("lock"), 1)
	if err != nil {
		return err
	}
	second, err := p.fs.TryLock(p.at("lock"), 1)
	if err == nil {
		err = errors.Join(second.Close(), errors.New("two holders at once"))
	} else if errors.Is(err, vfs.ErrLocked) {
		err = nil
	}
	return errors.Join(err, first.Close())
}
