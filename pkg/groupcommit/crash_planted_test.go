package groupcommit_test

import (
	"errors"
	"path"
	"testing"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
)

// planted is a durability bug, and the least that must catch it.
type planted struct {
	name string
	work func(w world) error
	also func(vfs.FS) error
	wrap func(vfs.FS) vfs.FS     // the bug, if it can be put under the code
	disk func(c *vfs.Call) bool  // the first operation that it fails with EIO
	by   map[crashfs.Policy]bool // which policy alone catches it
	note string                  // what the catch means on real disks
}

var (
	byBoth   = map[crashfs.Policy]bool{crashfs.Strict: true, crashfs.Journal: true}
	byStrict = map[crashfs.Policy]bool{crashfs.Strict: true}
)

// without leaves out the operations that match, and says that they were done.
func without(match func(c *vfs.Call) bool) func(vfs.FS) vfs.FS {
	return func(fsys vfs.FS) vfs.FS {
		return vfs.Intercept(fsys, func(c *vfs.Call, do func() error) error {
			if match(c) {
				return nil
			}
			return do()
		})
	}
}

// retried repeats a failed sync until it succeeds.
func retried(fsys vfs.FS) vfs.FS {
	return vfs.Intercept(fsys, func(c *vfs.Call, do func() error) error {
		err := do()
		for n := 0; err != nil && n < 3 && (c.Op == vfs.OpSync || c.Op == vfs.OpSyncDir); n++ {
			err = do()
		}
		return err
	})
}

// flushUntilError is a Flush that stops at the first failed barrier and takes the directories after it for durable.
func flushUntilError(fsys vfs.FS) vfs.FS {
	failed := false
	return vfs.Intercept(fsys, func(c *vfs.Call, do func() error) error {
		if failed && c.Op == vfs.OpSyncDir {
			return nil
		}
		err := do()
		failed = failed || err != nil && c.Op == vfs.OpSyncDir
		return err
	})
}

// sourceFirst is Replace with its barriers in the wrong order.
func sourceFirst(fsys vfs.FS, oldname, newname string) error {
	return errors.Join(fsys.Rename(oldname, newname), fsys.SyncDir(path.Dir(oldname)), fsys.SyncDir(path.Dir(newname)))
}

// inNewShard publishes a record in a directory that it makes.
func inNewShard(w world) error {
	err := w.do("MkdirAll", func() error { return groupcommit.MkdirAll(w.fsys, "/n", 0o755) }, map[string]string{"/n": directory})
	w.may("/n/r", absent)
	return errors.Join(err, publishing("/n/r")(w))
}

func isOp(op vfs.Op, names ...string) func(c *vfs.Call) bool {
	return func(c *vfs.Call) bool {
		for _, n := range names {
			if c.Op == op && c.Name == n {
				return true
			}
		}
		return c.Op == op && len(names) == 0
	}
}

var plantedBugs = []planted{
	{name: "no file sync", work: publishing("/s/a"), wrap: without(isOp(vfs.OpSync)), by: byBoth,
		note: "95 to 100 % of cuts leave empty files on ext4"},
	{name: "no directory sync", work: publishing("/s/a"), wrap: without(isOp(vfs.OpSyncDir)), by: byBoth},
	{name: "no directory sync after a removal", wrap: without(isOp(vfs.OpSyncDir)), by: byBoth, work: func(w world) error {
		return w.do("Remove", func() error { return groupcommit.Remove(w.fsys, "/s/a") }, map[string]string{"/s/a": absent})
	}},
	{name: "no parent sync of a new shard", work: inNewShard, wrap: without(isOp(vfs.OpSyncDir, "/")), by: byBoth,
		note: "the promise of MkdirAll itself, before anything else is synced"},
	{name: "no parent sync of a new shard, seen by its record alone", wrap: without(isOp(vfs.OpSyncDir, "/")), by: byStrict,
		note: "journals carry the parent along: nothing was lost on ext4, XFS and btrfs", work: func(w world) error {
			w.may("/n", absent, directory)
			w.may("/n/r", absent)
			return errors.Join(groupcommit.MkdirAll(w.fsys, "/n", 0o755), publishing("/n/r")(w))
		}},
	{name: "source barrier before destination", work: replaceAcross(sourceFirst), wrap: asItIs,
		also: someName("s/a", "/s/a", "/t/moved"), by: byStrict, note: "a journal makes the rename one operation"},
	{name: "retry of a failed file sync", work: publishing("/s/a"), wrap: retried, disk: isOp(vfs.OpSync), by: byBoth},
	{name: "retry of a failed directory sync", work: publishing("/s/a"), wrap: retried, disk: isOp(vfs.OpSyncDir), by: byBoth},
	{name: "barrier skipped after an earlier error", work: flushOutcome, wrap: flushUntilError,
		disk: isOp(vfs.OpSyncDir, "/s"), by: byBoth},
}

// Each planted bug is caught, and by each policy that can show it.
func TestPlantedDurabilityBugsAreCaught(t *testing.T) {
	for _, b := range plantedBugs {
		t.Run(b.name, func(t *testing.T) {
			for _, policy := range []crashfs.Policy{crashfs.Strict, crashfs.Journal} {
				f, p := start(t)
				s := &crashfs.Sweep{Limit: crashLimit, Policies: []crashfs.Policy{policy}}
				if b.disk != nil {
					s.Fault = once(b.disk)
				}
				err := cutAndWork(crashCase{b.name, b.work, b.also}, f, p, true, s, b.wrap, func(*crashfs.FS) error { return nil })
				if caught := err != nil; caught != b.by[policy] {
					t.Errorf("%v policy: caught %v, want %v (%s): %v", policy, caught, b.by[policy], b.note, err)
				} else if caught {
					t.Logf("%v policy: %v", policy, err)
				}
			}
		})
	}
}
