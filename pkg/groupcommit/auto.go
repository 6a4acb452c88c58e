package groupcommit

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"shardlease/pkg/groupcommit/vfs"
)

// A calibration runs small batches: a first round of a few records, which shows enough where each sync takes long, and then larger
// ones.
const (
	firstRecords = 4
	trialRecords = 32
	trialBytes   = 600
	trialRounds  = 5
	trialTime    = time.Second // no batch begins later than this
	// trialGain is what a strategy must gain over Serial to be taken: below it is noise.
	trialGain = 0.85
)

// trial is one strategy under measurement.
type trial struct {
	strategy Strategy
	w        *Writer
	updates  []Update
	first    time.Duration   // of the first round
	took     []time.Duration // of the others
}

// best returns the shortest time and for how many records: all that disturbs a batch makes it longer.
func (t *trial) best(full bool) (time.Duration, int) {
	if full && len(t.took) > 0 {
		return slices.Min(t.took), trialRecords
	}
	return t.first, firstRecords
}

// calibrate measures the strategies that the file system can do, in dir, and returns the fastest.
func calibrate(fsys vfs.FS, dir string, can ability) (Strategy, *chooser) {
	start := time.Now()
	// Serial is what the others are compared with. Then the likely winners, in case the time does not suffice for all.
	var trials []*trial
	for _, s := range []Strategy{Serial, SpareOverlapped, SpareWholeFS, Overlapped, WholeFS, Spare} {
		if can.limit(s) != s {
			continue
		}
		t, err := newTrial(fsys, filepath.Join(dir, s.String()), s)
		if err != nil {
			return Serial, nil
		}
		trials = append(trials, t)
	}
	for round := range trialRounds + 1 {
		for _, t := range trials {
			if time.Since(start) > trialTime {
				return choose(trials)
			}
			if err := t.run(round); err != nil {
				return Serial, nil
			}
		}
	}
	return choose(trials)
}

func newTrial(fsys vfs.FS, dir string, s Strategy) (*trial, error) {
	t := &trial{strategy: s, w: newWriter(fsys, s)}
	for i := range trialRecords {
		t.updates = append(t.updates, Update{Name: filepath.Join(dir, fmt.Sprint(i)), Data: make([]byte, trialBytes), Perm: 0o666})
	}
	return t, fsys.Mkdir(dir, 0o777)
}

// run runs one batch of the round and notes its time. The batches before it, until each record has its spare, don't count.
func (t *trial) run(round int) error {
	n, warm := trialRecords, 0
	if round == 0 {
		n = firstRecords
	}
	if round < 2 && t.strategy.spare() {
		warm = 2
	}
	var took time.Duration
	for range warm + 1 {
		start := time.Now()
		b := t.w.NewBatch()
		err := errors.Join(b.Publish(t.updates[:n])...)
		if _, ferr := b.Flush(); err != nil || ferr != nil {
			return errors.Join(err, ferr)
		}
		took = time.Since(start)
	}
	if round == 0 {
		t.first = took
	} else {
		t.took = append(t.took, took)
	}
	return nil
}

// choose returns the strategy that was fastest, if it was clearly faster than Serial.
func choose(trials []*trial) (Strategy, *chooser) {
	full := !slices.ContainsFunc(trials, func(t *trial) bool { return len(t.took) == 0 })
	serial, _ := trials[0].best(full)
	limit := time.Duration(trialGain * float64(serial))
	var best *trial
	for _, t := range trials[1:] {
		if d, _ := t.best(full); d > 0 && d < limit {
			best, limit = t, d
		}
	}
	switch {
	case best == nil:
		return Serial, nil
	case best.strategy.syncing() != wholeFS:
		return best.strategy, nil
	}
	return best.strategy, newChooser(best, trials, full)
}

// chooser decides for each window whether syncfs is worth it. syncfs costs about the same for a few records and for hundreds, but much
// more when others have written much to the file system. So it keeps account of what syncfs has saved against syncing
// the files alone: a good balance carries it over a slow one now and then, and a bad one is paid off, by windows that
// do without, before it is tried again.
type chooser struct {
	alone syncing // the alternative
	least int     // contents for which syncfs is worth it when nobody else writes

	mu      sync.Mutex
	perSync time.Duration // what the alternative costs for each content, by the last ones
	balance time.Duration // saved so far, within limits
}

const (
	maxCredit = 8  // windows' worth of the alternative
	maxDebt   = 16 // likewise; paid off at a quarter of a window's worth each, so syncfs is tried every 64 windows at least
)

func newChooser(best *trial, trials []*trial, full bool) *chooser {
	alone := trials[0]
	for _, t := range trials {
		d, _ := t.best(full)
		if least, _ := alone.best(full); t.strategy.spare() == best.strategy.spare() && t.strategy.syncing() != wholeFS && d > 0 &&
			(alone.strategy.spare() != best.strategy.spare() || d < least) {
			alone = t
		}
	}
	whole, _ := best.best(full)
	parts, n := alone.best(full)
	// Half of the best batch is its syncfs, the other half, barrier and all, it has in common with the alternative: a fair guess.
	c := &chooser{alone: alone.strategy.syncing(), perSync: max(1, (parts-whole/2)/time.Duration(n))}
	c.least = max(2, int(whole/2/c.perSync))
	c.balance = time.Duration(maxCredit*n) * c.perSync
	return c
}

// mode returns how to sync n contents. A nil chooser stands for an explicit WholeFS strategy.
func (c *chooser) mode(n int) syncing {
	switch {
	case n <= 1:
		return oneByOne // syncfs would do the same, and more
	case c == nil:
		return wholeFS
	case n < c.least:
		return c.alone
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.balance >= 0 {
		return wholeFS
	}
	c.balance += time.Duration(n) * c.perSync / 4
	return c.alone
}

// took notes what a syncfs, or the alternative, has taken for n contents.
func (c *chooser) took(mode syncing, n int, d time.Duration) {
	if c == nil || n < c.least {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if mode != wholeFS {
		c.perSync = max(1, (3*c.perSync+d/time.Duration(n))/4)
		return
	}
	worth := time.Duration(n) * c.perSync
	c.balance = max(min(c.balance+worth-d, maxCredit*worth), -maxDebt*worth)
}

// calibrations holds what this process has measured, by scratch directory.
var calibrations = struct {
	sync.Mutex
	done map[string]calibration
}{done: make(map[string]calibration)}

type calibration struct {
	strategy Strategy
	auto     *chooser
}

func calibrated(fsys vfs.FS, scratch string, can ability) (Strategy, *chooser) {
	calibrations.Lock()
	defer calibrations.Unlock()
	c, ok := calibrations.done[scratch]
	if !ok {
		c.strategy, c.auto = calibrate(fsys, scratch, can)
		calibrations.done[scratch] = c
	}
	return can.limit(c.strategy), c.auto
}
