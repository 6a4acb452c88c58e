// Package guest is what the rig does as the first process of a virtual machine: it mounts the disk and does what its host says over a
// serial port, one JSON object a line.
package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"shardlease/experiments/powercut/rig/history"
	"shardlease/experiments/powercut/rig/workload"
)

// Order is one line from the host.
type Order struct {
	FS       string                   `json:"fs"`
	Expected map[int]*history.Allowed `json:"expected"`
	Config   workload.Config          `json:"config"`
	Work     bool                     `json:"work"` // after looking, run the workload; else show that the tables go on
}

// Report is one line to the host.
type Report struct {
	Ready       bool              `json:"ready,omitempty"`
	Checked     bool              `json:"checked,omitempty"`
	Fault       string            `json:"fault,omitempty"`
	Unmountable bool              `json:"unmountable,omitempty"`
	Note        *history.Note     `json:"note,omitempty"` // the host answers with an empty line once it is in the log
	Outcome     *workload.Outcome `json:"outcome,omitempty"`
	Broken      string            `json:"broken,omitempty"` // the guest itself
}

const (
	disk = "/dev/vda"
	mnt  = "/mnt"
)

// Main never returns.
func Main() {
	err := setUp()
	var port *os.File
	if err == nil {
		port, err = openPort()
	}
	if err == nil {
		err = serve(port)
	}
	fmt.Println("guest:", err)
	if port != nil {
		_ = json.NewEncoder(port).Encode(Report{Broken: fmt.Sprint(err)}) // the console has it too
	}
	unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	select {}
}

func setUp() error {
	for _, m := range [][2]string{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}} {
		if err := unix.Mount(m[0], m[1], m[0], 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m[1], err)
		}
	}
	modules, err := filepath.Glob("/modules/*.ko")
	if err != nil {
		return err
	}
	for _, m := range modules {
		f, err := os.Open(m)
		if err != nil {
			return err
		}
		if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load %s: %w", m, err)
		}
		f.Close()
	}
	return nil
}

func openPort() (port *os.File, err error) {
	for range 500 {
		if _, err = os.Stat(disk); err == nil {
			if port, err = os.OpenFile("/dev/vport0p1", os.O_RDWR, 0); err == nil {
				return port, nil
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, err
}

func serve(port *os.File) error {
	in, out := bufio.NewReader(port), json.NewEncoder(port)
	if err := out.Encode(Report{Ready: true}); err != nil {
		return err
	}
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return err
		}
		var o Order
		if err := json.Unmarshal(line, &o); err != nil {
			return err
		}
		if err := obey(o, in, out); err != nil {
			return err
		}
	}
}

func obey(o Order, in *bufio.Reader, out *json.Encoder) error {
	ctx := context.Background()
	o.Config.Root = mnt
	if err := unix.Mount(disk, mnt, o.FS, unix.MS_NOATIME, ""); err != nil {
		return out.Encode(Report{Checked: true, Fault: "mount: " + err.Error(), Unmountable: true})
	}
	if !o.Work {
		r := Report{Checked: true, Fault: text(workload.Check(ctx, o.Config, o.Expected))}
		if err := leave(); err != nil { // before the report: the host changes the disk as soon as it has it
			return err
		}
		return out.Encode(r)
	}
	r := Report{Checked: true, Fault: text(workload.Look(ctx, o.Config, o.Expected))}
	if err := out.Encode(r); err != nil || r.Fault != "" {
		return err
	}
	var mu sync.Mutex
	outcome, err := workload.Run(ctx, o.Config, func(n history.Note) error {
		mu.Lock()
		defer mu.Unlock()
		if err := out.Encode(Report{Note: &n}); err != nil {
			return err
		}
		_, err := in.ReadBytes('\n')
		return err
	})
	if err != nil {
		return err
	}
	return errors.Join(leave(), out.Encode(Report{Outcome: &outcome}))
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// leave unmounts the disk and empties its cache, since the host is about to change its content.
func leave() error {
	if err := unix.Unmount(mnt, 0); err != nil {
		return err
	}
	f, err := os.Open(disk)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.IoctlSetInt(int(f.Fd()), unix.BLKFLSBUF, 0)
}
