package workload

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"shardlease/pkg/groupcommit/vfs"
)

// Twins are versions of the product that are broken on purpose; a rig that lets one pass proves nothing. A power cut must show the faults
// of CutTwins, and a disk that fails one write those of BrokenDiskTwins.
var (
	CutTwins        = []string{"nodir", "nofile"}
	BrokenDiskTwins = []string{"retry"}
)

// Twin returns the file system under the named twin; "" is the real one.
func Twin(name string) (vfs.FS, error) {
	switch name {
	case "":
		return vfs.OS, nil
	case "nodir": // directory syncs do nothing
		return vfs.Intercept(vfs.OS, skip(vfs.OpSyncDir)), nil
	case "nofile": // file syncs do nothing
		return vfs.Intercept(vfs.OS, onlyNames), nil
	case "retry": // a failed sync is tried again, and the second answer believed
		return vfs.Intercept(vfs.OS, syncTwice), nil
	}
	return nil, fmt.Errorf("unknown twin %q; known are %v and %v", name, CutTwins, BrokenDiskTwins)
}

func skip(ops ...vfs.Op) func(c *vfs.Call, do func() error) error {
	return func(c *vfs.Call, do func() error) error {
		for _, op := range ops {
			if c.Op == op {
				return nil
			}
		}
		return do()
	}
}

// onlyNames leaves a barrier that makes names durable and nothing else. The product's own is more than that on btrfs, where it commits the
// transaction and writes the contents with it.
func onlyNames(c *vfs.Call, do func() error) error {
	switch c.Op {
	case vfs.OpSync, vfs.OpDatasync, vfs.OpSyncFS:
		return nil
	case vfs.OpSyncDir:
		dir, err := vfs.OS.OpenFile(c.Name, os.O_RDONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(dir.Sync(), dir.Close())
	}
	return do()
}

func syncTwice(c *vfs.Call, do func() error) error {
	err := do()
	if err != nil && (c.Op == vfs.OpSync || c.Op == vfs.OpDatasync || c.Op == vfs.OpSyncDir || c.Op == vfs.OpSyncFS) {
		return do()
	}
	return err
}

// diskError names the error number if err is one that a broken or full disk causes, and is "" otherwise: anything else is
// a fault of the product or of the rig.
func diskError(err error) string {
	for _, e := range []syscall.Errno{unix.EIO, unix.EROFS, unix.ENOSPC, unix.ESHUTDOWN, unix.EUCLEAN, unix.ENODATA} {
		if errors.Is(err, e) {
			return unix.ErrnoName(e)
		}
	}
	return ""
}
