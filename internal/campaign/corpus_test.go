package campaign

import (
	"errors"
	"syscall"
	"testing"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
	"shardlease/pkg/lease"
)

// G6: one master links a child, and its barrier fails, so that the disk forgets the name. Another finds the child, as its own to analyse, as an input, or as
// a child of its own item as well, and its barriers succeed. What it relies on then must survive.
func TestAnObjectOfAPublisherWhoseBarrierFailedIsMadeDurableByWhoeverReliesOnIt(t *testing.T) {
	data := []byte("child")
	child := lease.SumID(data)
	for how, rely := range map[string]func(c *Corpus, staged string) error{
		"adopts": func(c *Corpus, _ string) error { return c.Settle(child) },
		"adds":   func(c *Corpus, _ string) error { return c.Add(child, data) },
		"publishes": func(c *Corpus, staged string) error {
			_, err := c.Promote(staged, child)
			return errors.Join(err, c.Settle(child))
		},
	} {
		fsys := disk(t, "/out", "/stage")
		put(t, fsys, "/stage/one", string(data))
		put(t, fsys, "/stage/two", string(data))
		broken := fsys.WithFaults(func(c *vfs.Call) error {
			if c.Op == vfs.OpSyncDir {
				return syscall.EIO
			}
			return nil
		})
		first := NewCorpus(broken, "/out", 100, "first")
		if added, err := first.Promote("/stage/one", child); err != nil || !added {
			t.Fatal(added, err)
		}
		if err := first.Settle(child); !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
		if err := rely(NewCorpus(fsys, "/out", 100, "second"), "/stage/two"); err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(10) {
			after := fsys.Crash(crashfs.Policy(seed%2), seed)
			if err := NewCorpus(after, "/out", 100, "third").Verify(child); err != nil {
				t.Errorf("the second master %s it, power cut %d: %v", how, seed, err)
			}
		}
	}
}

// Children that a master has linked itself cost one barrier together, and no copies.
func TestOwnChildrenShareOneBarrier(t *testing.T) {
	fsys := disk(t, "/out", "/stage")
	calls := map[vfs.Op]int{}
	c := NewCorpus(vfs.Intercept(fsys, func(call *vfs.Call, do func() error) error {
		calls[call.Op]++
		return do()
	}), "/out", 100, "w")
	var ids []lease.ID
	for _, text := range []string{"one", "two", "three"} {
		put(t, fsys, "/stage/"+text, text)
		ids = append(ids, lease.SumID([]byte(text)))
		if _, err := c.Promote("/stage/"+text, ids[len(ids)-1]); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := c.Settle(ids...); err != nil {
			t.Fatal(err)
		}
	}
	if calls[vfs.OpSyncDir] != 1 || calls[vfs.OpSync]+calls[vfs.OpRename] != 0 {
		t.Errorf("%v", calls)
	}
}
