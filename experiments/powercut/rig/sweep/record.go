// Package sweep records one workload on a real file system, and then lets every chosen power cut happen to it.
package sweep

import (
	"context"
	"errors"
	"fmt"
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
	Self string // this program, for the disk's process and the workload's
	Dir  string // empty or an earlier bench; on a file system with room for two disks, tmpfs is fastest
	FS   loopdev.FileSystem
}

func (b Bench) path(name string) string { return filepath.Join(b.Dir, name) }

// CleanUp undoes mounts and loop devices below Dir and removes it.
func (b Bench) CleanUp() error {
	if _, err := os.Stat(b.Dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := loopdev.CleanUp(b.Dir); err != nil {
		return err
	}
	return os.RemoveAll(b.Dir)
}

// Record runs the workload in a process of its own on a fresh file system on a recording disk.
func (b Bench) Record(ctx context.Context, c workload.Config, f recdisk.Faults) (rec *recdisk.Recording, err error) {
	if err := b.CleanUp(); err != nil {
		return nil, err
	}
	for _, d := range []string{"fuse", "mnt", "crash"} {
		if err := os.MkdirAll(b.path(d), 0o700); err != nil {
			return nil, err
		}
	}
	server, client, err := b.serve(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close(), b.endServer(server)) }()
	disk := filepath.Join(b.path("fuse"), fusedisk.FileName)
	if err := b.FS.Format(disk); err != nil {
		return nil, err
	}
	if err := loopdev.Mount(disk, b.path("mnt"), b.FS.Name, ""); err != nil {
		return nil, err
	}
	if err := client.Start(f); err != nil {
		return nil, errors.Join(err, loopdev.Unmount(b.path("mnt")))
	}
	c.Root = b.path("mnt")
	runErr := b.runWorkload(ctx, c)
	// The cut comes first, then the file system is unmounted in peace: what unmounting writes is not in the log.
	file := b.path("recording")
	if err := errors.Join(runErr, client.Stop(file), loopdev.Unmount(b.path("mnt"))); err != nil {
		return nil, err
	}
	return control.Load(file)
}

// serve starts the disk's process and waits for its socket and its file.
func (b Bench) serve(ctx context.Context) (*exec.Cmd, *control.Client, error) {
	server := exec.CommandContext(ctx, b.Self, "serve", "-dir", b.path("fuse"), "-socket", b.path("socket"),
		"-size", strconv.FormatInt(b.FS.Size, 10))
	server.Stderr = os.Stderr
	server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the terminal ends the driver first, in order
	server.Cancel = func() error { return server.Process.Signal(syscall.SIGTERM) }
	if err := server.Start(); err != nil {
		return nil, nil, err
	}
	exited := make(chan error, 1)
	go func() { exited <- server.Wait() }()
	for range 500 {
		if _, err := os.Stat(filepath.Join(b.path("fuse"), fusedisk.FileName)); err == nil {
			client, err := control.Dial(b.path("socket"))
			return server, client, err
		}
		select {
		case err := <-exited:
			return nil, nil, fmt.Errorf("the disk's process ended early: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	server.Process.Kill()
	return nil, nil, errors.New("the recording disk did not appear within 5 seconds")
}

// endServer unmounts the disk; its process then ends by itself.
func (b Bench) endServer(server *exec.Cmd) error {
	err := loopdev.Unmount(b.path("fuse"))
	for range 500 {
		if syscall.Kill(server.Process.Pid, 0) != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.Join(err, server.Process.Kill())
}

func (b Bench) runWorkload(ctx context.Context, c workload.Config) error {
	w := exec.CommandContext(ctx, b.Self, "workload", "-socket", b.path("socket"), "-root", c.Root, "-twin", c.Twin,
		"-seed", strconv.FormatUint(c.Seed, 10), "-batches", strconv.Itoa(c.Batches), "-items", strconv.Itoa(c.Items),
		"-shards", strconv.Itoa(c.Shards))
	w.Stderr = os.Stderr
	if err := w.Run(); err != nil {
		return fmt.Errorf("the workload failed: %w", err)
	}
	return nil
}
