package sysfault

import "golang.org/x/sys/unix"

// at names a path argument relative to a directory descriptor.
func at(pairs ...int) [][2]int {
	var p [][2]int
	for i := 0; i+1 < len(pairs); i += 2 {
		p = append(p, [2]int{pairs[i], pairs[i+1]})
	}
	return p
}

// common are the calls that every 64-bit Linux architecture has; calls adds the older ones of this architecture.
var common = []call{
	{name: "open", nr: unix.SYS_OPENAT, fd: -1, path: at(0, 1)},
	{name: "fsync", nr: unix.SYS_FSYNC, fd: 0},
	{name: "fdatasync", nr: unix.SYS_FDATASYNC, fd: 0},
	{name: "syncfs", nr: unix.SYS_SYNCFS, fd: 0},
	{name: "rename", nr: unix.SYS_RENAMEAT, fd: -1, path: at(0, 1, 2, 3)},
	{name: "rename", nr: unix.SYS_RENAMEAT2, fd: -1, path: at(0, 1, 2, 3)},
	{name: "unlink", nr: unix.SYS_UNLINKAT, fd: -1, path: at(0, 1)},
	{name: "mkdir", nr: unix.SYS_MKDIRAT, fd: -1, path: at(0, 1)},
	{name: "link", nr: unix.SYS_LINKAT, fd: -1, path: at(0, 1, 2, 3)},
	{name: "ftruncate", nr: unix.SYS_FTRUNCATE, fd: 0},
	{name: "write", nr: unix.SYS_WRITE, fd: 0},
	{name: "write", nr: unix.SYS_PWRITE64, fd: 0},
	{name: "lock", nr: unix.SYS_FLOCK, fd: 0},
	{name: "lock", nr: unix.SYS_FCNTL, fd: 0, lock: true},
	{name: "close", nr: unix.SYS_CLOSE, fd: 0},
}
