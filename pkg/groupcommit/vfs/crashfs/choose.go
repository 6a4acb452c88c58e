package crashfs

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
)

// option is what a power cut may leave of one inode.
type option struct {
	in   *inode
	next []int  // the inodes that its names lead to, in order of the names
	kind string // of a file: which content
	kept []bool // of a directory: which operations
}

type choice struct {
	ino    int
	option *option
}

// chooser builds states inode by inode from the root, so that only reachable inodes count and a file with two names is
// chosen once.
type chooser struct {
	d       *disk
	limit   int  // most options of one directory
	journal bool // directories keep what the journal up to end holds
	end     uint64

	options map[int][]option
	taken   []bool // by inode number
	picked  []choice
}

func newChooser(d *disk, limit int) *chooser {
	return &chooser{d: d, limit: limit, options: map[int][]option{}, taken: make([]bool, len(d.inodes))}
}

// again returns a chooser of the same states that shares the options found so far.
func (c *chooser) again() *chooser {
	a := *c
	a.taken, a.picked = make([]bool, len(c.taken)), nil
	return &a
}

func (c *chooser) take(ino int, o *option) {
	c.taken[ino] = true
	c.picked = append(c.picked, choice{ino, o})
}

// undo forgets the choices after the first n.
func (c *chooser) undo(n int) {
	for _, p := range c.picked[n:] {
		c.taken[p.ino] = false
	}
	c.picked = c.picked[:n]
}

// walk calls leaf for every way to choose an option for each inode that the given ones lead to. Inodes without a choice
// go first, so that they are visited once and not once a state.
func (c *chooser) walk(todo []int, leaf func() bool) bool {
	mark := len(c.picked)
	defer c.undo(mark)
	var open []int
	for len(todo) > 0 {
		ino := todo[0]
		todo = todo[1:]
		if c.taken[ino] {
			continue
		}
		options, ok := c.of(ino)
		if !ok {
			return false
		}
		if len(options) > 1 {
			open = append(open, ino)
			continue
		}
		c.take(ino, &options[0])
		todo = append(slices.Clip(todo), options[0].next...)
	}
	for len(open) > 0 && c.taken[open[0]] {
		open = open[1:]
	}
	if len(open) == 0 {
		return leaf()
	}
	options, _ := c.of(open[0])
	for i := range options {
		before := len(c.picked)
		c.take(open[0], &options[i])
		if !c.walk(append(slices.Clone(open[1:]), options[i].next...), leaf) {
			return false
		}
		c.undo(before)
	}
	return true
}

// random chooses one option for each reachable inode; keep is the chance of an operation to survive.
func (c *chooser) random(rng *rand.Rand, keep float64) {
	todo := []int{root}
	for len(todo) > 0 {
		ino := todo[0]
		todo = todo[1:]
		if c.taken[ino] {
			continue
		}
		o := c.randomOption(rng, keep, c.d.inodes[ino])
		c.take(ino, &o)
		todo = append(todo, o.next...)
	}
}

func (c *chooser) randomOption(rng *rand.Rand, keep float64, in *inode) option {
	switch {
	case !in.dir:
		all := in.contents()
		return fileOption(in, all[pick(rng, keep, len(all))])
	case c.journal:
		return c.journalOption(in)
	}
	kept := make([]bool, len(in.ops))
	for i, needs := range in.needs() {
		met := !slices.ContainsFunc(needs, func(j int) bool { return !kept[j] })
		kept[i] = rng.Float64() < keep && met
	}
	return dirOption(in, kept)
}

// of returns the options of an inode, or false if there are more than limit.
func (c *chooser) of(ino int) ([]option, bool) {
	if o, ok := c.options[ino]; ok {
		return o, true
	}
	in := c.d.inodes[ino]
	var options []option
	switch {
	case !in.dir:
		for _, content := range in.contents() {
			options = append(options, fileOption(in, content))
		}
	case c.journal:
		options = []option{c.journalOption(in)}
	default:
		var ok bool
		if options, ok = subsets(in, c.limit); !ok {
			return nil, false
		}
	}
	c.options[ino] = options
	return options, true
}

func (c *chooser) journalOption(in *inode) option {
	kept := make([]bool, len(in.ops))
	for i, op := range in.ops {
		kept[i] = c.d.survives(op, c.end)
	}
	return dirOption(in, kept)
}

// subsets returns an option for each set of pending operations that may survive together, without those that leave the
// same names as an earlier one, or false if there are more than limit or finding out takes too long.
func subsets(in *inode, limit int) ([]option, bool) {
	needs, kept := in.needs(), make([]bool, len(in.ops))
	var options []option
	seen := map[string]bool{}
	patience := 4*limit + 64 // sets that leave the same names cost time without adding a state
	var extend func(i int) bool
	extend = func(i int) bool {
		if i == len(in.ops) {
			patience--
			if key := touched(in, kept); !seen[key] {
				seen[key] = true
				options = append(options, dirOption(in, slices.Clone(kept)))
			}
			return patience > 0 && len(options) <= limit
		}
		if !extend(i + 1) {
			return false
		}
		if slices.ContainsFunc(needs[i], func(j int) bool { return !kept[j] }) {
			return true
		}
		kept[i] = true
		ok := extend(i + 1)
		kept[i] = false
		return ok
	}
	ok := extend(0)
	return options, ok
}

// touched is a key for the names that the kept operations leave: it lists the names they change.
func touched(in *inode, kept []bool) string {
	changed := map[string]int{}
	for i, op := range in.ops {
		for _, e := range op.set {
			if kept[i] {
				changed[e.name] = e.ino
			} else if _, ok := changed[e.name]; !ok {
				changed[e.name] = in.diskNames[e.name]
			}
		}
	}
	var key strings.Builder
	for _, name := range slices.Sorted(maps.Keys(changed)) {
		fmt.Fprintf(&key, "%s/%d/", name, changed[name])
	}
	return key.String()
}

func fileOption(in *inode, c content) option {
	if !in.dirty() && !in.strays {
		return option{in: in, kind: c.kind}
	}
	settled := *in
	settled.owner, settled.data, settled.disk, settled.writes, settled.strays = nil, c.data, c.data, nil, false
	return option{in: &settled, kind: c.kind}
}

func dirOption(in *inode, kept []bool) option {
	names := in.diskNames
	if slices.Contains(kept, true) {
		names = maps.Clone(names)
		for i, op := range in.ops {
			if kept[i] {
				applyNames(names, op)
			}
		}
	}
	settled := *in
	settled.owner, settled.names, settled.diskNames, settled.ops = nil, names, names, nil
	o := option{in: &settled, kept: kept, next: make([]int, 0, len(names))}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		o.next = append(o.next, names[name])
	}
	return o
}

// build returns the chosen state as a file system of its own. What isn't reachable in it is left to collect.
func (c *chooser) build() *FS {
	d := &disk{owner: new(token), inodes: slices.Clone(c.d.inodes), free: slices.Clone(c.d.free), collectAt: c.d.collectAt,
		seq: c.d.seq, committed: c.d.seq, now: c.d.now}
	d.resetVolatile()
	dirty := false
	for _, p := range c.picked {
		d.inodes[p.ino] = p.option.in
		dirty = dirty || c.d.inodes[p.ino].dirty()
	}
	if dirty {
		picked, base := slices.Clone(c.picked), c.d
		d.cut = func() string { return describe(base, paths(base), picked) }
	}
	return fsOf(d)
}

// paths names each inode by a path of the page cache, or else by one that pending operations took away.
func paths(d *disk) map[int]string {
	found := map[int]string{root: "/"}
	todo := []int{root}
	for len(todo) > 0 {
		dir := todo[0]
		todo = todo[1:]
		in := d.inodes[dir]
		visit := func(name string, ino int) {
			if _, ok := found[ino]; !ok && ino != 0 {
				found[ino] = path.Join(found[dir], name)
				todo = append(todo, ino)
			}
		}
		for _, names := range []map[string]int{in.names, in.diskNames} {
			for _, name := range slices.Sorted(maps.Keys(names)) {
				visit(name, names[name])
			}
		}
		for _, op := range in.ops {
			for _, e := range op.set {
				visit(e.name, e.ino)
			}
		}
	}
	return found
}
