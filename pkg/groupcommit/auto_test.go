package groupcommit

import (
	"errors"
	"io/fs"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
)

// priced is a file system in memory on which each operation takes its price, by the clock of the bubble.
func priced(unsupported vfs.Op, price func(op vfs.Op) time.Duration) vfs.FS {
	return vfs.Intercept(crashfs.New(), func(c *vfs.Call, do func() error) error {
		if c.Op == unsupported {
			return errors.ErrUnsupported
		}
		time.Sleep(price(c.Op))
		return do()
	})
}

// Auto against disks with known prices: each is the best there, and Serial where nothing is gained.
func TestAutoTakesWhatIsCheapest(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		prices map[vfs.Op]time.Duration
		no     vfs.Op // not supported
		want   []Strategy
	}{
		"creating files is dear, syncs too": {map[vfs.Op]time.Duration{vfs.OpSync: 3 * ms, vfs.OpDatasync: 3 * ms, vfs.OpSyncFS: 2 * ms, vfs.OpRename: ms}, "", []Strategy{SpareWholeFS}},
		"foreign data makes syncfs dear":    {map[vfs.Op]time.Duration{vfs.OpSync: 3 * ms, vfs.OpDatasync: 2 * ms, vfs.OpSyncFS: 100 * ms}, "", []Strategy{SpareOverlapped, Overlapped}},
		"overwriting is dear":               {map[vfs.Op]time.Duration{vfs.OpSync: 2 * ms, vfs.OpDatasync: 9 * ms, vfs.OpSyncFS: ms, vfs.OpWriteAt: 2 * ms}, "", []Strategy{WholeFS}},
		"no exchange":                       {map[vfs.Op]time.Duration{vfs.OpSync: 3 * ms, vfs.OpSyncFS: 50 * ms}, vfs.OpExchange, []Strategy{Overlapped}},
		"only barriers cost":                {map[vfs.Op]time.Duration{vfs.OpSyncDir: 10 * ms}, "", []Strategy{Serial}},
		"each sync takes 20 ms":             {map[vfs.Op]time.Duration{vfs.OpSync: 20 * ms, vfs.OpDatasync: 20 * ms, vfs.OpSyncDir: 20 * ms}, vfs.OpSyncFS, []Strategy{SpareOverlapped, Overlapped}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, err := NewWriter(priced(c.no, func(op vfs.Op) time.Duration { return c.prices[op] }), Auto, "/"+name)
				if err != nil || !slices.Contains(c.want, w.Strategy()) {
					t.Errorf("took %v, want one of %v (%v)", w.Strategy(), c.want, err)
				}
			})
		})
	}
}

// The calibration ends in time, leaves nothing but its lock, and is done once for a scratch directory of a process.
func TestAutoMeasuresOnceAndCleansUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ops atomic.Int64
		fsys := priced("", func(op vfs.Op) time.Duration {
			ops.Add(1)
			if op == vfs.OpSync || op == vfs.OpDatasync || op == vfs.OpSyncFS || op == vfs.OpSyncDir {
				return 100 * time.Millisecond
			}
			return 0
		})
		start := time.Now()
		w, err := NewWriter(fsys, Auto, "/once")
		if took := time.Since(start); err != nil || took > trialTime+2*time.Second { // the batches under way when time ran out
			t.Errorf("%v after %v", err, took)
		}
		if entries, err := fsys.ReadDir("/"); err != nil || len(entries) != 1 || entries[0].Name() != "once.lock" {
			t.Errorf("left %v, %v", entries, err)
		}
		before := ops.Load()
		again, err := NewWriter(fsys, Auto, "/once")
		if err != nil || again.Strategy() != w.Strategy() || ops.Load()-before > 30 {
			t.Errorf("the second time %v, %v after %d operations", again.Strategy(), err, ops.Load()-before)
		}
	})
}

// A failure while measuring, a leftover, or another process that measures for too long: Auto does without.
func TestAutoThatCanNotMeasureIsSerial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := crashfs.New()
		full := vfs.Intercept(f, func(c *vfs.Call, do func() error) error {
			if c.Op == vfs.OpWrite && len(c.Data) > 1 {
				return syscall.ENOSPC
			}
			return do()
		})
		w, err := NewWriter(full, Auto, "/full")
		if err != nil || w.Strategy() != Serial {
			t.Errorf("on a full disk: %v, %v", w.Strategy(), err)
		}
		l, err := f.TryLock("/busy.lock", 0)
		if err != nil {
			t.Fatal(err)
		}
		w, err = NewWriter(f, Auto, "/busy")
		if err != nil || w.Strategy() != Serial {
			t.Errorf("beside another that measures: %v, %v", w.Strategy(), err)
		}
		if err := errors.Join(l.Close(), MkdirAll(f, "/left/serial", 0o777), WriteFile(f, "/left/serial/0", nil, 0o666)); err != nil {
			t.Fatal(err)
		}
		if w, err = NewWriter(f, SpareWholeFS, "/left"); err != nil || w.Strategy() != SpareWholeFS {
			t.Errorf("after a killed process: %v, %v", w.Strategy(), err)
		}
		if _, err := f.Lstat("/left"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the leftover stays: %v", err)
		}
	})
}

// syncfs is used for as many records as make it worth its price, also if it is slow now and then; given up while foreign
// data make it dear, and tried again.
func TestTheChooserFollowsThePriceOfSyncFS(t *testing.T) {
	c := &chooser{alone: concurrently, perSync: time.Millisecond, least: 8}
	expect := func(n int, want syncing) {
		t.Helper()
		if got := c.mode(n); got != want {
			t.Errorf("%d records: %v, want %v", n, got, want)
		}
	}
	expect(1, oneByOne)
	expect(7, concurrently)
	expect(8, wholeFS)
	for range 10 { // each saves 56 ms
		expect(64, wholeFS)
		c.took(wholeFS, 64, 8*time.Millisecond)
	}
	c.took(wholeFS, 64, 400*time.Millisecond)
	expect(64, wholeFS) // once is not always
	alone, whole := 0, 0
	for range 1000 { // from now on each takes ten times as long as the alternative
		if c.mode(64) == wholeFS {
			whole++
			c.took(wholeFS, 64, 640*time.Millisecond)
		} else {
			alone++
		}
	}
	if cost, without := whole*640+alone*64, 1000*64; cost > without*5/4+2000 || whole < 10 {
		t.Errorf("%d with syncfs and %d without cost %d ms, and all without %d ms", whole, alone, cost, without)
	}
	for range 20 {
		c.took(concurrently, 64, 6400*time.Millisecond)
	}
	if c.balance = 0; c.perSync < 50*time.Millisecond {
		t.Errorf("the alternative has become dear, and %v is reckoned for it", c.perSync)
	}
	c.took(wholeFS, 64, time.Hour)
	tries := 0
	for ; c.mode(64) != wholeFS && tries < 1000; tries++ {
	}
	if tries > 64 {
		t.Errorf("tried again after %d windows", tries)
	}
	if (*chooser)(nil).mode(2) != wholeFS || (*chooser)(nil).mode(0) != oneByOne {
		t.Error("an explicit strategy is obeyed")
	}
}
