package sim_test

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"shardlease/internal/campaign/sim"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
	"shardlease/pkg/lease"
)

// cutAt runs a campaign of one master until a record gets the given status: until just before its name is switched, or just after, without its barrier.
func cutAt(t *testing.T, disk *crashfs.FS, status lease.Status, switched bool, begin time.Time) {
	t.Helper()
	defer func() {
		if _, ok := recover().(killed); !ok {
			t.Fatalf("no record became %s", status)
		}
	}()
	seen := false
	cfg := config(t, disk, 1, &bytes.Buffer{})
	cfg.Ranks, cfg.Start = 2, begin
	cfg.FS = func(int) vfs.FS {
		return vfs.Intercept(disk, func(c *vfs.Call, do func() error) error {
			if c.Op == vfs.OpRename && filepath.Ext(c.NewName) == ".json" {
				data, err := vfs.ReadFile(disk, c.Name, 1<<20)
				seen = seen || err == nil && bytes.Contains(data, []byte(`"status":"`+status+`"`))
			}
			if seen && (!switched || c.Op == vfs.OpSyncDir) {
				panic(killed{})
			}
			return do()
		})
	}
	c, err := sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Run(t.Context(), time.Minute) // does not return
}

// A master dies after it has switched a record to committing and before the barrier; the next run redoes the commit and dies before it is done; then the
// power fails. The record may be leased again, but then nothing of the result may be public: the item will be analysed again, perhaps with another.
func TestACommitIsRedoneOnlyWhenItIsDurable(t *testing.T) {
	disk := seeded(t, 1)
	cutAt(t, disk, lease.Committing, true, start)
	disk = disk.Clone() // without the dead process's locks
	cutAt(t, disk, lease.Done, false, start.Add(time.Minute))
	for seed := range uint64(40) {
		after := disk.Crash(crashfs.Policy(seed%2), seed)
		table, err := lease.Open(epochDir, &lease.Options{FS: after})
		if err != nil {
			t.Fatal(err)
		}
		committed, err := table.Committing(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if n := objects(t, after); n > 1 && len(committed) == 0 {
			t.Fatalf("power cut %d: %d objects are public, but no commit is there: %s", seed, n, after.Cut())
		}
	}
}
