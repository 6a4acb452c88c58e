// Package loopdev attaches files to loop devices and mounts them, and undoes what an earlier, killed run has left.
package loopdev

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Attach connects a free loop device to the file. The device detaches itself at its last close, so at unmount. The returned file
// keeps it attached until then; close it once the device is mounted.
func Attach(file string) (device *os.File, err error) {
	backing, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer backing.Close()
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("loop devices need root and the loop driver: %w", err)
	}
	defer ctl.Close()
	for range 64 {
		n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("no free loop device: %w", err)
		}
		dev, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(backing.Fd())}
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO
		copy(config.Info.File_name[:], file)
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &config)
		if errors.Is(err, unix.EINVAL) { // no direct I/O on this backing file
			config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
			err = unix.IoctlLoopConfigure(int(dev.Fd()), &config)
		}
		if err == nil {
			return dev, nil
		}
		dev.Close()
		if !errors.Is(err, unix.EBUSY) { // EBUSY: somebody else was faster
			return nil, fmt.Errorf("attach %s to %s: %w", file, dev.Name(), err)
		}
		time.Sleep(time.Millisecond)
	}
	return nil, fmt.Errorf("attach %s: all loop devices are taken by others", file)
}

// Mount attaches the file and mounts it at dir.
func Mount(file, dir, fsType, options string) error {
	dev, err := Attach(file)
	if err != nil {
		return err
	}
	defer dev.Close() // the mount keeps it
	if err := unix.Mount(dev.Name(), dir, fsType, unix.MS_NOATIME, options); err != nil {
		return fmt.Errorf("mount %s (%s) at %s: %w", file, fsType, dir, err)
	}
	return nil
}

// Unmount unmounts dir, waiting a little while it is still busy.
func Unmount(dir string) error {
	for try := 0; ; try++ {
		err := unix.Unmount(dir, 0)
		if !errors.Is(err, unix.EBUSY) || try == 200 {
			if err != nil {
				return fmt.Errorf("unmount %s: %w", dir, err)
			}
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// CleanUp unmounts everything below dir, deepest first, and detaches the loop devices whose file lies below it: what a run leaves that
// was itself killed. It touches nothing outside dir.
func CleanUp(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	var errs []error
	mounts, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(mounts) { // mounted last, unmounted first
		if err := unix.Unmount(m, 0); err != nil {
			if err := unix.Unmount(m, unix.MNT_DETACH); err != nil {
				errs = append(errs, fmt.Errorf("unmount %s: %w", m, err))
			}
		}
	}
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return err
	}
	for _, l := range loops {
		name, err := os.ReadFile(l)
		if err != nil || !below(dir, strings.TrimSpace(string(name))) {
			continue // gone meanwhile, or somebody else's
		}
		dev := "/dev/" + strings.Split(l, "/")[3]
		if f, err := os.OpenFile(dev, os.O_RDWR, 0); err == nil {
			unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0) // EBUSY or ENXIO: it clears itself
			f.Close()
		}
	}
	return errors.Join(errs...)
}

func below(dir, name string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

func mountsBelow(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var found []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 && below(dir, fields[4]) {
			found = append(found, fields[4])
		}
	}
	return found, lines.Err()
}

// FileSystem is what the rig knows of one kind of file system.
type FileSystem struct {
	Name    string
	Size    int64    // of its disk; mkfs.xfs refuses less than 300 MB
	Make    []string // command without the file
	Package string   // Debian package of the command
}

// FileSystems are those with which the rig works.
var FileSystems = []FileSystem{
	{"ext4", 64 << 20, []string{"mkfs.ext4", "-q", "-F", "-O", "^fast_commit"}, "e2fsprogs"},
	{"xfs", 320 << 20, []string{"mkfs.xfs", "-q", "-f"}, "xfsprogs"},
	{"btrfs", 160 << 20, []string{"mkfs.btrfs", "-q", "-f"}, "btrfs-progs"},
}

// Find returns the file system of that name.
func Find(name string) (FileSystem, error) {
	var names []string
	for _, f := range FileSystems {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	return FileSystem{}, fmt.Errorf("unknown file system %q; known are %s", name, strings.Join(names, ", "))
}

// Format makes the file system on the file.
func (f FileSystem) Format(file string) error {
	path, err := exec.LookPath(f.Make[0])
	if err != nil {
		path = "/usr/sbin/" + f.Make[0] // not in the search path of every shell
	}
	out, err := exec.Command(path, append(f.Make[1:len(f.Make):len(f.Make)], file)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s (Debian package %s): %w: %s", f.Make[0], f.Package, err, strings.TrimSpace(string(out)))
	}
	return nil
}
