package crashfs_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
)

// side is one of the two file systems under comparison, with what the test holds of it.
type side struct {
	fsys  vfs.FS
	root  string // names are relative to it
	files []vfs.File
	locks []io.Closer
}

func (s *side) path(name string) string { return s.root + "/" + name }

// outcome is an operation's visible result with paths left out.
func outcome(err error, result ...any) string {
	return fmt.Sprint(class(err), " ", fmt.Sprint(result...))
}

// class reduces an error to what callers may rely on: its type and what it matches.
func class(err error) string {
	if err == nil || err == io.EOF {
		return fmt.Sprint(err)
	}
	for _, e := range []error{vfs.ErrLocked, vfs.ErrNotRegular, fs.ErrClosed} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	var errno syscall.Errno
	var path *fs.PathError
	var link *os.LinkError
	errors.As(err, &errno)
	return fmt.Sprintf("errno %d %v, path %v link %v", int(errno), errno, errors.As(err, &path), errors.As(err, &link))
}

func (s *side) open(name string, flag int) string {
	f, err := s.fsys.OpenFile(s.path(name), flag, 0o644)
	if err == nil {
		s.files = append(s.files, f)
	}
	return outcome(err)
}

func (s *side) lock(name string, keys ...uint64) string {
	l, err := s.fsys.TryLock(s.path(name), keys...)
	if err != nil {
		return outcome(err)
	}
	s.locks = append(s.locks, l)
	var held []any
	for i := range keys {
		held = append(held, l.Held(i))
	}
	return outcome(nil, held...)
}

func (s *side) read(i, n int) string {
	buf := make([]byte, n)
	got, err := s.files[i].Read(buf)
	return outcome(err, got, string(buf[:max(got, 0)]))
}

func (s *side) list(name string) string {
	list, err := s.fsys.ReadDir(s.path(name))
	var names []string
	for _, e := range list {
		names = append(names, fmt.Sprint(e.Name(), e.IsDir()))
	}
	return outcome(err, strings.Join(names, " "))
}

func (s *side) lstat(name string) string {
	i, err := s.fsys.Lstat(s.path(name))
	return outcome(err, describeInfo(i))
}

func describeInfo(i fs.FileInfo) string {
	if i == nil {
		return ""
	}
	if i.IsDir() {
		return i.Name() + "/" // sizes and modes of directories are the file system's own
	}
	return fmt.Sprint(i.Name(), " ", i.Size(), " ", i.Mode()&0o700) // the umask of the test is not the model's
}

func (s *side) close() {
	for _, f := range s.files {
		_ = f.Close() // may be closed already
	}
	for _, l := range s.locks {
		_ = l.Close()
	}
}

var (
	// Short names on few levels, so that operations meet; one is too long (NAME_MAX).
	someNames = []string{"a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "e", "missing/a", "a/b", strings.Repeat("n", 300)}
	someFlags = []int{
		os.O_RDONLY, os.O_WRONLY | os.O_CREATE | os.O_EXCL, os.O_RDWR | os.O_CREATE, os.O_WRONLY | os.O_CREATE | os.O_TRUNC,
		os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_TRUNC, os.O_WRONLY, syscall.O_DIRECTORY,
	}
)

// Random sequences of operations have the same results and the same errors on vfs.OS. Left out are SyncFS, which would
// flush the whole disk of whoever runs the test, and moves of directories into others, which the model refuses by
// design.
func TestCrashfsBehavesLikeTheOperatingSystem(t *testing.T) {
	base := t.TempDir()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		real := &side{fsys: vfs.OS, root: filepath.Join(base, fmt.Sprint(run))}
		model := &side{fsys: crashfs.New(), root: "/root"}
		defer real.close()
		for _, s := range []*side{real, model} {
			if err := s.fsys.Mkdir(s.root, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			do := step(t, real)
			if r, m := do(real), do(model); r != m {
				t.Fatalf("vfs.OS: %s\ncrashfs: %s", r, m)
			}
		}
		for _, name := range []string{"", "d", "d/e", "e"} {
			if r, m := real.list(name), model.list(name); r != m {
				t.Fatalf("listing of %q\nvfs.OS: %s\ncrashfs: %s", name, r, m)
			}
		}
	})
}

// step draws one operation.
func step(t *rapid.T, real *side) func(*side) string {
	name := rapid.SampledFrom(someNames)
	switch call := rapid.SampledFrom([]string{"open", "open", "file", "file", "file", "rename", "noreplace", "exchange", "link",
		"remove", "mkdir", "list", "lstat", "syncdir", "lock", "unlock"}).Draw(t, "call"); call {
	case "open":
		n, flag := name.Draw(t, "name"), rapid.SampledFrom(someFlags).Draw(t, "flag")
		return func(s *side) string { return s.open(n, flag) }
	case "file":
		return fileStep(t, real)
	case "rename", "noreplace", "exchange", "link":
		return moveStep(t, call, name.Draw(t, "from"), name.Draw(t, "to"), real)
	case "remove":
		n := name.Draw(t, "name")
		return func(s *side) string { return outcome(s.fsys.Remove(s.path(n))) }
	case "mkdir":
		n := name.Draw(t, "name")
		return func(s *side) string { return outcome(s.fsys.Mkdir(s.path(n), 0o755)) }
	case "list":
		n := name.Draw(t, "name")
		return func(s *side) string { return s.list(n) }
	case "lstat":
		n := name.Draw(t, "name")
		return func(s *side) string { return s.lstat(n) }
	case "syncdir":
		n := name.Draw(t, "name")
		return func(s *side) string { return outcome(s.fsys.SyncDir(s.path(n))) }
	case "lock":
		n, keys := name.Draw(t, "name"), rapid.SliceOfN(rapid.SampledFrom([]uint64{0, 1, 2, 1 << 63, 1<<63 + 1}), 1, 3).Draw(t, "keys")
		return func(s *side) string { return s.lock(n, keys...) }
	default:
		if len(real.locks) == 0 {
			return func(*side) string { return "" }
		}
		i := rapid.IntRange(0, len(real.locks)-1).Draw(t, "lock")
		return func(s *side) string { return outcome(s.locks[i].Close()) }
	}
}

func moveStep(t *rapid.T, call, from, to string, real *side) func(*side) string {
	if call != "link" && filepath.Dir(from) != filepath.Dir(to) {
		for _, n := range []string{from, to} {
			if i, err := os.Lstat(real.path(n)); err == nil && i.IsDir() {
				return func(*side) string { return "" }
			}
		}
	}
	return func(s *side) string {
		do := map[string]func(string, string) error{"rename": s.fsys.Rename, "noreplace": s.fsys.RenameNoReplace,
			"exchange": s.fsys.Exchange, "link": s.fsys.Link}[call]
		return outcome(do(s.path(from), s.path(to)))
	}
}

// fileStep draws an operation on an open or closed file.
func fileStep(t *rapid.T, real *side) func(*side) string {
	if len(real.files) == 0 {
		return func(*side) string { return "" }
	}
	i := rapid.IntRange(0, len(real.files)-1).Draw(t, "file")
	data := rapid.StringN(0, 6, 6).Draw(t, "data")
	off := int64(rapid.IntRange(0, 9).Draw(t, "off"))
	switch rapid.SampledFrom([]string{"read", "write", "write", "writeat", "stat", "sync", "datasync", "close"}).Draw(t, "op") {
	case "read":
		return func(s *side) string { return s.read(i, int(off)) }
	case "write":
		return func(s *side) string {
			n, err := s.files[i].Write([]byte(data))
			return outcome(err, n)
		}
	case "writeat":
		return func(s *side) string {
			n, err := s.files[i].WriteAt([]byte(data), off)
			return outcome(err, n)
		}
	case "stat":
		return func(s *side) string {
			info, err := s.files[i].Stat()
			return outcome(err, describeInfo(info))
		}
	case "sync":
		return func(s *side) string { return outcome(s.files[i].Sync()) }
	case "datasync":
		return func(s *side) string { return outcome(s.files[i].Datasync()) }
	default:
		return func(s *side) string { return outcome(s.files[i].Close()) }
	}
}

// The comparison must be able to fail.
func TestTheComparisonSeesADifferentErrno(t *testing.T) {
	real := &side{fsys: vfs.OS, root: t.TempDir()}
	model := &side{fsys: crashfs.New(), root: "/"}
	must(t, model.fsys.Mkdir("/a", 0o755))
	if r, m := real.lstat("a"), model.lstat("a"); r == m {
		t.Errorf("a missing and an existing name look the same: %s", r)
	}
	if class(&fs.PathError{Err: syscall.EISDIR}) == class(&fs.PathError{Err: syscall.ENOTDIR}) {
		t.Error("errno values look the same")
	}
}
