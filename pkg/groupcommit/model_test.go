package groupcommit_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
	"shardlease/pkg/groupcommit/vfs/tracefs"
)

// model is a batch as simple as it can be.
type model struct {
	dirs    map[string]*modelDir
	pending []string
	batch   *groupcommit.Batch
	trace   *tracefs.Trace
	faults  *faultfs.FS
}

type modelDir struct {
	files   map[string]string
	suspect bool
}

// Invariants G2 to G6 against a model: random updates, removals and flushes under random faults. The names hold what the
// model says, the pending directories are those changed, in order of first use, and what a Flush calls durable passes
// the check of the trace.
func TestBatchAgreesWithAModel(t *testing.T) {
	root := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(root, "")
		if err != nil {
			t.Fatal(err)
		}
		faults := faultfs.New(vfs.OS)
		trace := tracefs.New(faults, dir)
		m := &model{dirs: map[string]*modelDir{}, batch: groupcommit.NewBatch(trace), trace: trace, faults: faults}
		trace.Mark("ack") // of nothing
		shards := []string{filepath.Join(dir, "0"), filepath.Join(dir, "1"), filepath.Join(dir, "2")}
		for _, d := range shards {
			m.dirs[d] = &modelDir{files: map[string]string{}}
			if err := os.Mkdir(d, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		kinds := []vfs.Op{"", "", vfs.OpOpen, vfs.OpWrite, vfs.OpSync, vfs.OpRename, vfs.OpRemove, vfs.OpSyncDir}
		for i := range rapid.IntRange(1, 12).Draw(t, "steps") {
			fault := rapid.SampledFrom(kinds).Draw(t, "fault")
			faults.Clear()
			if fault != "" {
				faults.Inject(faultfs.Rule{Op: fault, Err: errInjected})
			}
			d, name := rapid.SampledFrom(shards).Draw(t, "dir"), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name")
			switch rapid.SampledFrom([]string{"publish", "publish", "remove", "flush"}).Draw(t, "step") {
			case "publish":
				m.publish(t, d, name, fmt.Sprint(i))
			case "remove":
				m.remove(t, d, name)
			case "flush":
				m.flush(t, fault)
			}
			if got := m.batch.Pending(); !slices.Equal(got, m.pending) {
				t.Fatalf("pending %q, want %q", got, m.pending)
			}
		}
		checkNames(t, m.dirs)
		if err := trace.Check("ack"); err != nil {
			t.Fatal(err)
		}
	})
}

func (m *model) changed(dir string) {
	if !slices.Contains(m.pending, dir) {
		m.pending = append(m.pending, dir)
	}
}

func (m *model) publish(t *rapid.T, dir, name, text string) {
	err := m.batch.Publish([]groupcommit.Update{{Name: filepath.Join(dir, name), Data: []byte(text), Perm: 0o666}})[0]
	if (err == nil) != (!m.dirs[dir].suspect && m.faults.Injected() == 0) {
		t.Fatalf("publish: %v, injected %d, suspect %v", err, m.faults.Injected(), m.dirs[dir].suspect)
	}
	if err == nil {
		m.dirs[dir].files[name] = text
		m.changed(dir)
	}
}

func (m *model) remove(t *rapid.T, dir, name string) {
	d := m.dirs[dir]
	_, present := d.files[name]
	err := m.batch.Remove(filepath.Join(dir, name))
	injected := m.faults.Injected() > 0
	if (err == nil) != (present && !d.suspect && !injected) {
		t.Fatalf("remove: %v, present %v, injected %v, suspect %v", err, present, injected, d.suspect)
	}
	gone := !present && injected // an error other than "does not exist", and it does not exist
	if errors.Is(err, groupcommit.ErrUnknown) != gone {
		t.Fatalf("remove: %v, present %v, injected %v", err, present, injected)
	}
	if err == nil || gone {
		delete(d.files, name)
		m.changed(dir)
	}
}

func (m *model) flush(t *rapid.T, fault vfs.Op) {
	failed := fault == vfs.OpSyncDir && len(m.pending) > 0 // the first pending one
	if failed {
		m.dirs[m.pending[0]].suspect = true
	}
	res, err := m.batch.Flush()
	if len(res.Unknown) == 0 {
		m.trace.Mark("ack")
	}
	checkFlush(t, m.dirs, m.pending, failed, res, err)
	m.pending = nil
}

func checkFlush(t *rapid.T, model map[string]*modelDir, pending []string, failed bool, res groupcommit.Flushed, err error) {
	durable := pending
	if failed {
		durable = pending[1:]
	}
	if !slices.Equal(res.Durable, durable) {
		t.Fatalf("durable %q, want %q", res.Durable, durable)
	}
	suspects := 0
	for dir, m := range model {
		if m.suspect != slices.Contains(res.Unknown, dir) {
			t.Fatalf("%s: suspect %v, unknown %q", dir, m.suspect, res.Unknown)
		}
		if m.suspect {
			suspects++
		}
	}
	if len(res.Unknown) != suspects || errors.Is(err, groupcommit.ErrUnknown) != (suspects > 0) {
		t.Fatalf("unknown %q and %v with %d suspects", res.Unknown, err, suspects)
	}
}

func checkNames(t *rapid.T, model map[string]*modelDir) {
	for dir, m := range model {
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != len(m.files) {
			t.Fatalf("%s holds %v, want %v (%v)", dir, entries, m.files, err)
		}
		for name, text := range m.files {
			if got := content(filepath.Join(dir, name)); got != text {
				t.Fatalf("%s/%s holds %q, want %q", dir, name, got, text)
			}
		}
	}
}
