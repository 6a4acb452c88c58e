package recdisk

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
)

// Image is the content of a disk: its blocks that aren't all zeros, by block number. Blocks are shared between images and
// never changed in place.
type Image map[int64][]byte

var zeros [BlockSize]byte

func imageOf(mem []byte) Image {
	im := Image{}
	for off := 0; off < len(mem); off += BlockSize {
		if b := mem[off : off+BlockSize]; !bytes.Equal(b, zeros[:]) {
			im[int64(off/BlockSize)] = append([]byte(nil), b...)
		}
	}
	return im
}

func (im Image) clone() Image {
	c := make(Image, len(im))
	for n, b := range im {
		c[n] = b
	}
	return c
}

// put overwrites a range. Data nil means n zeros.
func (im Image) put(off int64, data []byte, n int64) {
	if data != nil {
		n = int64(len(data))
	}
	for done := int64(0); done < n; {
		block, at := (off+done)/BlockSize, (off+done)%BlockSize
		part := min(n-done, BlockSize-at)
		switch {
		case data == nil && part == BlockSize:
			delete(im, block)
		default:
			b := append([]byte(nil), im[block]...)
			if len(b) == 0 {
				b = make([]byte, BlockSize)
			}
			if data == nil {
				clear(b[at : at+part])
			} else {
				copy(b[at:], data[done:done+part])
			}
			im[block] = b
		}
		done += part
	}
}

func (im Image) apply(e Event) {
	switch e.Kind {
	case Write:
		im.put(e.Off, e.Data, 0)
	case Discard:
		im.put(e.Off, nil, e.Len)
	}
}

// WriteFile writes the image as a sparse file of size bytes.
func (im Image) WriteFile(name string, size int64) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close() // an error is seen by the writes; the file is scratch
	if err := f.Truncate(size); err != nil {
		return err
	}
	for n, b := range im {
		if _, err := f.WriteAt(b, n*BlockSize); err != nil {
			return err
		}
	}
	return nil
}

// Mode says which of the writes after the last flush survive.
type Mode uint8

const (
	None    Mode = iota // nothing after the last flush
	Prefix              // the first so many, the last of them torn at a sector
	Sectors             // each sector of each write or not, by chance
	Whole               // each write whole or not, by chance
	All                 // everything, in the order of arrival
)

// Modes lists them all. Never judge a rig by All alone: it keeps the order of arrival, so that a lying disk passes.
func Modes() []Mode { return []Mode{None, Prefix, Sectors, Whole, All} }

func (m Mode) String() string {
	return [...]string{"none", "prefix", "sectors", "whole", "all"}[m]
}

// ParseMode is the inverse of String.
func ParseMode(s string) (Mode, error) {
	for _, m := range Modes() {
		if m.String() == s {
			return m, nil
		}
	}
	return 0, fmt.Errorf("recdisk: unknown survival mode %q; known are %v", s, Modes())
}

// Recording is a log with the image it began from.
type Recording struct {
	Size   int64
	Base   Image
	Events []Event
}

// Cursor walks through a recording from left to right, so that a sweep over all positions applies each event once.
type Cursor struct {
	rec     *Recording
	pos     int // events before pos have happened
	durable Image
	pending []Event // since the last flush
}

// Cursor begins at position 0.
func (r *Recording) Cursor() *Cursor { return &Cursor{rec: r, durable: r.Base.clone()} }

// Seek moves to pos, which must not lie before the current position: the events before pos have happened.
func (c *Cursor) Seek(pos int) error {
	if pos < c.pos || pos > len(c.rec.Events) {
		return fmt.Errorf("recdisk: can't move from position %d to %d of %d", c.pos, pos, len(c.rec.Events))
	}
	for _, e := range c.rec.Events[c.pos:pos] {
		switch e.Kind {
		case Flush:
			for _, p := range c.pending {
				c.durable.apply(p)
			}
			c.pending = c.pending[:0]
		case Write, Discard:
			c.pending = append(c.pending, e)
		}
	}
	c.pos = pos
	return nil
}

// Pending returns how many writes and discards are not durable at the current position.
func (c *Cursor) Pending() int { return len(c.pending) }

// Image builds what survives a power cut at the current position. The same position, mode and seed give the same image.
func (c *Cursor) Image(m Mode, seed uint64) Image {
	im := c.durable.clone()
	rng := rand.New(rand.NewPCG(seed, uint64(c.pos)<<8|uint64(m)))
	switch m {
	case All:
		for _, e := range c.pending {
			im.apply(e)
		}
	case Prefix:
		if n := len(c.pending); n > 0 {
			last := rng.IntN(n)
			for _, e := range c.pending[:last] {
				im.apply(e)
			}
			torn := c.pending[last]
			if sectors := len(torn.Data) / SectorSize; torn.Kind == Write && sectors > 0 {
				torn.Data = torn.Data[:rng.IntN(sectors+1)*SectorSize]
				im.apply(torn)
			}
		}
	case Whole:
		p := rng.Float64()
		for _, e := range c.pending {
			if rng.Float64() < p {
				im.apply(e)
			}
		}
	case Sectors:
		p := rng.Float64()
		for _, e := range c.pending {
			if e.Kind == Discard {
				if rng.Float64() < p {
					im.apply(e)
				}
				continue
			}
			for at := 0; at < len(e.Data); at += SectorSize {
				if rng.Float64() < p {
					im.put(e.Off+int64(at), e.Data[at:min(at+SectorSize, len(e.Data))], 0)
				}
			}
		}
	}
	return im
}

// Faults returns the positions right after failed requests.
func (r *Recording) Faults() []int {
	var found []int
	for i, e := range r.Events {
		if e.Kind == Fault {
			found = append(found, i+1)
		}
	}
	return found
}

// Marks calls f for each mark with the position after it: a cut at that position or later happens after the mark.
func (r *Recording) Marks(f func(pos int, label string)) {
	for i, e := range r.Events {
		if e.Kind == Mark {
			f(i+1, e.Label)
		}
	}
}
