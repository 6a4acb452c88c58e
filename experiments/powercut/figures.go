package powercut

import (
	"fmt"

	"shardlease/internal/figures"
)

// Figures draws how much survives, with barriers and without, and after a disk's failure. File systems that were skipped are left out.
func Figures(dir string) ([]figures.Figure, error) {
	r, err := load(dir)
	if err != nil {
		return nil, err
	}
	survival, states, err := r.survival()
	if err != nil || len(survival) == 0 {
		return nil, err
	}
	share := figures.Axis{Name: "crash states with nothing acknowledged lost, %"}
	first, err := figures.Bars(figures.Spec{
		ID: "powercut-survival", Title: "What survives a power cut right after an acknowledgement",
		Subtitle: fmt.Sprintf("%d crash states; a write cache that keeps nothing, a torn prefix, or any subset of what was not flushed", states),
		Caption: "The product keeps everything. Left out one at a time, directory syncs and file syncs lose acknowledged records, " +
			"and so does the product itself on a disk that lies about its flushes.",
	}, share, survival...)
	if err != nil {
		return nil, err
	}
	broken, states := r.afterFailure()
	if len(broken) == 0 {
		return []figures.Figure{first}, nil
	}
	second, err := figures.Bars(figures.Spec{
		ID: "powercut-broken", Title: "What survives after the disk failed one write of a record",
		Subtitle: fmt.Sprintf("%d crash states at the next acknowledgements and at the end", states),
		Caption: "fsync reports the failure once. The product throws the file away and writes a new one; a program that calls fsync again " +
			"is told that all is well, reads back what it wrote, and loses it.",
	}, share, broken...)
	return []figures.Figure{first, second}, err
}

func intact(t Tally) float64 { return 100 * float64(t.States-t.violations()) / float64(t.States) }

// survival makes a group of bars for each file system. All bars are of cuts right after acknowledgements, so that they compare.
func (r Raw) survival() (groups []figures.Group, states int, err error) {
	acked := func(c Cell) bool { return seen(c) && c.AfterAck }
	for _, fs := range fileSystems {
		g := figures.Group{Name: fs}
		for _, k := range []struct{ kind, name string }{
			{product, "product"}, {nodir, "no directory sync"}, {nofile, "no file sync"}, {lying, "lying disk"},
		} {
			t := r.sum(fs, k.kind, acked)
			if t.States == 0 {
				if r.Skipped[fs] != "" {
					break
				}
				return nil, 0, fmt.Errorf("%s, %s: no crash state right after an acknowledgement", fs, k.name)
			}
			states += t.States
			g.Bars = append(g.Bars, figures.Bar{Name: k.name, Value: intact(t)})
		}
		if len(g.Bars) > 0 {
			groups = append(groups, g)
		}
	}
	return groups, states, nil
}

// afterFailure is the same after failed writes of record contents. A file system on which none was hit is left out.
func (r Raw) afterFailure() (groups []figures.Group, states int) {
	for _, fs := range fileSystems {
		ours, n := r.broken(fs, product, data)
		theirs, m := r.broken(fs, retry, data)
		if n == 0 || m == 0 {
			continue
		}
		states += ours.States + theirs.States
		groups = append(groups, figures.Group{Name: fs, Bars: []figures.Bar{
			{Name: "product: a new file", Value: intact(ours)}, {Name: "fsync tried again", Value: intact(theirs)},
		}})
	}
	return groups, states
}
