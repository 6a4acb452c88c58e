package groupcommit

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"shardlease/pkg/groupcommit/vfs"
)

// The trial batches of a calibration. Small, since all that counts is which strategy is cheapest, and on a slow store each sync takes long.
const (
	trialRecords = 8
	trialBytes   = 600
	trialRounds  = 5
	trialTime    = 500 * time.Millisecond // no trial begins later than this
	// trialGain is what a strategy must gain over Serial to be taken: below it is noise.
	trialGain = 0.85
)

// trial is one strategy under measurement.
type trial struct {
	strategy Strategy
	w        *Writer
	updates  []Update
	took     []time.Duration // of the batches in its steady state
}

// best is the shortest time: all that disturbs a batch makes it longer. It is 0 without a measurement.
func (t *trial) best() time.Duration {
	if len(t.took) == 0 {
		return 0
	}
	return slices.Min(t.took)
}

// calibrate measures the strategies that the file system can do, in dir, and returns the fastest.
func calibrate(fsys vfs.FS, dir string, can ability) (Strategy, *chooser) {
	start := time.Now()
	// The likely winners come first, in case the time does not suffice for all. Without Serial there is nothing to compare with.
	order := []Strategy{Serial, SpareWholeFS, SpareOverlapped, WholeFS, Spare, Overlapped}
	var trials []*trial
	for _, s := range order {
		if can.limit(s) != s {
			continue
		}
		t, err := newTrial(fsys, filepath.Join(dir, s.String()), s)
		if err != nil {
			return Serial, nil
		}
		trials = append(trials, t)
	}
	for range trialRounds {
		for _, t := range trials {
			if time.Since(start) > trialTime {
				return choose(trials)
			}
			if err := t.run(); err != nil {
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

// run runs one batch and notes its time. Spares need two batches before the steady state.
func (t *trial) run() error {
	warm := 0
	if len(t.took) == 0 {
		warm = 1
		if t.strategy.spare() {
			warm = 2
		}
	}
	for range warm + 1 {
		start := time.Now()
		b := t.w.NewBatch()
		err := errors.Join(b.Publish(t.updates)...)
		if _, ferr := b.Flush(); err != nil || ferr != nil {
			return errors.Join(err, ferr)
		}
		t.took = append(t.took, time.Since(start))
	}
	t.took = t.took[warm:]
	return nil
}

// choose returns the strategy that was fastest, if it was clearly faster than Serial.
func choose(trials []*trial) (Strategy, *chooser) {
	limit := time.Duration(trialGain * float64(trials[0].best()))
	var best *trial
	for _, t := range trials[1:] {
		if d := t.best(); d > 0 && d < limit {
			best, limit = t, d
		}
	}
	if best == nil {
		return Serial, nil
	}
	if best.strategy.syncing() != wholeFS {
		return best.strategy, nil
	}
	return best.strategy, newChooser(best, trials)
}

// chooser decides for each window whether syncfs is worth it. syncfs costs about the same for one record and for a hundred, but
// as much more as others have written to the file system.
type chooser struct {
	alone    syncing       // the alternative
	perSync  time.Duration // what the alternative costs for each content
	estimate atomic.Int64  // nanoseconds of the next syncfs, by the last ones
}

func newChooser(best *trial, trials []*trial) *chooser {
	c := &chooser{}
	var alone *trial
	for _, t := range trials {
		if t.strategy.spare() == best.strategy.spare() && t.strategy.syncing() != wholeFS && t.best() > 0 {
			if alone == nil || t.best() < alone.best() {
				alone = t
			}
		}
	}
	if alone == nil { // no time for it
		alone = trials[0]
	}
	c.alone = alone.strategy.syncing()
	// Without what both have in common, the syncfs is at least all of the best batch but its barrier. Half is a fair guess for either.
	c.estimate.Store(int64(best.best()) / 2)
	c.perSync = (alone.best() - best.best()/2) / trialRecords
	return c
}

// mode returns how to sync n contents. A nil chooser stands for an explicit WholeFS strategy.
func (c *chooser) mode(n int) syncing {
	switch {
	case n == 1:
		return oneByOne // syncfs would do the same, and more
	case c == nil:
		return wholeFS
	}
	estimate := c.estimate.Load()
	if estimate < int64(n)*int64(c.perSync) {
		return wholeFS
	}
	c.estimate.CompareAndSwap(estimate, estimate-estimate/16) // what made it slow may be over: try again some day
	return c.alone
}

// took notes what a syncfs has taken.
func (c *chooser) took(d time.Duration) {
	if c != nil {
		c.estimate.Store((c.estimate.Load() + int64(d)) / 2)
	}
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
