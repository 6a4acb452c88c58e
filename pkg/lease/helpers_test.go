package lease

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
	"shardlease/pkg/groupcommit/vfs/tracefs"
)

var bg = context.Background()

// clock is a wall clock under the test's control, in seconds since 1970 as the report's tests have it.
type clock struct{ ns atomic.Int64 }

func at(seconds float64) *clock {
	c := &clock{}
	c.set(seconds)
	return c
}

func (c *clock) set(seconds float64)      { c.ns.Store(int64(seconds * float64(time.Second))) }
func (c *clock) now() time.Time           { return time.Unix(0, c.ns.Load()) }
func (c *clock) add(d time.Duration)      { c.ns.Add(int64(d)) }
func seconds(s float64) time.Time         { return time.Unix(0, int64(s*float64(time.Second))).UTC() }
func paperID(prefix, fill string) ID      { return mustID(prefix + strings.Repeat(fill, 56)) }
func itemID(n int) ID                     { return SumID([]byte{byte(n >> 8), byte(n)}) }
func payload(text string) json.RawMessage { return json.RawMessage(text) }

func mustID(s string) ID {
	id, err := ParseID(s)
	if err != nil {
		panic(err)
	}
	return id
}

// The IDs of the report's directed tests.
var (
	firstOfShard0  = paperID("00000000", "a")
	secondOfShard0 = paperID("00000004", "b")
	onlyOfShard1   = paperID("00000001", "c")
)

// withoutSyncs makes tests fast: a sync is traced and can be failed, but the disk is left alone. What syncs are good for is checked with
// traces, crash states and real power cuts; processes in tests do sync.
func withoutSyncs(fsys vfs.FS) vfs.FS {
	return vfs.Intercept(fsys, func(c *vfs.Call, do func() error) error {
		switch c.Op {
		case vfs.OpSync, vfs.OpDatasync, vfs.OpSyncFS, vfs.OpSyncDir:
			return nil
		}
		return do()
	})
}

// fixture is a root with a traced file system on which faults can be injected, a clock, and a check of the root at the end.
type fixture struct {
	*testing.T
	root  string
	clock *clock
	trace *tracefs.Trace
	fault *faultfs.FS
	opts  Options
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{T: t, root: filepath.Join(t.TempDir(), "root"), clock: at(10)}
	f.trace = tracefs.New(withoutSyncs(vfs.OS), f.root)
	f.fault = faultfs.New(f.trace)
	f.opts = Options{Shards: 4, TTL: 10 * time.Second, Strategy: fixtureStrategy, Now: f.clock.now, FS: f.fault}
	t.Cleanup(func() { checkRoot(t, f.root) })
	return f
}

func (f *fixture) open() *Table {
	f.Helper()
	t, err := Open(f.root, &f.opts)
	f.must(err)
	f.trace.Reset()
	return t
}

func (f *fixture) openTargets() *TargetTable {
	f.Helper()
	t, err := OpenTargets(f.root, &f.opts)
	f.must(err)
	f.trace.Reset()
	return t
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// want fails unless err matches each of the targets.
func (f *fixture) want(err error, targets ...error) {
	f.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			f.Fatalf("error is %v, want one that matches %v", err, target)
		}
	}
}

func (f *fixture) claim(t *Table, id ID, owner string) Token {
	f.Helper()
	tok, err := t.Claim(bg, id, nil, Holder{Owner: owner})
	f.must(err)
	return tok
}

// updated is what a fresh table reads as the record's time.
func (f *fixture) updated(id ID) time.Time {
	f.Helper()
	r, err := f.open().Lookup(id)
	f.must(err)
	return r.Updated
}

// dirSyncs returns the base names of the directories synced since the last Reset, in order, failed attempts included.
func (f *fixture) dirSyncs() []string {
	var names []string
	for _, e := range f.trace.Events() {
		if e.Op == vfs.OpSyncDir {
			names = append(names, filepath.Base(e.Name))
		}
	}
	return names
}

// writes counts the operations since the last Reset that change a file or a directory.
func (f *fixture) writes() int {
	n := 0
	for _, e := range f.trace.Events() {
		switch e.Op {
		case vfs.OpWrite, vfs.OpWriteAt, vfs.OpRename, vfs.OpExchange, vfs.OpLink, vfs.OpRemove, vfs.OpMkdir, vfs.OpSync, vfs.OpDatasync,
			vfs.OpSyncDir, vfs.OpSyncFS:
			n++
		}
	}
	return n
}

func (f *fixture) file(id ID) string {
	return filepath.Join(f.root, shardName(id.shard(4)), id.String()+".json")
}

func (f *fixture) bytes(id ID) []byte {
	f.Helper()
	data, err := os.ReadFile(f.file(id))
	f.must(err)
	return data
}

func (f *fixture) plant(id ID, data []byte) {
	f.Helper()
	f.must(os.WriteFile(f.file(id), data, 0o666))
	f.Cleanup(func() { os.Remove(f.file(id)) }) // runs before checkRoot
}

// reporter is what testing.T and rapid.T have in common.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// checkRoot checks what must hold of a root at any time when nobody is writing: the layout is intact, each record decodes and lies in its
// shard, and there is no foreign file. Temp files are there only for records whose writer was killed.
func checkRoot(t reporter, root string) {
	t.Helper()
	if _, err := os.Stat(root); errors.Is(err, os.ErrNotExist) {
		return // the test never got to open it
	}
	data, err := os.ReadFile(filepath.Join(root, layoutFile))
	if err != nil {
		t.Errorf("checkRoot: %v", err)
		return
	}
	var l layout
	if err := json.Unmarshal(data, &l); err != nil || l.Format != layoutFormat || l.Shards < 1 {
		t.Errorf("checkRoot: layout is %s", data)
	}
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		checkName(t, l, rel, d)
		if id, ok := recordID(d.Name()); ok {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			r, err := decodeRecord(data, id, DefaultMaxRecord)
			if err != nil {
				t.Errorf("checkRoot: %v", err)
			} else if again := appendRecord(nil, &r); !bytes.Equal(again, unpadded(data)) {
				t.Errorf("checkRoot: %s is not canonical:\n%s%s", rel, data, again)
			}
			if want := shardName(id.shard(l.Shards)); filepath.Dir(rel) != want {
				t.Errorf("checkRoot: %s belongs into %s", rel, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Errorf("checkRoot: %v", err)
	}
}

func checkName(t reporter, l layout, rel string, d os.DirEntry) {
	t.Helper()
	dir, base := filepath.Split(rel)
	dir = filepath.Clean(dir)
	isShard := func(name string) bool {
		for shard := range l.Shards {
			if shardName(shard) == name {
				return true
			}
		}
		return false
	}
	ok := false
	switch {
	case rel == ".":
		ok = true
	case dir == "." && d.IsDir():
		ok = rel == locksDir || rel == renewalsDir || isShard(rel)
	case dir == ".":
		ok = rel == layoutFile
	case dir == locksDir:
		ok = base == layoutLock || base == strategyScratch+".lock" || isShard(strings.TrimSuffix(base, ".lock"))
	case dir == renewalsDir:
		ok = strings.HasSuffix(base, beatExt) || strings.HasSuffix(base, challengesExt)
	case isShard(dir):
		_, ok = recordID(strings.TrimSuffix(base, ".tmp"))
	}
	if !ok {
		t.Errorf("checkRoot: foreign file %s", rel)
	}
}

func writeAll(name string, data []byte) error { return os.WriteFile(name, data, 0o666) }

func publishNothing(context.Context, json.RawMessage) error { return nil }

type jsonRaw = json.RawMessage
