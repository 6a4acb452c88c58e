package vm

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheArchiveHoldsProgramAndModulesInOrder(t *testing.T) {
	if _, err := exec.LookPath("cpio"); err != nil {
		t.Skip("needs cpio to read it back: ", err)
	}
	dir := t.TempDir()
	var files []string
	for _, name := range []string{"rig", "b.ko", "a.ko"} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte("content of "+name), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	archive := filepath.Join(dir, "archive")
	if err := WriteInitramfs(archive, files[0], files[1:]); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	list := exec.Command("cpio", "-t", "--quiet")
	list.Stdin = bytes.NewReader(data)
	out, err := list.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := "dev proc sys mnt modules dev/console init modules/00.ko modules/01.ko"
	if got := strings.Join(strings.Fields(string(out)), " "); got != want {
		t.Errorf("the archive holds %s, want %s", got, want)
	}
	if err := WriteInitramfs(archive, files[0], []string{filepath.Join(dir, "absent")}); err == nil {
		t.Error("a module that isn't there was passed over")
	}
}
