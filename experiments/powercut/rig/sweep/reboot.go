package sweep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"

	"shardlease/experiments/powercut/rig/guest"
	"shardlease/experiments/powercut/rig/history"
	"shardlease/experiments/powercut/rig/nbd"
	"shardlease/experiments/powercut/rig/recdisk"
	"shardlease/experiments/powercut/rig/vm"
	"shardlease/experiments/powercut/rig/workload"
)

// Reboot is a bench whose file systems are mounted by the kernel of a virtual machine: no root is needed.
type Reboot struct {
	Bench
	Kernel vm.Kernel
	Hung   int // boots that did not get as far as the guest, and were tried again
	disk   *recdisk.Disk
}

// Cycle is one life of a machine: it looks at what its predecessor has left, works, and is killed.
type Cycle struct {
	Marks       int    `json:"marks"`       // when it was killed
	Mode        string `json:"mode"`        // what survived of its disk's cache
	Fault       string `json:"fault"`       // found by the next machine
	Unmountable bool   `json:"unmountable"` // the fault is the file system's own: it did not survive
}

// Open makes a file system on a new recording disk and serves it. The returned function undoes it.
func (r *Reboot) Open() (func() error, error) {
	if err := errors.Join(r.CleanUp(), os.MkdirAll(r.Dir, 0o700)); err != nil {
		return nil, err
	}
	image := r.path("image")
	if err := (recdisk.Image{}).WriteFile(image, r.FS.Size); err != nil {
		return nil, err
	}
	if err := errors.Join(r.FS.Format(image), r.Kernel.Initramfs(r.path("initramfs"), r.Self)); err != nil {
		return nil, err
	}
	var err error
	if r.disk, err = recdisk.New(r.FS.Size); err != nil {
		return nil, err
	}
	if err := r.disk.Load(image); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", r.path("nbd"))
	if err != nil {
		return nil, err
	}
	served := make(chan error, 1)
	go func() { served <- nbd.Serve(l, r.disk) }()
	return func() error { return errors.Join(l.Close(), <-served, r.CleanUp()) }, nil
}

func (r *Reboot) boot(ctx context.Context) (*vm.Machine, error) {
	m, hung, err := vm.Boot(ctx, vm.Spec{Kernel: r.Kernel, Initramfs: r.path("initramfs"), Socket: r.path("nbd"), Console: r.path("console")})
	r.Hung += hung
	return m, err
}

// Cycles kills n machines in the middle of their work, each on what the cache of its predecessor's disk left. It returns the recording of
// the first life, for Sweep.
func (r *Reboot) Cycles(ctx context.Context, c workload.Config, n int, lying bool) (first *recdisk.Recording, all []Cycle, err error) {
	rng := rand.New(rand.NewPCG(c.Seed, 4))
	before := map[int]*history.Allowed{}
	for i := range n + 1 { // the last one only looks
		r.disk.StartLog(recdisk.Faults{Lying: lying})
		marks := 10 + rng.IntN(60)
		if i == n {
			marks = 0
		}
		found, err := r.life(ctx, c, before, marks)
		if err != nil {
			return first, all, err
		}
		rec := r.disk.StopLog()
		if i > 0 {
			all[i-1].Fault, all[i-1].Unmountable = found.Fault, found.Unmountable
		}
		if i == 0 {
			first = rec
		}
		if i == n || found.Fault != "" {
			return first, all, nil
		}
		mode := recdisk.Modes()[i%len(recdisk.Modes())]
		all = append(all, Cycle{Marks: marks, Mode: mode.String()})
		if before, err = history.Expect(before, rec, len(rec.Events)); err != nil {
			return first, all, err
		}
		cursor := rec.Cursor()
		if err := cursor.Seek(len(rec.Events)); err != nil {
			return first, all, err
		}
		if err := r.disk.Hold(cursor.Image(mode, c.Seed+uint64(i))); err != nil {
			return first, all, err
		}
		c.First += 100_000
	}
	return first, all, nil
}

// life boots, looks, works until so many marks are in the log, and is killed in the middle of an operation. It returns what the look found.
func (r *Reboot) life(ctx context.Context, c workload.Config, before map[int]*history.Allowed, marks int) (found guest.Report, err error) {
	m, err := r.boot(ctx)
	if err != nil {
		return found, err
	}
	defer m.Kill()
	if err := m.Tell(guest.Order{FS: r.FS.Name, Expected: before, Config: c, Work: marks > 0}); err != nil {
		return found, err
	}
	found, err = m.Next(ctx)
	if err != nil || found.Fault != "" {
		return found, err
	}
	for range marks {
		report, err := m.Next(ctx)
		if err != nil {
			return found, err
		}
		if report.Note == nil { // it has finished
			return found, nil
		}
		label, err := json.Marshal(report.Note)
		if err != nil {
			return found, err
		}
		r.disk.Mark(string(label))
		if err := m.Logged(); err != nil {
			return found, err
		}
	}
	return found, nil
}

// Sweep checks many crash states of one recording in one machine.
func (r *Reboot) Sweep(ctx context.Context, rec *recdisk.Recording, c workload.Config, p Plan) (rep Report, err error) {
	rep, chosen, err := begin(rec, p)
	if err != nil {
		return rep, err
	}
	m, err := r.boot(ctx)
	if err != nil {
		return rep, err
	}
	defer m.Kill()
	cursor := rec.Cursor()
	for i, at := range chosen {
		if err := cursor.Seek(at.pos); err != nil {
			return rep, err
		}
		expected, err := history.Expect(p.Before, rec, at.pos)
		if err != nil {
			return rep, err
		}
		for _, mode := range recdisk.Modes() {
			if err := r.disk.Hold(cursor.Image(mode, p.Seed)); err != nil {
				return rep, err
			}
			if err := m.Tell(guest.Order{FS: r.FS.Name, Expected: expected, Config: c}); err != nil {
				return rep, err
			}
			report, err := m.Next(ctx)
			if err != nil {
				return rep, err
			}
			var fault error
			switch {
			case report.Unmountable:
				fault = fmt.Errorf("%w: %s", errUnmountable, report.Fault)
			case report.Fault != "":
				fault = errors.New(report.Fault)
			}
			rep.Cells.add(Cell{mode.String(), at.afterAck, tally(fault)})
			if fault != nil && len(rep.Violations) < p.Keep {
				rep.Violations = append(rep.Violations, Violation{at.pos, mode.String(), p.Seed, fault.Error()})
			}
		}
		if p.Tell != nil {
			p.Tell((i+1)*len(recdisk.Modes()), len(chosen)*len(recdisk.Modes()))
		}
	}
	return rep, nil
}
