package lease

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
)

// BenchmarkBeat renews an unchanged set with one flush; BenchmarkBareFlush is the bound: a write of as many bytes in place and its flush.
func BenchmarkBeat(b *testing.B) {
	for _, n := range []int{1, 64, 10_000} {
		b.Run(fmt.Sprintf("records=%d", n), func(b *testing.B) {
			// The claims are not what is measured: without their syncs they are quick.
			table, err := Open(filepath.Join(b.TempDir(), "root"), &Options{Shards: 64, TTL: time.Hour, Renewals: OneFlush, FS: claimsUnsynced})
			if err != nil {
				b.Fatal(err)
			}
			defer table.Close()
			held := map[ID]Token{}
			for i := range n {
				if held[itemID(i)], err = table.Claim(bg, itemID(i), nil, Holder{Owner: "bench"}); err != nil {
					b.Fatal(err)
				}
			}
			if _, err := table.HeartbeatMany(bg, held); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := table.HeartbeatMany(bg, held); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

var claimsUnsynced = vfs.Intercept(vfs.OS, func(c *vfs.Call, do func() error) error {
	if (c.Op == vfs.OpSync || c.Op == vfs.OpSyncDir) && filepath.Ext(c.Name) != beatExt {
		return nil
	}
	return do()
})

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
