package groupcommit_test

import (
	"errors"
	"strings"
	"testing"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
	"shardlease/pkg/groupcommit/vfs/tracefs"
)

// renewed are the records of the crash cases: two in one shard, one in another.
var renewed = []string{"/s/a", "/s/b", "/t/a"}

// renew publishes text under all names with one batch of wr and flushes it.
func renew(w world, wr *groupcommit.Writer, text string) error {
	changed := map[string]string{}
	for _, n := range renewed {
		changed[n] = long(text)
	}
	return w.do("Flush "+text, func() error {
		b := wr.NewBatch()
		errs := b.Publish(texts(text))
		_, err := b.Flush()
		return errors.Join(append(errs, err)...)
	}, changed)
}

// long makes a content of text that shows where it is torn.
func long(text string) string { return strings.Repeat(text, 300) }

func texts(text string) (list []groupcommit.Update) {
	for _, n := range renewed {
		list = append(list, groupcommit.Update{Name: n, Data: []byte(long(text)), Perm: 0o644})
	}
	return list
}

// unflushed publishes text and leaves it at that, as a process does that is killed before its barriers.
func unflushed(w world, wr *groupcommit.Writer, text string) (*groupcommit.Batch, error) {
	for _, n := range renewed {
		w.may(n, long(text))
	}
	b := wr.NewBatch()
	return b, errors.Join(b.Publish(texts(text))...)
}

func renewals(w world, wr *groupcommit.Writer, list ...string) error {
	for _, text := range list {
		if err := renew(w, wr, text); err != nil {
			return err
		}
	}
	return nil
}

// strategyCases are renewals from the first one to the steady state, in which spares are used again; a holder killed
// between its exchanges and its barriers, and the next holder; and two holders in turn.
func strategyCases(s groupcommit.Strategy) []crashCase {
	return []crashCase{
		{"Renewals", func(w world) error {
			return renewals(w, groupcommit.Unprobed(w.fsys, s), "1", "2", "3", "4")
		}, nil},
		{"KilledBeforeTheBarrier", func(w world) error {
			first, next := groupcommit.Unprobed(w.fsys, s), groupcommit.Unprobed(w.fsys, s)
			err := renewals(w, first, "1", "2", "3")
			if err == nil {
				_, err = unflushed(w, first, "4")
			}
			if err == nil {
				err = renewals(w, next, "5", "6", "7")
			}
			return err
		}, nil},
		{"TwoHoldersInTurn", func(w world) error {
			a, b := groupcommit.Unprobed(w.fsys, s), groupcommit.Unprobed(w.fsys, s)
			return errors.Join(renewals(w, a, "1", "2", "3"), renewals(w, b, "4", "5"), renewals(w, a, "6"), renewals(w, b, "7", "8"))
		}, nil},
	}
}

// strategyLimit is how many states are checked for one moment and policy. The files of a window are all unsynced at once, so there
// are many more; the sample has both extremes.
const strategyLimit = 100

func sweepOnce(t testing.TB, c crashCase, s *crashfs.Sweep) error {
	f, p := start(t)
	return cutAndWork(c, f, p, true, s, asItIs, func(*crashfs.FS) error { return nil })
}

// Contract, G1 to G4, with every strategy: after a power cut anywhere each record is whole and one that may be there, and
// what was acknowledged is there.
func TestNoStrategyLosesWhatItAcknowledgedInAnyCrashState(t *testing.T) {
	eachStrategy(t, func(t *testing.T, s groupcommit.Strategy) {
		first := &crashfs.Sweep{Limit: strategyLimit, Seed: 1}
		for _, c := range strategyCases(s) {
			if err := sweepOnce(t, c, first); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		t.Log(first)
	})
}

// G5, G6, and "after a failed barrier the plain path": the barrier of one shard fails, and its records are renewed again.
func TestNoStrategyLosesAnythingAfterAFailedBarrier(t *testing.T) {
	eachStrategy(t, func(t *testing.T, s groupcommit.Strategy) {
		n := 0
		fault := func(c *vfs.Call) error {
			if c.Op == vfs.OpSyncDir && c.Name == "/s" {
				if n++; n == 4 { // in the steady state
					return errInjected
				}
			}
			return nil
		}
		first := &crashfs.Sweep{Limit: strategyLimit, Fault: fault}
		c := crashCase{"", func(w world) error {
			wr := groupcommit.Unprobed(w.fsys, s)
			err := renewals(w, wr, "1", "2", "3")
			if ferr := renew(w, wr, "4"); w.fresh && !errors.Is(ferr, groupcommit.ErrUnknown) {
				err = errors.Join(err, errors.New("the failed barrier did not surface"))
			}
			return errors.Join(err, renewals(w, wr, "5", "6", "7"))
		}, nil}
		if err := sweepOnce(t, c, first); err != nil {
			t.Error(err)
		}
		t.Log(first)
	})
}

// The hazard of spares, planted: a spare that is used again before the barrier of its exchange may be the live record of
// the disk. Both checks must see it.
func TestASpareUsedBeforeItsBarrierIsCaught(t *testing.T) {
	for _, s := range []groupcommit.Strategy{groupcommit.Spare, groupcommit.SpareOverlapped, groupcommit.SpareWholeFS} {
		work := func(w world) error {
			wr := groupcommit.Unprobed(w.fsys, s)
			if err := renewals(w, wr, "1", "2", "3"); err != nil {
				return err
			}
			b, err := unflushed(w, wr, "4")
			b.KeepSparesTooEarly()
			return errors.Join(err, renewals(w, wr, "5"))
		}
		err := sweepOnce(t, crashCase{"", work, nil}, &crashfs.Sweep{Limit: strategyLimit})
		if err == nil || !strings.Contains(err.Error(), "holds") {
			t.Errorf("%v: no power cut shows it: %v", s, err)
		}
		f, p := start(t)
		trace := tracefs.New(f, "/")
		if err := work(world{p, trace, func(string) {}, true}); err != nil {
			t.Fatal(err)
		}
		trace.Mark("ack")
		if err := trace.Check("ack"); err == nil || !strings.Contains(err.Error(), "under the other name") {
			t.Errorf("%v: the trace does not show it: %v", s, err)
		}
	}
}
