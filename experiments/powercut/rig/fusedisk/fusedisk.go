// Package fusedisk shows a recording disk as a file, on which a loop device and then a real file system can be set up.
//
// It needs root and /dev/fuse. Serve it from a process of its own: a process that serves its own mount can deadlock in fork,
// when the child closes a descriptor on the mount before it runs. close(2) of the file is not a flush; fsync is.
package fusedisk

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"shardlease/experiments/powercut/rig/recdisk"
)

// FileName is the name of the one file in the mounted directory.
const FileName = "disk.img"

type root struct {
	fs.Inode
	disk *recdisk.Disk
}

var _ = (fs.NodeOnAdder)((*root)(nil))

func (r *root) OnAdd(ctx context.Context) {
	child := r.NewPersistentInode(ctx, &file{disk: r.disk}, fs.StableAttr{Mode: syscall.S_IFREG})
	r.AddChild(FileName, child, true)
}

// file is the disk. The methods it has are those that a loop device and mkfs need.
type file struct {
	fs.Inode
	disk *recdisk.Disk
}

var (
	_ = (fs.NodeOpener)((*file)(nil))
	_ = (fs.NodeGetattrer)((*file)(nil))
	_ = (fs.NodeSetattrer)((*file)(nil))
	_ = (fs.NodeReader)((*file)(nil))
	_ = (fs.NodeWriter)((*file)(nil))
	_ = (fs.NodeFsyncer)((*file)(nil))
	_ = (fs.NodeFlusher)((*file)(nil))
	_ = (fs.NodeAllocater)((*file)(nil))
)

func errno(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	return fs.ToErrno(err)
}

func (f *file) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0 // or the page cache would sit between the loop device and the log
}

func (f *file) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode = syscall.S_IFREG | 0o600
	out.Size = uint64(f.disk.Size())
	out.Blocks = out.Size / recdisk.SectorSize
	return 0
}

// Setattr accepts what mkfs does to a file; the size is fixed.
func (f *file) Setattr(ctx context.Context, h fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if size, ok := in.GetSize(); ok && int64(size) != f.disk.Size() {
		return syscall.EPERM
	}
	return f.Getattr(ctx, h, out)
}

func (f *file) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	n := min(int64(len(dest)), max(0, f.disk.Size()-off))
	if _, err := f.disk.ReadAt(dest[:n], off); err != nil {
		return nil, errno(err)
	}
	return fuse.ReadResultData(dest[:n]), 0
}

func (f *file) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	n, err := f.disk.WriteAt(data, off)
	return uint32(n), errno(err)
}

func (f *file) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	return errno(f.disk.Flush())
}

func (f *file) Flush(context.Context, fs.FileHandle) syscall.Errno { return 0 }

func (f *file) Allocate(_ context.Context, _ fs.FileHandle, off, size uint64, mode uint32) syscall.Errno {
	if mode&(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_ZERO_RANGE) == 0 {
		return 0 // the whole file is there
	}
	size = min(size, uint64(f.disk.Size())-min(off, uint64(f.disk.Size())))
	return errno(f.disk.Discard(int64(off), int64(size)))
}

// Server is a mounted disk.
type Server struct {
	server *fuse.Server
	once   sync.Once
	err    error
}

// Mount shows d as FileName in dir.
func Mount(dir string, d *recdisk.Disk) (*Server, error) {
	forever := time.Hour
	server, err := fs.Mount(dir, &root{disk: d}, &fs.Options{
		AttrTimeout: &forever, EntryTimeout: &forever,
		MountOptions: fuse.MountOptions{
			DirectMountStrict: true, MaxWrite: 1 << 20, FsName: "recdisk", Name: "recdisk", DisableXAttrs: true,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("mount the recording disk at %s (needs root and /dev/fuse): %w", dir, err)
	}
	return &Server{server: server}, nil
}

// Unmount ends the server. It may be called more than once.
func (s *Server) Unmount() error {
	s.once.Do(func() { s.err = s.server.Unmount() })
	return s.err
}

// Wait returns when the disk has been unmounted, by whomever.
func (s *Server) Wait() { s.server.Wait() }
