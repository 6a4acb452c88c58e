package groupcommit_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
)

// BenchmarkPublish renews 64 records of 420 bytes, one barrier for each record (scalar) and one for each directory
// (batch). The experiments measure the same properly; this is for a profile and for the allocations.
func BenchmarkPublish(b *testing.B) {
	const n = 64
	for _, k := range []int{1, 8} {
		for _, perBatch := range []int{1, n} {
			name := map[int]string{1: "scalar", n: "batch"}[perBatch]
			b.Run(fmt.Sprintf("%s/dirs=%d", name, k), func(b *testing.B) {
				list := benchUpdates(b, n, k)
				b.ReportAllocs()
				for b.Loop() {
					for i := 0; i < n; i += perBatch {
						batch := groupcommit.NewBatch(vfs.OS)
						err := errors.Join(batch.Publish(list[i : i+perBatch])...)
						if _, ferr := batch.Flush(); err != nil || ferr != nil {
							b.Fatal(err, ferr)
						}
					}
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/n, "us/record")
			})
		}
	}
}

func benchUpdates(b *testing.B, n, k int) (list []groupcommit.Update) {
	dir := b.TempDir()
	for i := range n {
		name := filepath.Join(dir, fmt.Sprint(i%k), fmt.Sprint(i))
		if err := groupcommit.MkdirAll(vfs.OS, filepath.Dir(name), 0o777); err != nil {
			b.Fatal(err)
		}
		list = append(list, groupcommit.Update{Name: name, Data: make([]byte, 420), Perm: 0o666})
	}
	return list
}
