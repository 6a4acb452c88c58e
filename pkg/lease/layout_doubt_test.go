package lease_test

import (
	"syscall"
	"testing"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
	"shardlease/pkg/lease"
)

// A root that could not be opened since a sync failed is not taken for durable by the next process, whose barriers succeed: what that one acknowledges
// survives a power cut, and the root can be opened again.
func TestARootWhoseCreationFailedIsMadeAnew(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	failed := 0
	for k := 1; ; k++ {
		disk := crashfs.New()
		must(disk.Mkdir("/root", 0o777))
		must(disk.SyncDir("/"))
		syncs := 0
		broken := disk.WithFaults(func(c *vfs.Call) error {
			if c.Op == vfs.OpSync || c.Op == vfs.OpSyncDir {
				if syncs++; syncs == k {
					return syscall.EIO
				}
			}
			return nil
		})
		_, err := lease.Open("/root", &lease.Options{FS: broken, Shards: 2})
		if syncs < k {
			break
		}
		if err == nil {
			t.Errorf("sync %d failed, and Open did not say so", k)
		}
		failed++
		table, err := lease.Open("/root", &lease.Options{FS: disk, Shards: 2})
		must(err)
		id := lease.SumID([]byte("item"))
		tok, err := table.Claim(t.Context(), id, nil, lease.Holder{})
		must(err)
		for seed := range uint64(10) {
			after := disk.Crash(crashfs.Policy(seed%2), seed)
			again, err := lease.Open("/root", &lease.Options{FS: after, Shards: 2})
			if err != nil {
				t.Fatalf("sync %d failed, power cut %d: %v", k, seed, err)
			}
			if err := again.BeginCommit(t.Context(), id, tok, []byte("{}")); err != nil {
				t.Fatalf("sync %d failed, power cut %d: %v", k, seed, err)
			}
		}
	}
	if failed < 3 {
		t.Errorf("only %d syncs failed", failed)
	}
}
