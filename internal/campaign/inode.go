package campaign

import (
	"io/fs"
	"syscall"
)

// inode is the inode number, or 0 where the file system doesn't tell.
func inode(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}
