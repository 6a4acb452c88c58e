package restart

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// disk is a small tmpfs. Its name in the table of mounts holds the process that made it, so that a later run can remove what a killed one left.
type disk struct{ dir string }

const (
	diskName = "shardlease-restart-"
	diskSize = "8m"
)

func newDisk() (*disk, error) {
	dir, err := os.MkdirTemp("", diskName)
	if err != nil {
		return nil, err
	}
	if err := unix.Mount(diskName+strconv.Itoa(os.Getpid()), dir, "tmpfs", 0, "mode=0777,size="+diskSize); err != nil {
		return nil, errors.Join(fmt.Errorf("mount a tmpfs: %w", err), os.Remove(dir))
	}
	return &disk{dir}, nil
}

func (d *disk) filler() string { return filepath.Join(d.dir, "filler") }

// fill takes all that is left of the disk.
func (d *disk) fill() error {
	f, err := os.Create(d.filler())
	if err != nil {
		return err
	}
	block := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

// empty makes room again.
func (d *disk) empty() error {
	if d == nil {
		return nil
	}
	if err := os.Remove(d.filler()); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (d *disk) remove() error {
	if d == nil {
		return nil
	}
	if err := unix.Unmount(d.dir, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", d.dir, err)
	}
	return os.Remove(d.dir)
}

// sweepDisks removes the disks of runs that were killed.
func sweepDisks() error {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return err
	}
	defer f.Close()
	stale, err := staleDisks(f, func(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
	for _, dir := range stale {
		err = errors.Join(err, (&disk{dir}).remove())
	}
	return err
}

// staleDisks lists the disks in a table of mounts whose makers are gone.
func staleDisks(mounts io.Reader, alive func(pid int) bool) (dirs []string, err error) {
	scan := bufio.NewScanner(mounts)
	for scan.Scan() {
		fields := strings.Fields(scan.Text())
		if len(fields) < 2 {
			continue
		}
		number, ok := strings.CutPrefix(fields[0], diskName)
		if pid, err := strconv.Atoi(number); ok && err == nil && !alive(pid) {
			dirs = append(dirs, fields[1])
		}
	}
	return dirs, scan.Err()
}
