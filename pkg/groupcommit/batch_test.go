package groupcommit_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
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
