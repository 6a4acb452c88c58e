// Package recdisk is a disk that remembers what it was told and in which order, so that afterwards every state can be built
// in which a power cut may have left it.
//
// A Disk keeps what its readers see, and a log of all writes, discards, flushes and marks since StartLog, in the one order in
// which they arrived. A mark is an event of the application ("this was acknowledged"); it has an exact place in the
// log because its sender waits until it is in it. Recording.Images then builds the surviving images: everything
// before the last completed flush is there, and of the writes after it a chosen part.
//
// The power cut is a reading of the log, not something that happens to the mounted file system; that one lives on and
// is unmounted in peace. So one recorded run of a tenth of a second gives thousands of crash states.
package recdisk

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// SectorSize is the unit that a disk writes whole or not at all.
	SectorSize = 512
	// BlockSize is the unit in which images are kept; blocks of zeros are not kept.
	BlockSize = 4096
)

// Kind says what an Event is.
type Kind uint8

const (
	Write   Kind = iota + 1
	Discard      // reads as zeros afterwards
	Flush        // completed: everything before it is durable
	Mark         // of the application
	Fault        // a request that failed; nothing was done
)

func (k Kind) String() string {
	return [...]string{"?", "write", "discard", "flush", "mark", "fault"}[k]
}

// Event is one entry of the log.
type Event struct {
	Kind  Kind
	Off   int64
	Len   int64  // of a discard
	Data  []byte // of a write
	Label string // of a mark
}

// Disk is safe for concurrent use. What it holds is lost when the process ends.
type Disk struct {
	mu     sync.Mutex
	cur    []byte
	base   Image
	log    []Event
	on     bool
	faults Faults
	writes int
	flush  int
}

// Faults are the ways in which the disk can misbehave. Counts begin at StartLog, from 1; 0 means never.
type Faults struct {
	Lying       bool // flushes return at once and make nothing durable
	FailFlushAt int  // this flush fails with EIO and makes nothing durable; a later one may
	FailWriteAt int  // this write fails with EIO and is not done, and nobody will do it later
	// Holding, if not empty, makes FailWriteAt count only the writes that hold this text: file contents, not the journal.
	Holding string
}

// New returns a disk of size bytes, all zeros. It takes memory only for what is written.
func New(size int64) (*Disk, error) {
	if size <= 0 || size%BlockSize != 0 {
		return nil, fmt.Errorf("recdisk: size %d is not a positive multiple of %d", size, BlockSize)
	}
	mem, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("recdisk: %w", err)
	}
	return &Disk{cur: mem}, nil
}

// Close gives the memory back. The disk must not be used afterwards.
func (d *Disk) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return unix.Munmap(d.cur)
}

// Load fills a new disk with what the file holds, which is as long as the disk.
func (d *Disk) Load(file string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	buf := make([]byte, 1<<20)
	for off := 0; off < len(d.cur); off += len(buf) {
		buf = buf[:min(len(buf), len(d.cur)-off)]
		if _, err := io.ReadFull(f, buf); err != nil {
			return fmt.Errorf("recdisk: load %s: %w", file, err)
		}
		for at := 0; at < len(buf); at += BlockSize { // zeros that are not written take no memory
			if b := buf[at : at+BlockSize]; !bytes.Equal(b, zeros[:]) {
				copy(d.cur[off+at:], b)
			}
		}
	}
	return nil
}

// Hold makes the disk hold the image, outside of any log.
func (d *Disk) Hold(im Image) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.on = false
	if err := unix.Madvise(d.cur, unix.MADV_DONTNEED); err != nil { // anonymous memory then reads as zeros
		return err
	}
	for n, b := range im {
		copy(d.cur[n*BlockSize:], b)
	}
	return nil
}

// Size returns the number of bytes.
func (d *Disk) Size() int64 { return int64(len(d.cur)) }

func (d *Disk) check(n int, off int64) error {
	if off < 0 || off+int64(n) > d.Size() {
		return fmt.Errorf("recdisk: %d bytes at %d are outside the disk: %w", n, off, syscall.EINVAL)
	}
	return nil
}

// ReadAt reads what was written last, durable or not.
func (d *Disk) ReadAt(p []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(len(p), off); err != nil {
		return 0, err
	}
	return copy(p, d.cur[off:]), nil
}

// WriteAt writes into the disk's cache.
func (d *Disk) WriteAt(p []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(len(p), off); err != nil {
		return 0, err
	}
	if d.on {
		if bytes.Contains(p, []byte(d.faults.Holding)) {
			d.writes++
			if d.writes == d.faults.FailWriteAt {
				d.log = append(d.log, Event{Kind: Fault})
				return 0, syscall.EIO
			}
		}
		d.log = append(d.log, Event{Kind: Write, Off: off, Data: append([]byte(nil), p...)})
	}
	return copy(d.cur[off:], p), nil
}

// Discard makes a range read as zeros.
func (d *Disk) Discard(off, n int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(int(n), off); err != nil {
		return err
	}
	if d.on {
		d.log = append(d.log, Event{Kind: Discard, Off: off, Len: n})
	}
	clear(d.cur[off : off+n])
	return nil
}

// Flush makes everything written before it durable, unless a fault says otherwise.
func (d *Disk) Flush() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.on {
		return nil
	}
	d.flush++
	switch {
	case d.flush == d.faults.FailFlushAt:
		d.log = append(d.log, Event{Kind: Fault})
		return syscall.EIO
	case !d.faults.Lying:
		d.log = append(d.log, Event{Kind: Flush})
	}
	return nil
}

// Mark puts an event of the application into the log.
func (d *Disk) Mark(label string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.on {
		d.log = append(d.log, Event{Kind: Mark, Label: label})
	}
}

// StartLog takes the disk as it is now for durable, forgets the log so far and begins a new one. Both happen at one instant: a write
// in between would be in neither.
func (d *Disk) StartLog(f Faults) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.base = imageOf(d.cur)
	d.log, d.on, d.faults, d.writes, d.flush = nil, true, f, 0, 0
}

// StopLog ends the log and returns it.
func (d *Disk) StopLog() *Recording {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.on = false
	return &Recording{Size: d.Size(), Base: d.base, Events: d.log}
}
