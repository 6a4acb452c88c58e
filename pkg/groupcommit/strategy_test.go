package groupcommit_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
	"shardlease/pkg/groupcommit/vfs/tracefs"
)

// bench is a Writer on a traced file system in memory with injectable faults, and a directory of shards with durable records.
type bench struct {
	*testing.T
	dir   string
	disk  *crashfs.FS
	trace *tracefs.Trace
	fault *faultfs.FS
	w     *groupcommit.Writer
	names []string
}

// newBench publishes the records three times, so that each has its spare where the strategy has spares.
func newBench(t *testing.T, s groupcommit.Strategy, names ...string) *bench {
	t.Helper()
	b := &bench{T: t, dir: "/d", disk: crashfs.New(), names: names}
	b.must(b.disk.Mkdir(b.dir, 0o777))
	b.trace = tracefs.New(b.disk, b.dir)
	b.fault = faultfs.New(b.trace)
	b.w = b.writer(s)
	b.trace.Reset() // the probe makes nothing durable
	for _, name := range names {
		b.must(groupcommit.MkdirAll(b.disk, filepath.Dir(filepath.Join(b.dir, name)), 0o777))
	}
	for range 3 {
		b.must(b.publish(b.w, "old"))
	}
	b.trace.Mark("ack")
	b.must(b.trace.Check("ack"))
	b.trace.Reset()
	return b
}

// writer is what another process with the same strategy would have.
func (b *bench) writer(s groupcommit.Strategy) *groupcommit.Writer {
	b.Helper()
	w, err := groupcommit.NewWriter(b.fault, s, filepath.Join(b.dir, "scratch"))
	b.must(err)
	return w.InOrder()
}

// publish runs one batch with the same text for all records.
func (b *bench) publish(w *groupcommit.Writer, text string) error {
	batch := w.NewBatch()
	errs := batch.Publish(b.updates(text))
	_, err := batch.Flush()
	return errors.Join(append(errs, err)...)
}

func (b *bench) updates(text string) (list []groupcommit.Update) {
	for _, name := range b.names {
		list = append(list, groupcommit.Update{Name: filepath.Join(b.dir, name), Data: []byte(text), Perm: 0o666})
	}
	return list
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// text is a record without its padding.
func (b *bench) text(name string) string {
	b.Helper()
	data, err := vfs.ReadFile(b.disk, filepath.Join(b.dir, name), 1<<20)
	b.must(err)
	return strings.TrimRight(string(data), " \t\n")
}

func (b *bench) want(text string) {
	b.Helper()
	for _, name := range b.names {
		want(b.T, name, b.text(name), text)
	}
}

func (b *bench) count(op vfs.Op) (n int) {
	for _, e := range b.trace.Events() {
		if e.Op == op && e.Err == nil {
			n++
		}
	}
	return n
}

func eachStrategy(t *testing.T, f func(t *testing.T, s groupcommit.Strategy)) {
	for _, s := range groupcommit.Strategies() {
		t.Run(s.String(), func(t *testing.T) { f(t, s) })
	}
}

func spares(s groupcommit.Strategy) bool { return strings.HasPrefix(s.String(), "spare") }

// Invariants G1 to G4: the operations of each strategy in its steady state, in order (concurrent ones one by one).
func TestGoldenTracesOfStrategies(t *testing.T) {
	eachStrategy(t, func(t *testing.T, s groupcommit.Strategy) {
		b := newBench(t, s, "0/a", "1/b", "0/c")
		b.must(b.publish(b.w, "new"))
		golden(t, "strategy-"+s.String(), b.trace.String())
		b.trace.Mark("ack")
		b.must(b.trace.Check("ack"))
		b.want("new")
	})
}

// Invariants G1, G3, G4; GC-8: N switches and K barriers, and never more than N content syncs, with every strategy.
func TestEveryStrategyRunsOneBarrierPerDirectory(t *testing.T) {
	eachStrategy(t, func(t *testing.T, s groupcommit.Strategy) {
		for _, c := range []struct{ n, k int }{{1, 1}, {64, 1}, {64, 8}, {64, 64}} {
			var names []string
			for i := range c.n {
				names = append(names, fmt.Sprintf("%02d/%02d", i%c.k, i))
			}
			b := newBench(t, s, names...)
			batch := b.w.NewBatch()
			b.must(errors.Join(batch.Publish(b.updates("new"))...))
			res, err := batch.Flush()
			b.must(err)
			b.trace.Mark("ack")
			b.must(b.trace.Check("ack"))
			counts := b.trace.Counts()
			switches := 0
			for _, n := range counts.Renames {
				switches += n
			}
			syncs := c.n
			if strings.HasSuffix(s.String(), "wholefs") && c.n > 1 {
				syncs = 1
			}
			want(t, "switches", switches, c.n)
			want(t, "directory syncs", counts.DirSyncs, c.k)
			want(t, "durable", len(res.Durable), c.k)
			want(t, "content syncs", counts.FileSyncs+counts.FSSyncs, syncs)
			want(t, "content syncs reported", res.ContentSyncs, syncs)
			if spares(s) {
				want(t, "files created or removed", b.count(vfs.OpRemove)+b.created(), 0)
			}
		}
	})
}

func (b *bench) created() (n int) {
	for _, e := range b.trace.Events() {
		if e.Op == vfs.OpOpen && e.Flag&os.O_CREATE != 0 && e.Err == nil {
			n++
		}
	}
	return n
}

// Invariants G5, G6; FS-5: each operation of each strategy fails once, before it is done and after. Its error surfaces,
// unless the strategy got around it, and then everything is durable. The next batch succeeds in any case.
func TestEveryFaultOfEveryStrategySurfacesOrDoesNoHarm(t *testing.T) {
	eachStrategy(t, func(t *testing.T, s groupcommit.Strategy) {
		b := newBench(t, s, "0/a", "1/b", "0/c")
		b.must(b.publish(b.w, "new"))
		for nth, e := range b.trace.Events() {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d-%s-after-%v", nth+1, e.Op, after), func(t *testing.T) { faultOnce(t, s, nth+1, e.Op, after) })
			}
		}
	})
}

func faultOnce(t *testing.T, s groupcommit.Strategy, nth int, op vfs.Op, after bool) {
	b := newBench(t, s, "0/a", "1/b", "0/c")
	b.fault.Inject(faultfs.Rule{Nth: nth, Err: errInjected, After: after})
	err := b.publish(b.w, "new")
	want(t, "injected", b.fault.Injected(), 1)
	for _, name := range b.names {
		if got := b.text(name); got != "new" && (got != "old" || err == nil) {
			t.Errorf("%s holds %q after %v", name, got, err)
		}
	}
	switch op {
	case vfs.OpOpen, vfs.OpRead, vfs.OpWriteAt, vfs.OpClose: // a spare that can't be used is replaced
		if err != nil {
			wantIs(t, err, errInjected)
		}
	default:
		wantIs(t, err, errInjected)
	}
	unknown := op == vfs.OpSyncDir || after && op == vfs.OpRename || op == vfs.OpExchange
	want(t, "unknown", errors.Is(err, groupcommit.ErrUnknown), unknown)
	b.fault.Clear()
	b.must(b.publish(b.w, "newer"))
	b.want("newer")
	if err == nil {
		b.trace.Mark("ack")
	} else { // the failed batch acknowledged nothing
		b.trace.Reset()
		b.must(b.publish(b.w, "newest"))
		b.trace.Mark("ack")
	}
	b.must(b.trace.Check("ack"))
}

// Invariant G5; GC-2: one bad member neither fails the others nor keeps them from their barriers. With one syncfs for
// all, a failure to write its file back must fail them all, for nobody can tell whose it was.
func TestOneBadMemberDoesNotStopTheOthersOfItsWindow(t *testing.T) {
	eachStrategy(t, func(t *testing.T, s groupcommit.Strategy) {
		var names []string
		for i := range 64 {
			names = append(names, fmt.Sprintf("%d/%02d", i%2, i))
		}
		b := newBench(t, s, names...)
		b.names[10] = "0/" + strings.Repeat("x", 300)
		batch := b.w.NewBatch()
		for i, err := range batch.Publish(b.updates("new")) {
			if i == 10 {
				wantIs(t, err, syscall.ENAMETOOLONG)
			} else if err != nil || b.text(b.names[i]) != "new" {
				t.Errorf("%s: %v", b.names[i], err)
			}
		}
		res, err := batch.Flush()
		b.must(err)
		wantList(t, "durable", res.Durable, b.dir+"/0", b.dir+"/1")
		b.trace.Mark("ack")
		b.must(b.trace.Check("ack"))
	})
}

func TestAFailedSyncFSFailsItsWholeWindow(t *testing.T) {
	for _, s := range []groupcommit.Strategy{groupcommit.WholeFS, groupcommit.SpareWholeFS} {
		b := newBench(t, s, "0/a", "1/b", "0/c")
		b.fault.Inject(faultfs.Rule{Op: vfs.OpSyncFS, Err: syscall.EIO})
		batch := b.w.NewBatch()
		for _, err := range batch.Publish(b.updates("new")) {
			wantIs(t, err, syscall.EIO)
		}
		wantList(t, "pending", batch.Pending())
		b.want("old")
		for _, name := range b.names { // what was not synced is never tried again
			_, err := b.disk.Lstat(filepath.Join(b.dir, name+".tmp"))
			wantIs(t, err, fs.ErrNotExist)
		}
	}
}

func TestStrategiesHaveNames(t *testing.T) {
	for _, s := range append(groupcommit.Strategies(), groupcommit.Auto) {
		text, err := s.MarshalText()
		var again groupcommit.Strategy
		if err != nil || again.UnmarshalText(text) != nil || again != s {
			t.Errorf("%v is read back as %v", s, again)
		}
	}
	var s groupcommit.Strategy
	wantIs(t, s.UnmarshalText([]byte("fast")), fs.ErrInvalid)
	_, err := groupcommit.NewWriter(vfs.OS, groupcommit.Auto+1, "")
	wantIs(t, err, fs.ErrInvalid)
}
