package reboot

import (
	"fmt"
	"slices"

	"shardlease/internal/figures"
)

// modes are what the disk's cache may leave, from nothing to all.
var modes = []string{"none", "prefix", "sectors", "whole", "all"}

// Figures draws how much survives a power cut, by what the disk's cache leaves. Without qemu there is nothing to draw.
func Figures(dir string) ([]figures.Figure, error) {
	r, err := load(dir)
	if err != nil || len(r.Runs) == 0 {
		return nil, err
	}
	groups, states, err := r.survival()
	if err != nil {
		return nil, err
	}
	boots, found := r.boots()
	f, err := figures.Bars(figures.Spec{
		ID: "reboot-survival", Title: "What survives a power cut of a virtual machine right after an acknowledgement",
		Subtitle: fmt.Sprintf("%d crash states, by what the disk's cache leaves of what was not flushed", states),
		Caption: fmt.Sprintf("none: nothing; prefix: a torn prefix of the writes; sectors: any subset of sectors; whole: any subset of writes; all: everything. "+
			"On the product's disks machines were also killed at work and booted again: %d of %d boots found everything acknowledged. "+
			"The doubles leave out directory syncs, or run on a disk that lies about its flushes and loses nothing when the cache leaves all.", found, boots),
	}, figures.Axis{Name: "crash states with nothing acknowledged lost, %"}, groups...)
	return []figures.Figure{f}, err
}

// survival makes a group of bars for each mode, with a bar for each run. All are of cuts right after acknowledgements, so that they compare.
func (r Raw) survival() (groups []figures.Group, states int, err error) {
	for _, mode := range modes {
		g := figures.Group{Name: mode}
		for _, run := range r.Runs {
			n, lost := 0, 0
			for _, c := range run.Result.Cells {
				if c.Mode == mode && c.AfterAck {
					n, lost = n+c.States, lost+c.Bad+c.Unmountable
				}
			}
			if n == 0 {
				return nil, 0, fmt.Errorf("%s: no crash state right after an acknowledgement in mode %s", r.label(run), mode)
			}
			states += n
			g.Bars = append(g.Bars, figures.Bar{Name: r.label(run), Value: 100 * float64(n-lost) / float64(n)})
		}
		groups = append(groups, g)
	}
	return groups, states, nil
}

// label names a run, with its file system where the product ran on several.
func (r Raw) label(run Run) string {
	name := map[string]string{product: "product", nodir: "no directory sync", lying: "lying disk"}[run.Kind]
	if slices.ContainsFunc(r.Runs, func(o Run) bool { return o.FileSystem != run.FileSystem }) {
		name += ", " + run.FileSystem
	}
	return name
}

// boots counts the boots of the product's machines after a kill, and those that found everything acknowledged.
func (r Raw) boots() (boots, found int) {
	for _, run := range r.Runs {
		if run.Kind != product {
			continue
		}
		for _, c := range run.Result.Cycles {
			boots++
			if c.Fault == "" {
				found++
			}
		}
	}
	return boots, found
}
