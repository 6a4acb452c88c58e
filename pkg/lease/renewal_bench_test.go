package lease

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
)

// BenchmarkBeat renews an unchanged set with one flush; BenchmarkBareFlush is the bound: a write of as many bytes in place and its flush.
func BenchmarkBeat(b *testing.B) {
	for _, n := range []int{1, 64, 10_000} {
		b.Run(fmt.Sprintf("records=%d", n), func(b *testing.B) {
			table, held := heldSession(b, n, vfs.OS)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := table.HeartbeatMany(bg, held); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkBeatCPU is what a beat costs besides its flush: with the set of the beat before, and with a set that loses one lease or gains
// it back.
func BenchmarkBeatCPU(b *testing.B) {
	unsynced := vfs.Intercept(vfs.OS, func(c *vfs.Call, do func() error) error {
		if c.Op == vfs.OpDatasync {
			return nil
		}
		return do()
	})
	for _, n := range []int{64, 10_000, 100_000} {
		for _, set := range []string{"same", "changed"} {
			b.Run(fmt.Sprintf("set=%s/records=%d", set, n), func(b *testing.B) {
				table, held := heldSession(b, n, unsynced)
				coming := SumID(fmt.Append(nil, 0))
				tok := held[coming]
				b.ReportAllocs()
				before := cpuTime()
				for b.Loop() {
					if set == "changed" {
						if _, there := held[coming]; there {
							delete(held, coming)
						} else {
							held[coming] = tok
						}
					}
					batch, err := table.HeartbeatMany(bg, held)
					if err != nil || len(batch.Renewed) != len(held) {
						b.Fatal(len(batch.Renewed), err)
					}
				}
				b.ReportMetric(float64(cpuTime()-before)/float64(b.N)/float64(n), "cpu-ns/lease")
			})
		}
	}
}

// cpuTime is the processor time of this process in nanoseconds, which other processes do not lengthen much.
func cpuTime() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) // fails only for clocks that do not exist
	return t.Nano()
}

// heldSession is a table that beats for n leases. They were never claimed: as long as nothing is amiss, a beat does not look at records.
func heldSession(b *testing.B, n int, fsys vfs.FS) (*Table, map[ID]Token) {
	table, err := Open(filepath.Join(b.TempDir(), "root"), &Options{TTL: time.Hour, Renewals: OneFlush, FS: fsys})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { table.Close() })
	held := map[ID]Token{}
	now := time.Now()
	for i := range n {
		id := SumID(fmt.Append(nil, i))
		tok, err := table.s.nextToken(uint64(i))
		if err != nil {
			b.Fatal(err)
		}
		held[id] = tok
		table.s.session.remember(id, told{tok: tok, at: now, written: now, ttl: time.Hour})
	}
	if batch, err := table.HeartbeatMany(bg, held); err != nil || len(batch.Renewed) != n {
		b.Fatal(len(batch.Renewed), err)
	}
	return table, held
}

func BenchmarkBareFlush(b *testing.B) {
	name := filepath.Join(b.TempDir(), "file")
	if err := groupcommit.WriteFile(vfs.OS, name, make([]byte, listsAt), 0o600); err != nil {
		b.Fatal(err)
	}
	f, err := vfs.OS.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	data := make([]byte, slotBytes)
	for i := int64(0); b.Loop(); i++ {
		data[0] = byte(i)
		if _, err := f.WriteAt(data, i%2*slotSpacing); err != nil {
			b.Fatal(err)
		}
		if err := f.Datasync(); err != nil {
			b.Fatal(err)
		}
	}
}
