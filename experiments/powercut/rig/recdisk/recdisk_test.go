package recdisk

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

func newDisk(t testing.TB) *Disk {
	t.Helper()
	d, err := New(16 * BlockSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func fill(b byte, n int) []byte { return bytes.Repeat([]byte{b}, n) }

func write(t testing.TB, d *Disk, off int64, p []byte) {
	t.Helper()
	if _, err := d.WriteAt(p, off); err != nil {
		t.Fatal(err)
	}
}

func image(t testing.TB, r *Recording, pos int, m Mode, seed uint64) Image {
	t.Helper()
	c := r.Cursor()
	if err := c.Seek(pos); err != nil {
		t.Fatal(err)
	}
	return c.Image(m, seed)
}

func (im Image) read(off int64, n int) []byte {
	out := make([]byte, n)
	for i := range out {
		if b := im[(off+int64(i))/BlockSize]; b != nil {
			out[i] = b[(off+int64(i))%BlockSize]
		}
	}
	return out
}

func TestWhatWasFlushedSurvivesInEachMode(t *testing.T) {
	d := newDisk(t)
	write(t, d, 0, fill('o', 3*SectorSize)) // before the log: durable
	d.StartLog(Faults{})
	write(t, d, SectorSize, fill('n', SectorSize))
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	d.Mark("acknowledged")
	write(t, d, 0, fill('x', SectorSize))
	r := d.StopLog()
	for _, m := range Modes() {
		for seed := range uint64(20) {
			im := image(t, r, len(r.Events), m, seed)
			if got := im.read(SectorSize, SectorSize); !bytes.Equal(got, fill('n', SectorSize)) {
				t.Fatalf("mode %v: the flushed write is %q", m, got[:4])
			}
			if got := im.read(2*SectorSize, 1); got[0] != 'o' {
				t.Fatalf("mode %v: the base is %q", m, got)
			}
		}
	}
	if got := image(t, r, len(r.Events), None, 1).read(0, 1); got[0] != 'o' {
		t.Errorf("none: the unflushed write survived: %q", got)
	}
	if got := image(t, r, len(r.Events), All, 1).read(0, 1); got[0] != 'x' {
		t.Errorf("all: the unflushed write is lost: %q", got)
	}
	if got := image(t, r, 0, All, 1).read(SectorSize, 1); got[0] != 'o' {
		t.Errorf("position 0: %q", got)
	}
}

func TestALyingDiskMakesNothingDurable(t *testing.T) {
	d := newDisk(t)
	d.StartLog(Faults{Lying: true})
	write(t, d, 0, fill('n', SectorSize))
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	r := d.StopLog()
	if got := image(t, r, len(r.Events), None, 1).read(0, 1); got[0] != 0 {
		t.Errorf("survived: %q", got)
	}
}

func TestFailedFlushAndFailedWriteSurfaceOnce(t *testing.T) {
	d := newDisk(t)
	d.StartLog(Faults{FailFlushAt: 2, FailWriteAt: 3})
	write(t, d, 0, fill('a', SectorSize))
	write(t, d, 0, fill('b', SectorSize))
	if _, err := d.WriteAt(fill('c', SectorSize), 0); !errors.Is(err, syscall.EIO) {
		t.Errorf("third write: %v", err)
	}
	for i, want := range []error{nil, syscall.EIO, nil} {
		if err := d.Flush(); !errors.Is(err, want) {
			t.Errorf("flush %d: %v, want %v", i+1, err, want)
		}
	}
	var p [1]byte
	if _, err := d.ReadAt(p[:], 0); err != nil || p[0] != 'b' {
		t.Errorf("read %q, %v", p, err)
	}
	if got := d.StopLog().Faults(); !slices.Equal(got, []int{3, 5}) { // a, b, fault, flush, fault, flush
		t.Errorf("faults at %v", got)
	}
}

func TestATornWriteEndsAtASector(t *testing.T) {
	d := newDisk(t)
	d.StartLog(Faults{})
	write(t, d, 0, fill('n', 8*SectorSize))
	r := d.StopLog()
	lengths := map[int]bool{}
	for seed := range uint64(200) {
		n := bytes.IndexByte(append(image(t, r, 1, Prefix, seed).read(0, 8*SectorSize), 0), 0)
		if n%SectorSize != 0 {
			t.Fatalf("torn after %d bytes", n)
		}
		lengths[n/SectorSize] = true
	}
	if got := slices.Sorted(maps.Keys(lengths)); len(got) != 9 {
		t.Errorf("saw only %v sectors", got)
	}
}

func TestDiscardsReadAsZeros(t *testing.T) {
	d := newDisk(t)
	write(t, d, 0, fill('o', 2*BlockSize))
	d.StartLog(Faults{})
	if err := d.Discard(SectorSize, BlockSize); err != nil {
		t.Fatal(err)
	}
	r := d.StopLog()
	im := image(t, r, 1, All, 0)
	if got := im.read(0, 2*BlockSize); !bytes.Equal(got, slices.Concat(fill('o', SectorSize), make([]byte, BlockSize), fill('o', BlockSize-SectorSize))) {
		t.Error("discard has hit the wrong bytes")
	}
}

func TestALoadedDiskHoldsTheFile(t *testing.T) {
	d := newDisk(t)
	name := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(name, fill('f', int(d.Size())), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Load(name); err != nil {
		t.Fatal(err)
	}
	d.StartLog(Faults{})
	if got := image(t, d.StopLog(), 0, None, 1).read(d.Size()-1, 1); got[0] != 'f' {
		t.Errorf("read %q", got)
	}
	if err := os.Truncate(name, 10); err != nil {
		t.Fatal(err)
	}
	if d.Load(name) == nil {
		t.Error("a file that is too short was accepted")
	}
}

func TestRequestsOutsideTheDiskAreRefused(t *testing.T) {
	d := newDisk(t)
	if _, err := d.WriteAt([]byte{1}, d.Size()); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("write: %v", err)
	}
	if _, err := d.ReadAt(make([]byte, 2), d.Size()-1); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("read: %v", err)
	}
	if _, err := New(100); err == nil {
		t.Error("a size that isn't a multiple of the block was accepted")
	}
}

// Any log replayed in mode All to its end is what a reader of the disk saw, and a file written from it holds the same bytes.
func TestReplayingEverythingGivesTheDisk(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := newDisk(t)
		write(t, d, 0, fill('o', 4*BlockSize))
		d.StartLog(Faults{})
		for range rapid.IntRange(1, 30).Draw(rt, "events") {
			off := int64(rapid.IntRange(0, 15*BlockSize/SectorSize).Draw(rt, "sector")) * SectorSize
			n := rapid.IntRange(1, 8).Draw(rt, "sectors") * SectorSize
			switch rapid.IntRange(0, 3).Draw(rt, "kind") {
			case 0:
				if err := d.Flush(); err != nil {
					rt.Fatal(err)
				}
			case 1:
				if err := d.Discard(off, int64(n)); err != nil {
					rt.Fatal(err)
				}
			default:
				write(t, d, off, fill(rapid.Byte().Draw(rt, "byte"), n))
			}
		}
		r := d.StopLog()
		im := image(t, r, len(r.Events), All, 0)
		want := make([]byte, d.Size())
		if _, err := d.ReadAt(want, 0); err != nil {
			rt.Fatal(err)
		}
		if !bytes.Equal(im.read(0, len(want)), want) {
			rt.Fatal("replay differs from the disk")
		}
		name := filepath.Join(t.TempDir(), "image")
		if err := im.WriteFile(name, d.Size()); err != nil {
			rt.Fatal(err)
		}
		got, err := os.ReadFile(name)
		if err != nil || !bytes.Equal(got, want) {
			rt.Fatalf("the file differs from the disk: %v", err)
		}
	})
}

func TestTheSamePositionModeAndSeedGiveTheSameImage(t *testing.T) {
	d := newDisk(t)
	d.StartLog(Faults{})
	for i := range int64(20) {
		write(t, d, i*SectorSize, fill(byte('a'+i), 4*SectorSize))
	}
	r := d.StopLog()
	for _, m := range Modes() {
		a, b := image(t, r, 15, m, 7), image(t, r, 15, m, 7)
		if !maps.EqualFunc(a, b, bytes.Equal) {
			t.Errorf("mode %v isn't reproducible", m)
		}
	}
}
