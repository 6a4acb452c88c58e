// Package sweep records one workload on a real file system, and then lets every chosen power cut happen to it.
package sweep

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"shardlease/experiments/powercut/rig/control"
	"shardlease/experiments/powercut/rig/fusedisk"
	"shardlease/experiments/powercut/rig/loopdev"
	"shardlease/experiments/powercut/rig/recdisk"
	"shardlease/experiments/powercut/rig/workload"
)

// Bench is a place to work in. Everything below Dir belongs to it; CleanUp undoes it all, also after a kill.
type Bench struct {
	Self    string // this program, for the disk's process and the workload's
	Dir     string // empty or an earlier bench; on a file system with room for two disks, tmpfs is fastest
	FS      loopdev.FileSystem
	Options string // of mount
}

func (b Bench) path(name string) string { return filepath.Join(b.Dir, name) }

// Lock keeps other benches out of Dir until the returned function is called, or this process dies. It waits a while, since a driver whose
// parent was killed is still cleaning up.
func (b Bench) Lock(ctx context.Context) (unlock func() error, err error) {
	dir, err := filepath.Abs(b.Dir)
	if err != nil {
		return nil, err
	}
	// An abstract socket: the kernel frees its name with the process, and there is no file to leave behind.
	name := fmt.Sprintf("@shardlease-bench-%x", sha256.Sum256([]byte(dir)))[:60]
	for range 150 {
		l, err := net.Listen("unix", name)
		if err == nil {
			return l.Close, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil, fmt.Errorf("%s is in use by another rig: wait for it, or give another -dir", dir)
}

// CleanUp undoes mounts and loop devices below Dir and removes it.
func (b Bench) CleanUp() error {
	if _, err := os.Lstat(b.Dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := loopdev.CleanUp(b.Dir); err != nil {
		return err
	}
	return os.RemoveAll(b.Dir)
}

// Record runs the workload in a process of its own on a fresh file system on a recording disk. With an image, the disk holds that
// instead, and what mounting it writes (the recovery of its journal) is in the recording too.
func (b Bench) Record(ctx context.Context, c workload.Config, f recdisk.Faults, image string) (rec *recdisk.Recording, out workload.Outcome, err error) {
	if err := b.CleanUp(); err != nil {
		return nil, out, err
	}
	for _, d := range []string{"fuse", "mnt", "crash"} {
		if err := os.MkdirAll(b.path(d), 0o700); err != nil {
			return nil, out, err
		}
	}
	server, err := b.serve(ctx, image)
	if err != nil {
		return nil, out, err
	}
	defer func() { err = errors.Join(err, server.end(b.path("fuse"))) }()
	disk := filepath.Join(b.path("fuse"), fusedisk.FileName)
	if image == "" {
		if err := b.FS.Format(disk); err != nil {
			return nil, out, err
		}
	} else if err := server.Start(f); err != nil {
		return nil, out, err
	}
	if err := loopdev.Mount(disk, b.path("mnt"), b.FS.Name, b.Options); err != nil {
		return nil, out, err
	}
	if image == "" {
		if err := server.Start(f); err != nil {
			return nil, out, errors.Join(err, loopdev.Unmount(b.path("mnt")))
		}
	}
	c.Root = b.path("mnt")
	out, runErr := b.runWorkload(ctx, c)
	// The cut comes first, then the file system is unmounted in peace: what unmounting writes is not in the log.
	file := b.path("recording")
	if err := errors.Join(runErr, server.Stop(file), loopdev.Unmount(b.path("mnt"))); err != nil {
		return nil, out, err
	}
	rec, err = control.Load(file)
	return rec, out, err
}

// diskServer is the disk's process.
type diskServer struct {
	*control.Client
	process *os.Process
	exited  chan error
}

// serve starts the disk's process and waits for its socket and its file.
func (b Bench) serve(ctx context.Context, image string) (*diskServer, error) {
	args := []string{"serve", "-dir", b.path("fuse"), "-socket", b.path("socket"), "-size", strconv.FormatInt(b.FS.Size, 10)}
	if image != "" {
		args = append(args, "-load", image)
	}
	cmd := exec.CommandContext(ctx, b.Self, args...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the terminal ends the driver first, in order
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &diskServer{process: cmd.Process, exited: make(chan error, 1)}
	go func() { s.exited <- cmd.Wait() }()
	for range 500 {
		if _, err := os.Stat(filepath.Join(b.path("fuse"), fusedisk.FileName)); err == nil {
			if s.Client, err = control.Dial(b.path("socket")); err != nil {
				return nil, errors.Join(err, s.end(b.path("fuse")))
			}
			return s, nil
		}
		select {
		case err := <-s.exited:
			return nil, fmt.Errorf("the disk's process ended early: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil, errors.Join(errors.New("the recording disk did not appear within 5 seconds"), cmd.Process.Kill())
}

// end unmounts the disk; its process then ends by itself.
func (s *diskServer) end(dir string) error {
	var err error
	if s.Client != nil {
		err = s.Close()
	}
	err = errors.Join(err, loopdev.Unmount(dir))
	select {
	case <-s.exited: // an interrupt's exit code is no news
		return err
	case <-time.After(5 * time.Second):
		return errors.Join(err, errors.New("the disk's process did not end"), s.process.Kill())
	}
}

func (b Bench) runWorkload(ctx context.Context, c workload.Config) (out workload.Outcome, err error) {
	config, err := json.Marshal(c)
	if err != nil {
		return out, err
	}
	w := exec.CommandContext(ctx, b.Self, "workload", "-socket", b.path("socket"), "-config", string(config))
	var stdout bytes.Buffer
	w.Stdout, w.Stderr = &stdout, os.Stderr
	if err := w.Run(); err != nil {
		return out, fmt.Errorf("the workload failed: %w", err)
	}
	return out, json.Unmarshal(stdout.Bytes(), &out)
}
