package workload

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"shardlease/experiments/powercut/rig/loopdev"
	"shardlease/experiments/powercut/rig/recdisk"
	"shardlease/pkg/groupcommit/vfs"
)

// What vfs.OS.SyncDir relies on: after the log of an XFS has been shut down, fsync of a directory that was open and changed before may
// say that all is well, but opening it again does not.
func TestAnXFSThatWasShutDownRefusesToOpenADirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts an XFS")
	}
	xfs, err := loopdev.Find("xfs")
	if err != nil {
		t.Fatal(err)
	}
	image, mnt := filepath.Join(t.TempDir(), "image"), t.TempDir()
	if err := (recdisk.Image{}).WriteFile(image, xfs.Size); err != nil {
		t.Fatal(err)
	}
	if err := xfs.Format(image); err != nil {
		t.Skip("needs mkfs.xfs: ", err)
	}
	if err := loopdev.Mount(image, mnt, "xfs", ""); err != nil {
		t.Skip("needs loop devices and XFS: ", err)
	}
	defer func() {
		if err := loopdev.Unmount(mnt); err != nil {
			t.Error(err)
		}
	}()
	dir, err := os.Open(mnt)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := os.WriteFile(filepath.Join(mnt, "record"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	const goingDown, noLogFlush = 0x8004587d, 2 // XFS_IOC_GOINGDOWN, XFS_FSOP_GOING_FLAGS_NOLOGFLUSH
	if err := unix.IoctlSetPointerInt(int(dir.Fd()), goingDown, noLogFlush); err != nil {
		t.Fatal(err)
	}
	t.Logf("fsync of the directory whose new name is lost: %v", unix.Fsync(int(dir.Fd())))
	again, err := unix.Openat(int(dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if !errors.Is(err, unix.EIO) {
		t.Errorf("opening it again: %v", err)
		unix.Close(again)
	}
	if err := vfs.OS.SyncDir(mnt); !errors.Is(err, unix.EIO) {
		t.Errorf("SyncDir: %v", err)
	}
}
