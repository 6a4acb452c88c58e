package lease

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
)

// Rule 5, beyond.md row 8: another layout is refused, with both values.
func TestAnotherLayoutIsRefusedWithBothValues(t *testing.T) {
	f := newFixture(t)
	f.open()
	for _, c := range []struct {
		open func() error
		text []string
	}{
		{func() error { return second(Open(f.root, &Options{Shards: 8})) }, []string{"4 shards", "8 shards", "layout.json"}},
		{func() error { return second(OpenTargets(f.root, nil)) }, []string{`"work"`, `"targets"`}},
	} {
		err := c.open()
		f.want(err, ErrLayout)
		for _, text := range c.text {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%q does not say %q", err, text)
			}
		}
	}
	table, err := Open(f.root, nil) // 0 means what the root says
	f.must(err)
	if table.Shards() != 4 {
		t.Errorf("%d shards", table.Shards())
	}
}

func TestADamagedLayoutIsRefusedAndLeftAlone(t *testing.T) {
	for _, bad := range []string{"", "{", `{"format":"shardlease-layout-v2","kind":"work","shards":4}`, `{"format":"shardlease-layout-v1","kind":"work","shards":0}`,
		`{"format":"shardlease-layout-v1","kind":"work","shards":-4}`, `{"format":"shardlease-layout-v1","kind":"work","shards":99999}`} {
		f := newFixture(t)
		f.open()
		name := filepath.Join(f.root, layoutFile)
		good, err := os.ReadFile(name)
		f.must(err)
		f.must(writeAll(name, []byte(bad)))
		_, err = Open(f.root, nil)
		f.want(err, ErrLayout)
		if left, _ := os.ReadFile(name); string(left) != bad {
			t.Errorf("%q was overwritten", bad)
		}
		f.must(writeAll(name, good))
	}
}

// A root that lost its layout file is not given a new one over its records.
func TestARootWithRecordsButNoLayoutIsRefused(t *testing.T) {
	f := newFixture(t)
	f.claim(f.open(), firstOfShard0, "a")
	name := filepath.Join(f.root, layoutFile)
	good, err := os.ReadFile(name)
	f.must(err)
	f.must(os.Remove(name))
	_, err = Open(f.root, &Options{Shards: 64})
	f.want(err, ErrLayout)
	f.must(writeAll(name, good))
}

// A root whose creation fails or is cut short at any operation can be opened afterwards, and no open succeeds on half a root.
func TestCreationCutShortAnywhereIsFinishedByTheNextOpen(t *testing.T) {
	for nth := 1; ; nth++ {
		f := newFixture(t)
		f.fault.Inject(faultfs.Rule{Nth: nth, Sticky: true, Err: syscall.EIO, Match: noUnlock})
		_, err := Open(f.root, &f.opts)
		injected := f.fault.Injected()
		f.fault.Clear()
		if injected == 0 {
			if nth < 15 {
				t.Fatalf("creation takes %d operations only", nth)
			}
			f.must(err)
			return
		}
		f.want(err, syscall.EIO)
		f.claim(f.open(), firstOfShard0, "a")
	}
}

func noUnlock(c *vfs.Call) bool { return c.Op != vfs.OpUnlock && c.Op != vfs.OpClose }

func TestConcurrentCreatorsAgree(t *testing.T) {
	f := newFixture(t)
	var wg sync.WaitGroup
	results := make([]error, 8)
	for i := range results {
		wg.Go(func() { _, results[i] = Open(f.root, &Options{Shards: 1 + i%2}) })
	}
	wg.Wait()
	ok := 0
	for _, err := range results {
		if err == nil {
			ok++
		} else if !errors.Is(err, ErrLayout) {
			t.Error(err)
		}
	}
	if ok != 4 {
		t.Errorf("%d of 8 creators with two layouts succeeded", ok)
	}
}

// A layout is durable before anything in the root is acknowledged, also for those who only find it.
func TestOpenSyncsTheRootBeforeItAnswers(t *testing.T) {
	f := newFixture(t)
	f.open()
	f.fault.Inject(faultfs.Rule{Op: vfs.OpSyncDir, Err: syscall.EIO})
	f.want(second(Open(f.root, &f.opts)), syscall.EIO)
	f.fault.Clear()
	f.fault.Inject(faultfs.Rule{Op: vfs.OpSyncDir, Err: &fs.PathError{Op: "fsync", Path: "x", Err: syscall.EINVAL}})
	err := second(Open(f.root, &f.opts))
	f.want(err, syscall.EINVAL) // FS-16: not durable here
	f.want(second(Open("", nil)), fs.ErrInvalid)
}
