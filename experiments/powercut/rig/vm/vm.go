// Package vm runs a stock kernel with the rig as its init in qemu, on a recording disk, and kills it. It emulates the processor (TCG): no
// root and no hardware support are needed, and a kernel that runs under one host's KVM may not run under another's.
package vm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"shardlease/experiments/powercut/rig/guest"
)

// Qemu is the program that is looked up in the search path; Debian has it in qemu-system-x86.
const Qemu = "qemu-system-x86_64"

// modules are what a Debian cloud kernel needs beside what is built in, in the order of their dependencies.
var modules = []string{
	"drivers/virtio/virtio_ring.ko", "drivers/virtio/virtio.ko", "drivers/virtio/virtio_mmio.ko", "drivers/block/virtio_blk.ko",
	"drivers/char/virtio_console.ko", "lib/libcrc32c.ko", "fs/xfs/xfs.ko", "lib/zstd/zstd_compress.ko", "lib/raid6/raid6_pq.ko",
	"crypto/xor.ko", "crypto/blake2b_generic.ko", "fs/btrfs/btrfs.ko",
}

// Kernel is an unpacked Debian kernel package.
type Kernel struct{ Image, Modules string }

// FindKernel finds the one kernel in the directory into which its package was unpacked.
func FindKernel(dir string) (Kernel, error) {
	images, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return Kernel{}, fmt.Errorf("%s: found %d kernels in boot/, want one: unpack a linux-image-cloud-amd64 package there (dpkg-deb -x)", dir, len(images))
	}
	release := strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-")
	return Kernel{images[0], filepath.Join(dir, "lib", "modules", release, "kernel")}, nil
}

// Initramfs writes the archive with which the kernel starts the program.
func (k Kernel) Initramfs(name, program string) error {
	var files []string
	for _, m := range modules {
		files = append(files, filepath.Join(k.Modules, m))
	}
	return WriteInitramfs(name, program, files)
}

// Machine is a running one.
type Machine struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	reports chan guest.Report
	ended   chan struct{}
	console string
}

// Spec describes a machine: its disk is behind the NBD socket, its console goes to a file.
type Spec struct {
	Kernel                     Kernel
	Initramfs, Socket, Console string
}

const (
	// bootPatience is some ten times what a boot takes on a busy machine.
	bootPatience = time.Minute
	// bootTries is how often a machine is started that never gets as far as its init.
	bootTries = 4
	// patience is far more than a check takes on a busy machine.
	patience = 2 * time.Minute
)

// errSilent is matched by the error about a machine that has said nothing for too long.
var errSilent = errors.New("has said nothing")

// Boot starts a machine and returns when its init is ready. An emulated machine now and then hangs before its kernel has come to init.
// Nothing was mounted by then, so it is killed and started again; hung says how often.
func Boot(ctx context.Context, s Spec) (m *Machine, hung int, err error) {
	return boot(ctx, s, bootPatience)
}

func boot(ctx context.Context, s Spec, patience time.Duration) (m *Machine, hung int, err error) {
	for {
		if m, err = s.start(ctx); err != nil {
			return nil, hung, err
		}
		r, err := m.next(ctx, patience)
		if err == nil && !r.Ready {
			err = fmt.Errorf("the machine is not ready: %+v", r)
		}
		if err == nil {
			return m, hung, nil
		}
		m.Kill()
		if !errors.Is(err, errSilent) {
			return nil, hung, err
		}
		if hung++; hung == bootTries {
			return nil, hung, fmt.Errorf("hung at each of %d boots: %w", hung, err)
		}
		fmt.Fprintf(os.Stderr, "boot %d hung, the machine is started again: %v\n", hung, err)
	}
}

// start runs qemu.
func (s Spec) start(ctx context.Context) (*Machine, error) {
	cmd := exec.CommandContext(ctx, Qemu, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-m", "384", "-smp", "1",
		"-accel", "tcg", "-cpu", "max", "-M", "microvm,acpi=on", "-kernel", s.Kernel.Image, "-initrd", s.Initramfs,
		// Without a given frequency a microvm often hangs while it calibrates its clock.
		"-append", "console=ttyS0 panic=-1 quiet random.trust_cpu=on no_timer_check tsc_early_khz=2600000",
		"-serial", "file:"+s.Console, "-device", "virtio-serial-device", "-chardev", "stdio,id=port,signal=off",
		"-device", "virtserialport,chardev=port",
		"-blockdev", "driver=nbd,node-name=d,server.type=unix,server.path="+s.Socket+",cache.direct=on", "-device", "virtio-blk-device,drive=d")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w (Debian package qemu-system-x86)", err)
	}
	m := &Machine{cmd: cmd, in: in, reports: make(chan guest.Report, 1), ended: make(chan struct{}), console: s.Console}
	go m.read(out)
	return m, nil
}

func (m *Machine) read(out io.Reader) {
	defer close(m.reports)
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var r guest.Report
		if err := json.Unmarshal(line, &r); err != nil {
			r = guest.Report{Broken: fmt.Sprintf("%q: %v", line, err)}
		}
		select {
		case m.reports <- r:
		case <-m.ended:
			return
		}
	}
}

// Next waits for the guest's next report.
func (m *Machine) Next(ctx context.Context) (guest.Report, error) { return m.next(ctx, patience) }

func (m *Machine) next(ctx context.Context, patience time.Duration) (guest.Report, error) {
	select {
	case r, ok := <-m.reports:
		if !ok {
			return r, m.wrong(errors.New("ended by itself"))
		}
		if r.Broken != "" {
			return r, m.wrong(errors.New(r.Broken))
		}
		return r, nil
	case <-time.After(patience):
		return guest.Report{}, m.wrong(fmt.Errorf("%w for %s", errSilent, patience))
	case <-ctx.Done():
		return guest.Report{}, ctx.Err()
	}
}

func (m *Machine) wrong(what error) error {
	console, _ := os.ReadFile(m.console) // it may say nothing
	return fmt.Errorf("the virtual machine %w; the end of its console: %s", what, console[max(0, len(console)-2000):])
}

// Tell gives the guest an order.
func (m *Machine) Tell(o guest.Order) error { return json.NewEncoder(m.in).Encode(o) }

// Logged answers a note.
func (m *Machine) Logged() error {
	_, err := io.WriteString(m.in, "\n")
	return err
}

// Kill ends the machine at once, as a power cut does, and waits until it is gone.
func (m *Machine) Kill() {
	close(m.ended)
	_ = m.cmd.Process.Kill() // it may have ended
	var exit *exec.ExitError
	if err := m.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "rig: wait for the virtual machine:", err)
	}
}
