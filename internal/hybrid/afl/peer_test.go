package afl

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"shardlease/pkg/groupcommit/vfs"
)

// brokenFS fails the operations that a test names, once or always.
type brokenFS struct {
	vfs.FS
	rename  func() error
	syncDir func(dir string) error
}

func (b *brokenFS) Rename(oldname, newname string) error {
	if b.rename != nil {
		if err := b.rename(); err != nil {
			return err
		}
	}
	return b.FS.Rename(oldname, newname)
}

func (b *brokenFS) SyncDir(dir string) error {
	if b.syncDir != nil {
		if err := b.syncDir(dir); err != nil {
			return err
		}
	}
	return b.FS.SyncDir(dir)
}

func openPeer(t *testing.T, fsys vfs.FS, out string) *Peer {
	t.Helper()
	p, err := OpenPeer(fsys, out, "symcc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func stage(t *testing.T, content string) (path string, sum Sum) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "staged")
	write(t, path, content)
	return path, sha256.Sum256([]byte(content))
}

func TestPeerPublishesUnderGrowingNumbersThatAFLReads(t *testing.T) {
	out := t.TempDir()
	p := openPeer(t, vfs.OS, out)
	for i, c := range []struct {
		kind    Kind
		content string
		want    string
	}{
		{Queue, "a", "symcc/queue/id:000000,src:000007,op:symcc,sha:"},
		{Crashes, "b", "symcc/crashes/id:000000,"},
		{Queue, "c", "symcc/queue/id:000001,"},
		{Hangs, "d", "symcc/hangs/id:000000,"},
	} {
		staged, sum := stage(t, c.content)
		path, err := p.Publish(c.kind, staged, sum, 7)
		if err != nil || !strings.HasPrefix(path, filepath.Join(out, c.want)) {
			t.Fatalf("%d: published as %s, %v; want %s...", i, path, err, c.want)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != c.content {
			t.Errorf("%s holds %q, %v", path, data, err)
		}
	}
	staged, sum := stage(t, "a")
	if path, err := p.Publish(Queue, staged, sum, 0); path != "" || err != nil {
		t.Errorf("known content was published again as %s, %v", path, err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p = openPeer(t, vfs.OS, out)
	if kind, ok := p.Has(sum); !ok || kind != Queue {
		t.Errorf("after reopening the content is %q %v", kind, ok)
	}
	staged, sum = stage(t, "e")
	if path, err := p.Publish(Queue, staged, sum, 0); err != nil || !strings.Contains(path, "id:000002,") {
		t.Errorf("numbers do not go on after reopening: %s, %v", path, err)
	}
}

func TestTwoProcessesCannotFeedUnderOneName(t *testing.T) {
	out := t.TempDir()
	p := openPeer(t, vfs.OS, out)
	if _, err := OpenPeer(vfs.OS, out, "symcc"); !errors.Is(err, ErrPeerBusy) {
		t.Errorf("second opening: error %v, want ErrPeerBusy", err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	openPeer(t, vfs.OS, out)
}

// A full disk, and a rename that never happened: the staged file stays, nothing counts as published, and it works
// again once there is space, under a number that was not used before.
func TestFailedPublicationLosesNothingAndCanBeRepeated(t *testing.T) {
	out := t.TempDir()
	full := true
	p := openPeer(t, &brokenFS{FS: vfs.OS, rename: func() error {
		if full {
			return syscall.ENOSPC
		}
		return nil
	}}, out)
	staged, sum := stage(t, "a")
	if path, err := p.Publish(Queue, staged, sum, 0); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("published as %s, error %v, want ENOSPC", path, err)
	}
	if _, ok := p.Has(sum); ok {
		t.Error("a failed publication counts as published")
	}
	if _, err := os.Stat(staged); err != nil {
		t.Errorf("the staged file is lost: %v", err)
	}
	full = false
	if path, err := p.Publish(Queue, staged, sum, 0); err != nil || !strings.Contains(path, "id:000001,") {
		t.Errorf("after the failure: %s, %v", path, err)
	}
}

// G6: a failed barrier is no success, although the name is there; repeating the publication finds it.
func TestPublicationWithAFailedBarrierIsUnknownNotDone(t *testing.T) {
	out := t.TempDir()
	broken := false
	p := openPeer(t, &brokenFS{FS: vfs.OS, syncDir: func(string) error {
		if broken {
			return syscall.EIO
		}
		return nil
	}}, out)
	broken = true
	staged, sum := stage(t, "a")
	if _, err := p.Publish(Queue, staged, sum, 0); !errors.Is(err, syscall.EIO) {
		t.Fatalf("error %v, want EIO", err)
	}
	if _, ok := p.Has(sum); !ok {
		t.Error("the visible name was not found again")
	}
}

func TestNamesOfOthersAreNotTakenForPublished(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	for name, want := range map[string]bool{
		"id:000003,src:000001,op:symcc,sha:" + sum:     true,
		"id:1234567,sha:" + sum + ",+cov":              true,
		"id:000003,src:000001,op:symcc,sha:" + sum[2:]: false,
		"id:000003,sha:" + sum + "00":                  false,
		"id:-1,sha:" + sum:                             false,
		"id:x,sha:" + sum:                              false,
		"id:000003,src:000001":                         false,
		"README":                                       false,
	} {
		if _, _, ok := parsePublished(name); ok != want {
			t.Errorf("%s: %v, want %v", name, ok, want)
		}
	}
}

func TestAnotherPeersPublicationsAreReadWithoutItsLock(t *testing.T) {
	out := t.TempDir()
	p := openPeer(t, vfs.OS, out)
	staged, sum := stage(t, "a")
	if _, err := p.Publish(Crashes, staged, sum, 0); err != nil {
		t.Fatal(err)
	}
	if sums, err := PublishedBy(vfs.OS, out, "symcc"); err != nil || sums[sum] != Crashes {
		t.Errorf("read %v, %v", sums, err)
	}
	if sums, err := PublishedBy(vfs.OS, out, "nobody"); err != nil || len(sums) != 0 {
		t.Errorf("a missing peer has published %v, %v", sums, err)
	}
	if _, err := PublishedBy(&unreadableFS{FS: vfs.OS}, out, "symcc"); !errors.Is(err, syscall.EIO) {
		t.Errorf("an unreadable peer looks empty: %v", err)
	}
}

type unreadableFS struct{ vfs.FS }

func (unreadableFS) ReadDir(string) ([]fs.DirEntry, error) {
	return slices.Clip([]fs.DirEntry(nil)), syscall.EIO
}
