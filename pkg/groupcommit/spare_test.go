package groupcommit_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
	"shardlease/pkg/groupcommit/vfs/tracefs"
)

// The rule of spares.go: a new file whenever this process does not know that the spare may be used. Each case is one reason.
func TestASpareIsUsedOnlyInTheKnowledgeThatItMayBe(t *testing.T) {
	for name, c := range map[string]struct {
		between func(b *bench)
		inPlace bool
	}{
		"steady state":          {func(b *bench) {}, true},
		"slightly larger":       {func(b *bench) { b.must(b.publish(b.w, strings.Repeat("x", 400))) }, true},
		"smaller again":         {func(b *bench) { b.must(b.publish(b.w, strings.Repeat("x", 400))); b.must(b.publish(b.w, "x")) }, true},
		"after a failed flush":  {failBarrier, false},
		"batch never flushed":   {func(b *bench) { b.w.NewBatch().Publish(b.updates("unflushed")) }, false},
		"another process":       {func(b *bench) { b.w = b.writer(groupcommit.Spare) }, false},
		"another has renewed":   {func(b *bench) { b.must(b.publish(b.writer(groupcommit.Spare), "other")) }, false},
		"another with no spare": {func(b *bench) { b.must(b.publish(b.writer(groupcommit.Serial), "other")) }, false},
		"spare is gone":         {func(b *bench) { b.must(b.disk.Remove(b.dir + "/0/a.tmp")) }, false},
		"spare is a foreign file of its size": {func(b *bench) {
			put := errors.Join(b.disk.Remove(b.dir+"/0/a.tmp"), groupcommit.WriteFile(b.disk, b.dir+"/0/x", make([]byte, 512), 0o666))
			b.must(errors.Join(put, b.disk.Rename(b.dir+"/0/x", b.dir+"/0/a.tmp")))
		}, false},
		"spare is a directory": {func(b *bench) {
			b.must(errors.Join(b.disk.Remove(b.dir+"/0/a.tmp"), b.disk.Mkdir(b.dir+"/0/a.tmp", 0o777)))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, groupcommit.Spare, "0/a")
			c.between(b)
			b.trace.Reset()
			err := b.publish(b.w, "new")
			if name == "spare is a directory" { // as for every strategy
				wantIs(t, err, syscall.EISDIR)
				b.want("old")
				return
			}
			b.must(err)
			want(t, "files created", b.created() == 0, c.inPlace)
			want(t, "files overwritten", b.count(vfs.OpWriteAt) == 1, c.inPlace)
			b.want("new")
			for range 3 { // and it is in place again before long
				b.trace.Reset()
				b.must(b.publish(b.w, "newer"))
			}
			want(t, "files created in the end", b.created(), 0)
		})
	}
}

func failBarrier(b *bench) {
	b.fault.Inject(faultfs.Rule{Op: vfs.OpSyncDir, Err: syscall.EIO})
	wantIs(b.T, b.publish(b.w, "doubtful"), groupcommit.ErrUnknown)
	b.fault.Clear()
}

// Size: a record that outgrows its spare gets a bigger one, and a huge one is written without.
func TestARecordThatOutgrowsItsSpareGetsABiggerOne(t *testing.T) {
	b := newBench(t, groupcommit.SpareWholeFS, "0/a", "0/b")
	for _, size := range []int{400, 3000, groupcommit.MaxSpare + 1, 100} {
		for i := range 4 {
			text := strings.Repeat("x", size)
			b.trace.Reset()
			b.must(b.publish(b.w, text))
			b.want(text)
			if i == 3 {
				want(t, fmt.Sprintf("in place with %d bytes", size), b.created() == 0, size <= groupcommit.MaxSpare)
			}
			info, err := b.disk.Lstat(b.dir + "/0/a")
			b.must(err)
			if pad := int(info.Size()) - size; pad > groupcommit.MaxPadding && size > 100 {
				t.Errorf("%d bytes of padding", pad)
			}
		}
		b.trace.Mark("ack")
		b.must(b.trace.Check("ack"))
	}
}

// FS-22: a file system without RENAME_EXCHANGE, and one without a syncfs that tells failures, get what is left of the
// strategy. That is decided once, when the Writer is made.
func TestWhatTheFileSystemCantDoIsLeftOut(t *testing.T) {
	for _, c := range []struct {
		missing vfs.Op
		want    map[groupcommit.Strategy]groupcommit.Strategy
	}{
		{vfs.OpExchange, map[groupcommit.Strategy]groupcommit.Strategy{
			groupcommit.Spare: groupcommit.Serial, groupcommit.SpareOverlapped: groupcommit.Overlapped, groupcommit.SpareWholeFS: groupcommit.WholeFS}},
		{vfs.OpSyncFS, map[groupcommit.Strategy]groupcommit.Strategy{
			groupcommit.WholeFS: groupcommit.Overlapped, groupcommit.SpareWholeFS: groupcommit.SpareOverlapped}},
		{vfs.OpLock, map[groupcommit.Strategy]groupcommit.Strategy{groupcommit.SpareWholeFS: groupcommit.Overlapped, groupcommit.Auto: groupcommit.Serial}},
	} {
		for _, s := range append(groupcommit.Strategies(), groupcommit.Auto) {
			expect, changed := c.want[s]
			if !changed && (s == groupcommit.Auto || c.missing == vfs.OpLock) {
				continue
			}
			b := newBench(t, groupcommit.Serial, "0/a")
			b.fault.Inject(faultfs.Rule{Op: c.missing, Err: fmt.Errorf("%w: injected", errors.ErrUnsupported), Sticky: true})
			w := b.writer(s)
			if !changed {
				expect = s
			}
			want(t, fmt.Sprintf("%v without %s", s, c.missing), w.Strategy(), expect)
			n := b.fault.Injected()
			for range 3 {
				b.must(b.publish(w, "new"))
			}
			want(t, "later attempts", b.fault.Injected(), n)
			b.want("new")
			_, err := b.disk.Lstat(b.dir + "/scratch")
			wantIs(t, err, fs.ErrNotExist)
		}
	}
}

// Random holders with random strategies renew two records in turn, with random failures, and die before their barriers:
// no file is overwritten that the disk may know under the live name, and what a Flush acknowledged is there.
func TestSparesUnderRandomHoldersAndFaults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := crashfs.New()
		trace := tracefs.New(f, "/")
		faults := faultfs.New(trace)
		if err := f.Mkdir("/s", 0o777); err != nil {
			t.Fatal(err)
		}
		var writers []*groupcommit.Writer
		for range 3 {
			writers = append(writers, groupcommit.Unprobed(faults, rapid.SampledFrom(groupcommit.Strategies()).Draw(t, "strategy")))
		}
		visible := map[string]bool{"": true}
		for i := range rapid.IntRange(4, 20).Draw(t, "steps") {
			faults.Clear()
			if op := rapid.SampledFrom([]vfs.Op{"", "", "", vfs.OpSyncDir, vfs.OpExchange, vfs.OpRename, vfs.OpWriteAt, vfs.OpDatasync, vfs.OpOpen}).Draw(t, "fault"); op != "" {
				faults.Inject(faultfs.Rule{Op: op, Err: errInjected, After: rapid.Bool().Draw(t, "after")})
			}
			text := strings.Repeat(fmt.Sprint(i%10), rapid.SampledFrom([]int{1, 200, 900}).Draw(t, "size"))
			b := rapid.SampledFrom(writers).Draw(t, "writer").NewBatch()
			errs := b.Publish([]groupcommit.Update{{Name: "/s/a", Data: []byte(text), Perm: 0o666}})
			if rapid.IntRange(0, 4).Draw(t, "killed") == 0 {
				visible[text] = true
				continue
			}
			_, err := b.Flush()
			if visible[text] = true; errs[0] == nil && err == nil {
				clear(visible)
				visible[text] = true
			}
			if got, err := holds(f, "/s/a"); err != nil || got != absent && !visible[got] {
				t.Fatalf("step %d: %.20q, %v", i, got, err)
			}
		}
		trace.Mark("end")
		for _, err := range strings.Split(fmt.Sprint(trace.Check("end")), "\n") {
			if strings.Contains(err, "under the other name") || strings.Contains(err, "is not synced") {
				t.Fatal(err)
			}
		}
	})
}

// The memory for spares, the descriptors and the goroutines of a batch do not grow with it.
func TestALargeBatchHoldsAWindowOfFiles(t *testing.T) {
	for _, s := range []groupcommit.Strategy{groupcommit.SpareOverlapped, groupcommit.SpareWholeFS} {
		f := crashfs.New()
		var mu sync.Mutex
		open, most, syncing, mostSyncing := 0, 0, 0, 0
		count := func(n, most *int, by int) {
			mu.Lock()
			defer mu.Unlock()
			*n += by
			*most = max(*most, *n)
		}
		counted := vfs.Intercept(f, func(c *vfs.Call, do func() error) error {
			switch c.Op {
			case vfs.OpOpen:
				count(&open, &most, 1)
			case vfs.OpClose:
				defer count(&open, &most, -1)
			case vfs.OpSync, vfs.OpDatasync:
				count(&syncing, &mostSyncing, 1)
				defer count(&syncing, &mostSyncing, -1)
			}
			err := do()
			if c.Op == vfs.OpOpen && err != nil {
				count(&open, &most, -1)
			}
			return err
		})
		w, err := groupcommit.NewWriter(counted, s, "/scratch")
		if err != nil {
			t.Fatal(err)
		}
		var list []groupcommit.Update
		for i := range 10_000 {
			list = append(list, groupcommit.Update{Name: fmt.Sprintf("/%05d", i), Data: []byte("x"), Perm: 0o666})
		}
		b := w.NewBatch()
		err = errors.Join(b.Publish(list)...)
		if _, ferr := b.Flush(); err != nil || ferr != nil {
			t.Fatal(err, ferr)
		}
		if most > groupcommit.MaxWindow || most < 2 || mostSyncing > groupcommit.MaxConcurrent {
			t.Errorf("%v: %d files open and %d syncs at the same time", s, most, mostSyncing)
		}
		want(t, "spares in memory", w.KnownSpares(), 10_000)
	}
}
