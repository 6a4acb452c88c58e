package lease

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
)

// syncless is a file system without syncs.
type syncless struct{ vfs.FS }

func (s syncless) SyncDir(string) error { return nil }

func (s syncless) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := s.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return synclessFile{f}, nil
}

type synclessFile struct{ vfs.File }

func (synclessFile) Sync() error     { return nil }
func (synclessFile) Datasync() error { return nil }
func (synclessFile) SyncFS() error   { return nil }

// BenchmarkHeartbeatMany renews 64 records. "no-sync" leaves the syncs out and so shows the library's own cost; read B/op and allocs/op
// divided by 64 as the cost of one renewal.
func BenchmarkHeartbeatMany(b *testing.B) {
	for _, c := range []struct {
		name string
		opts Options
	}{
		{"no-sync", Options{FS: syncless{vfs.OS}}},
		{"sync", Options{}},
		{"no-sync/strategy=spare-wholefs", Options{FS: syncless{vfs.OS}, Strategy: groupcommit.SpareWholeFS}},
		{"sync/strategy=spare-wholefs", Options{Strategy: groupcommit.SpareWholeFS}},
	} {
		for _, shards := range []int{1, 8} {
			b.Run(fmt.Sprintf("fs=%s/records=64/shards=%d", c.name, shards), func(b *testing.B) {
				c.opts.Shards, c.opts.TTL = shards, time.Hour
				table, err := Open(filepath.Join(b.TempDir(), "root"), &c.opts)
				if err != nil {
					b.Fatal(err)
				}
				held := map[ID]Token{}
				for n := range 64 {
					if held[itemID(n)], err = table.Claim(bg, itemID(n), payload(`{"sequence":1}`), Holder{Owner: "bench"}); err != nil {
						b.Fatal(err)
					}
				}
				for range 2 { // until each record has its spare
					if _, err := table.HeartbeatMany(bg, held); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportAllocs()
				for b.Loop() {
					if _, err := table.HeartbeatMany(bg, held); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed())/float64(b.N)/64, "ns/renewal")
			})
		}
	}
}

func BenchmarkDecodeRecord(b *testing.B) {
	data := sealed(goodBody)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeRecord(data, firstOfShard0, DefaultMaxRecord); err != nil {
			b.Fatal(err)
		}
	}
}
