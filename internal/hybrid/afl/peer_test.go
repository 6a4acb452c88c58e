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

	"shardlease/pkg/groupcommit"
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

func (p *Peer) publishOne(t *testing.T, kind Kind, content string) error {
	t.Helper()
	path, sum := stage(t, content)
	_, err := p.Publish([]Staged{{Path: path, Kind: kind, Sum: sum, Source: 7}})
	return err
}

// listed are the names in a directory of the peer, cut before the sum.
func listed(t *testing.T, out string, kind Kind) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(out, "symcc", string(kind)))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name, _, _ := strings.Cut(e.Name(), ",sha:")
		list = append(list, name)
	}
	return list
}

func TestPeerPublishesUnderGrowingNumbersThatAFLReads(t *testing.T) {
	out := t.TempDir()
	p := openPeer(t, vfs.OS, out)
	for _, c := range []struct {
		kind    Kind
		content string
	}{{Queue, "a"}, {Crashes, "b"}, {Queue, "c"}, {Hangs, "d"}, {Queue, "a"}} {
		if err := p.publishOne(t, c.kind, c.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p = openPeer(t, vfs.OS, out)
	if kind, ok := p.Has(sha256.Sum256([]byte("c"))); !ok || kind != Queue {
		t.Errorf("after reopening the content is %q %v", kind, ok)
	}
	if err := p.publishOne(t, Queue, "e"); err != nil {
		t.Fatal(err)
	}
	if got, want := listed(t, out, Queue), []string{"id:000000,src:000007,op:symcc", "id:000001,src:000007,op:symcc", "id:000002,src:000007,op:symcc"}; !slices.Equal(got, want) {
		t.Errorf("queue holds %q, want %q", got, want)
	}
	if c, h := listed(t, out, Crashes), listed(t, out, Hangs); len(c) != 1 || len(h) != 1 || !strings.HasPrefix(c[0], "id:000000,") {
		t.Errorf("crashes %q, hangs %q", c, h)
	}
}

// G4: one barrier for each directory, however many files are published there.
func TestPublicationOfManyFilesTakesOneBarrierADirectory(t *testing.T) {
	var barriers []string
	p := openPeer(t, &brokenFS{FS: vfs.OS, syncDir: func(dir string) error {
		barriers = append(barriers, filepath.Base(dir))
		return nil
	}}, t.TempDir())
	barriers = nil
	var files []Staged
	for i := range 9 {
		path, sum := stage(t, strings.Repeat("x", i+1))
		files = append(files, Staged{Path: path, Kind: []Kind{Queue, Queue, Crashes}[i%3], Sum: sum})
	}
	done, err := p.Publish(files)
	if err != nil || done[Queue] != 6 || done[Crashes] != 3 || !slices.Equal(barriers, []string{"queue", "crashes"}) {
		t.Errorf("published %v with barriers %q, %v", done, barriers, err)
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

// A full disk: the staged file stays, nothing counts as published, and it works again once there is space, under a number that was
// not used before.
func TestFailedPublicationLosesNothingAndCanBeRepeated(t *testing.T) {
	out := t.TempDir()
	full := true
	p := openPeer(t, &brokenFS{FS: vfs.OS, rename: func() error {
		if full {
			return syscall.ENOSPC
		}
		return nil
	}}, out)
	path, sum := stage(t, "a")
	file := []Staged{{Path: path, Kind: Queue, Sum: sum}}
	if done, err := p.Publish(file); !errors.Is(err, syscall.ENOSPC) || len(done) != 0 {
		t.Fatalf("published %v, error %v, want ENOSPC", done, err)
	}
	if _, ok := p.Has(sum); ok {
		t.Error("a failed publication counts as published")
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the staged file is lost: %v", err)
	}
	full = false
	if _, err := p.Publish(file); err != nil || listed(t, out, Queue)[0] != "id:000001,src:000000,op:symcc" {
		t.Errorf("after the failure: %q, %v", listed(t, out, Queue), err)
	}
}

// A rename that was done although it says that it was not: the truth is read back.
func TestRenameThatWasDoneInSpiteOfItsErrorIsAPublication(t *testing.T) {
	out := t.TempDir()
	p := openPeer(t, lyingFS{vfs.OS}, out)
	if err := p.publishOne(t, Queue, "a"); err != nil || len(listed(t, out, Queue)) != 1 {
		t.Errorf("queue %q, error %v", listed(t, out, Queue), err)
	}
}

type lyingFS struct{ vfs.FS }

func (l lyingFS) Rename(oldname, newname string) error {
	return errors.Join(l.FS.Rename(oldname, newname), syscall.ENOENT)
}

// G5: a file that can't be moved keeps no other from being published and durable.
func TestOneBadFileKeepsNoOtherFromBeingPublished(t *testing.T) {
	out := t.TempDir()
	p := openPeer(t, vfs.OS, out)
	path, sum := stage(t, "good")
	done, err := p.Publish([]Staged{{Path: filepath.Join(out, "gone"), Kind: Queue, Sum: Sum{1}}, {Path: path, Kind: Queue, Sum: sum}})
	if !errors.Is(err, fs.ErrNotExist) || done[Queue] != 1 || len(listed(t, out, Queue)) != 1 {
		t.Errorf("published %v %q, error %v", done, listed(t, out, Queue), err)
	}
}

// G6: a failed barrier is no success, neither then nor by a later one that works. Only opening the peer anew, which syncs what it finds, helps.
func TestDirectoryWithAFailedBarrierAcknowledgesNothingMore(t *testing.T) {
	out := t.TempDir()
	broken := false
	p := openPeer(t, &brokenFS{FS: vfs.OS, syncDir: func(dir string) error {
		if broken {
			return syscall.EIO
		}
		return nil
	}}, out)
	broken = true
	if err := p.publishOne(t, Queue, "a"); !errors.Is(err, syscall.EIO) || !errors.Is(err, groupcommit.ErrUnknown) {
		t.Fatalf("error %v, want EIO and unknown", err)
	}
	broken = false
	for _, content := range []string{"a", "b"} {
		if err := p.publishOne(t, Queue, content); !errors.Is(err, groupcommit.ErrUnknown) {
			t.Errorf("%q was acknowledged after a failed barrier: %v", content, err)
		}
	}
	if err := p.publishOne(t, Crashes, "c"); err != nil {
		t.Errorf("another directory suffers: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p = openPeer(t, vfs.OS, out)
	for _, content := range []string{"a", "b"} {
		if err := p.publishOne(t, Queue, content); err != nil {
			t.Errorf("after reopening %q is refused: %v", content, err)
		}
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
	if err := p.publishOne(t, Crashes, "a"); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("a"))
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
