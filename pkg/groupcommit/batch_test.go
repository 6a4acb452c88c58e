package groupcommit_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
	"shardlease/pkg/groupcommit/vfs/tracefs"
)

func put(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
}

// content is the text of a file, or "<absent>", or the error.
func content(name string) string {
	data, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "<absent>"
	case err != nil:
		return err.Error()
	}
	return string(data)
}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func wantIs(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("error %v does not match %v", err, target)
		}
	}
}

func wantList(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// Invariant G8; directed test 1 of the report.
func TestBatchRefusesCrossDirectoryReplaceBeforeAnyRename(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "first", "record"), filepath.Join(dir, "second", "record")
	put(t, src, "content")
	put(t, filepath.Join(dir, "second", "other"), "")
	b := groupcommit.NewBatch(vfs.OS)
	wantIs(t, b.Replace(src, dst), groupcommit.ErrCrossDirectory)
	wantIs(t, b.Exchange(src, filepath.Join(dir, "second", "other")), groupcommit.ErrCrossDirectory)
	want(t, "source", content(src), "content")
	want(t, "destination", content(dst), "<absent>")
	wantList(t, "pending", b.Pending())
}

// Invariant G4: directories in order of first use, one spelling of a path counts once.
func TestBatchKeepsDirectoriesInOrderOfFirstUse(t *testing.T) {
	dir := t.TempDir()
	b := groupcommit.NewBatch(vfs.OS)
	for _, d := range []string{"2", "1"} {
		put(t, filepath.Join(dir, d, "gone"), "")
	}
	for _, u := range []string{"2/a", "1/b", "2/../2/c", "1//d"} {
		for _, err := range b.Publish([]groupcommit.Update{{Name: dir + "/" + u, Data: []byte(u), Perm: 0o666}}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := b.Remove(dir + "/1/gone"); err != nil {
		t.Fatal(err)
	}
	wantIs(t, b.Remove(dir+"/3/gone"), fs.ErrNotExist)
	wantList(t, "pending", b.Pending(), dir+"/2", dir+"/1")
	res, err := b.Flush()
	want(t, "flush", err, nil)
	wantList(t, "durable", res.Durable, dir+"/2", dir+"/1")
	wantList(t, "unknown", res.Unknown)
	wantList(t, "pending after flush", b.Pending())
	want(t, "c", content(dir+"/2/c"), "2/../2/c")
}

func updates(dir string, names ...string) (list []groupcommit.Update) {
	for _, name := range names {
		list = append(list, groupcommit.Update{Name: filepath.Join(dir, name), Data: []byte("new"), Perm: 0o666})
	}
	return list
}

// Invariants G1, G3, G4; GC-8: N contents, N switches and K barriers, whatever N and K, one by one or all at once.
func TestBatchCostsOneFileSyncPerRecordAndOneBarrierPerDirectory(t *testing.T) {
	for _, c := range []struct{ n, k int }{{1, 1}, {8, 1}, {8, 8}, {64, 1}, {64, 8}, {64, 64}} {
		for _, atOnce := range []bool{false, true} {
			dir := t.TempDir()
			var names []string
			for i := range c.n {
				names = append(names, fmt.Sprintf("%02d/%02d", i%c.k, i))
				put(t, filepath.Join(dir, names[i]), "old")
			}
			trace := tracefs.New(vfs.OS, dir)
			b := groupcommit.NewBatch(trace)
			list := updates(dir, names...)
			for len(list) > 0 {
				n := b.Window()
				if atOnce {
					n = len(list)
				}
				wantIs(t, errors.Join(b.Publish(list[:n])...), nil)
				list = list[n:]
			}
			res, err := b.Flush()
			trace.Mark("ack")
			counts := trace.Counts()
			wantIs(t, errors.Join(err, trace.Check("ack")), nil)
			want(t, "file syncs", counts.FileSyncs, c.n)
			want(t, "directory syncs", counts.DirSyncs, c.k)
			want(t, "durable", len(res.Durable), c.k)
			want(t, "renames", counts.Renames[filepath.Join(dir, "00")], c.n/c.k)
		}
	}
}

// Invariant G5; GC-2: one bad member neither fails the others nor keeps them from their barriers.
func TestOneBadUpdateDoesNotStopTheOthers(t *testing.T) {
	dir := setup(t, []string{"0/", "1/"})
	var names []string
	for i := range 64 {
		names = append(names, fmt.Sprintf("%d/%02d", i%2, i))
	}
	names[10] = "0/" + strings.Repeat("x", 300)
	trace := tracefs.New(vfs.OS, dir)
	b := groupcommit.NewBatch(trace)
	for i, err := range b.Publish(updates(dir, names...)) {
		if i == 10 {
			wantIs(t, err, syscall.ENAMETOOLONG)
		} else if err != nil || content(filepath.Join(dir, names[i])) != "new" {
			t.Errorf("%s: %v", names[i], err)
		}
	}
	res, err := b.Flush()
	trace.Mark("ack")
	wantIs(t, errors.Join(err, trace.Check("ack")), nil)
	wantList(t, "durable", res.Durable, dir+"/0", dir+"/1")
}

// Invariant G6; FS-4: every directory gets its barrier, the failed ones are told apart, and no failure heals: not by
// flushing again, not by new changes there, not by somebody else's good barrier.
func TestFailedBarrierIsFinalForItsDirectory(t *testing.T) {
	dir := setup(t, []string{"0/", "1/", "2/"})
	faults := faultfs.New(vfs.OS)
	faults.Inject(faultfs.Rule{Op: vfs.OpSyncDir, Base: "0", Err: syscall.EIO})
	faults.Inject(faultfs.Rule{Op: vfs.OpSyncDir, Base: "2", Err: syscall.ENOSPC})
	trace := tracefs.New(faults, dir)
	b := groupcommit.NewBatch(trace)
	wantIs(t, errors.Join(b.Publish(updates(dir, "0/a", "1/b", "2/c"))...), nil)
	res, err := b.Flush()
	wantIs(t, err, groupcommit.ErrUnknown, syscall.EIO, syscall.ENOSPC)
	want(t, "injected", faults.Injected(), 2)
	wantList(t, "durable", res.Durable, dir+"/1")
	wantList(t, "unknown", res.Unknown, dir+"/0", dir+"/2")
	wantList(t, "barriers", barriers(trace, dir), "0", "1", "2")
	wantList(t, "pending", b.Pending())

	wantIs(t, groupcommit.SyncDir(vfs.OS, dir+"/0"), nil)
	trace.Reset()
	for i, err := range b.Publish(updates(dir, "0/d", "1/e")) {
		want(t, "refused", errors.Is(err, groupcommit.ErrSuspect), i == 0)
		if errors.Is(err, groupcommit.ErrUnknown) {
			t.Errorf("%v: but nothing was done", err)
		}
	}
	want(t, "refused update", content(dir+"/0/d"), "<absent>")
	for _, e := range trace.Events() {
		if strings.HasPrefix(e.Name, dir+"/0/") {
			t.Errorf("%s %s: a refused update touches nothing", e.Op, e.Name)
		}
	}
	wantIs(t, b.Remove(dir+"/0/a"), groupcommit.ErrSuspect)
	res, err = b.Flush()
	wantIs(t, err, groupcommit.ErrUnknown, syscall.EIO, syscall.ENOSPC)
	wantList(t, "durable", res.Durable, dir+"/1")
	wantList(t, "unknown", res.Unknown, dir+"/0", dir+"/2")
	wantList(t, "barriers", barriers(trace, dir), "1")

	wantIs(t, errors.Join(groupcommit.NewBatch(trace).Publish(updates(dir, "0/d"))...), nil) // a new batch writes anew
}

// FS-23: a switch that was reported as failed but done is unknown, and its directory gets a barrier all the same.
func TestUpdateDoneButReportedAsFailedIsUnknown(t *testing.T) {
	dir := setup(t, []string{"0/a", "0/x", "0/y"})
	for _, op := range []vfs.Op{vfs.OpRename, vfs.OpExchange, vfs.OpRemove} {
		faults := faultfs.New(vfs.OS)
		faults.Inject(faultfs.Rule{Op: op, Err: syscall.EIO, After: true})
		b := groupcommit.NewBatch(faults)
		var err error
		switch op {
		case vfs.OpRename:
			err = b.Publish(updates(dir, "0/a"))[0]
		case vfs.OpExchange:
			err = b.Exchange(dir+"/0/x", dir+"/0/y")
		case vfs.OpRemove:
			err = b.Remove(dir + "/0/a")
		}
		wantIs(t, err, groupcommit.ErrUnknown, syscall.EIO)
		wantList(t, string(op), b.Pending(), dir+"/0")
	}
}

func TestFailureThatDidNothingNeedsNoBarrier(t *testing.T) {
	dir := setup(t, []string{"0/a"})
	for _, op := range []vfs.Op{vfs.OpRename, vfs.OpExchange, vfs.OpRemove} {
		faults := faultfs.New(vfs.OS)
		faults.Inject(faultfs.Rule{Op: op, Base: "a", Err: fs.ErrPermission})
		b := groupcommit.NewBatch(faults)
		err := map[vfs.Op]func() error{
			vfs.OpRename:   func() error { return b.Publish(updates(dir, "0/a"))[0] },
			vfs.OpExchange: func() error { return b.Exchange(dir+"/0/a", dir+"/0/b") },
			vfs.OpRemove:   func() error { return b.Remove(dir + "/0/a") },
		}[op]()
		if !errors.Is(err, fs.ErrPermission) || errors.Is(err, groupcommit.ErrUnknown) {
			t.Errorf("%s: %v", op, err)
		}
		wantList(t, string(op), b.Pending())
	}
}

func TestEmptyBatchFlushesNothing(t *testing.T) {
	trace := tracefs.New(vfs.OS, "")
	b := groupcommit.NewBatch(trace)
	want(t, "updates", len(b.Publish(nil)), 0)
	res, err := b.Flush()
	want(t, "error", err, nil)
	want(t, "result", len(res.Durable)+len(res.Unknown), 0)
	want(t, "operations", len(trace.Events()), 0)
}
