package groupcommit_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
)

// BenchmarkPublish renews 64 records of 600 bytes: one barrier for each record (scalar), or one for each directory, with
// each strategy. The experiments measure the same properly; this is for a profile and for the allocations.
func BenchmarkPublish(b *testing.B) {
	const n = 64
	for _, k := range []int{1, 8} {
		b.Run(fmt.Sprintf("scalar/dirs=%d", k), func(b *testing.B) { benchPublish(b, n, k, 1, groupcommit.Serial) })
		for _, s := range append(groupcommit.Strategies(), groupcommit.Auto) {
			b.Run(fmt.Sprintf("strategy=%v/dirs=%d", s, k), func(b *testing.B) { benchPublish(b, n, k, n, s) })
		}
	}
}

func benchPublish(b *testing.B, n, k, perBatch int, s groupcommit.Strategy) {
	dir := b.TempDir()
	w, err := groupcommit.NewWriter(vfs.OS, s, filepath.Join(dir, "scratch"))
	if err != nil {
		b.Fatal(err)
	}
	var list []groupcommit.Update
	for i := range n {
		name := filepath.Join(dir, fmt.Sprint(i%k), fmt.Sprint(i))
		if err := groupcommit.MkdirAll(vfs.OS, filepath.Dir(name), 0o777); err != nil {
			b.Fatal(err)
		}
		list = append(list, groupcommit.Update{Name: name, Data: make([]byte, 600), Perm: 0o666})
	}
	run := func() {
		for i := 0; i < n; i += perBatch {
			batch := w.NewBatch()
			err := errors.Join(batch.Publish(list[i : i+perBatch])...)
			if _, ferr := batch.Flush(); err != nil || ferr != nil {
				b.Fatal(err, ferr)
			}
		}
	}
	for range 3 { // until each record has its spare
		run()
	}
	b.ReportAllocs()
	for b.Loop() {
		run()
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "us/record")
}
