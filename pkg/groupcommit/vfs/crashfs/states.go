package crashfs

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
)

// Policy says which of the unsynced directory operations may survive a power cut together; see the package comment.
type Policy int

const (
	// Strict keeps any subset in each directory: the least that POSIX promises.
	Strict Policy = iota
	// Journal keeps a prefix of all operations: what a metadata journal does.
	Journal
)

func (p Policy) String() string { return [...]string{"strict", "journal"}[p] }

// States is a set of file systems that a power cut may leave.
type States struct {
	// Exhaustive says that All yields every state of the model. Otherwise it yields a seeded sample: nothing
	// survived, everything survived, and random states.
	Exhaustive bool
	// Count is the number of states that All yields.
	Count int

	base     *disk
	policy   Policy
	seed     uint64
	choosers []*chooser // of an exhaustive set
}

// States returns the file systems that a power cut may leave now: all of them if they are at most limit, else a sample
// of that size. The receiver is not changed and may go on. A limit under 2 counts as 2. Under Strict different states
// differ in a name, in a content, or in which of several new inodes has them; under Journal two ends of the journal may
// leave the same.
func (f *FS) States(p Policy, limit int, seed uint64) *States {
	f.d.mu.Lock()
	s := &States{base: f.d.snapshot(), policy: p, seed: seed}
	f.d.mu.Unlock()
	limit = max(limit, 2)
	s.choosers = choosers(s.base, p, limit)
	s.Exhaustive = s.each(func(*chooser) bool {
		s.Count++
		return s.Count <= limit
	})
	if !s.Exhaustive {
		s.Count, s.choosers = limit, nil
	}
	return s
}

// Crash returns one of the file systems that a power cut may leave now, chosen by the seed. Whatever still runs on the
// receiver goes on in a world without the power cut.
func (f *FS) Crash(p Policy, seed uint64) *FS {
	f.d.mu.Lock()
	base := f.d.snapshot()
	f.d.mu.Unlock()
	return sample(base, p, rand.New(rand.NewPCG(seed, 2)), -1)
}

// Cut says, for a file system that States or Crash returned, what survived of the operations that were pending, by the
// paths of the moment of the cut. "" means that nothing was pending.
func (f *FS) Cut() string {
	if f.d.cut == nil {
		return ""
	}
	return f.d.cut()
}

// All yields the states in a fixed order. Each is independent of the others and of the file system they come from.
func (s *States) All() iter.Seq[*FS] {
	return func(yield func(*FS) bool) {
		if s.Exhaustive {
			s.each(func(c *chooser) bool { return yield(c.build()) })
			return
		}
		rng := rand.New(rand.NewPCG(s.seed, 1))
		for i := range s.Count {
			if !yield(sample(s.base, s.policy, rng, i)) {
				return
			}
		}
	}
}

// each walks all states. It returns false if visit stopped it, or if a directory alone has more states than the limit.
func (s *States) each(visit func(*chooser) bool) bool {
	for _, c := range s.choosers {
		c := c.again()
		if !c.walk([]int{root}, func() bool { return visit(c) }) {
			return false
		}
	}
	return true
}

// choosers returns one for each end of the journal, or the only one under Strict.
func choosers(d *disk, p Policy, limit int) []*chooser {
	if p == Strict {
		return []*chooser{newChooser(d, limit)}
	}
	var all []*chooser
	for _, end := range d.journalEnds() {
		c := newChooser(d, limit)
		c.journal, c.end = true, end
		all = append(all, c)
	}
	return all
}

// journalEnds lists the places where the journal may end: the last commit, and each pending operation after it.
func (d *disk) journalEnds() []uint64 {
	ends := []uint64{d.committed}
	for _, in := range d.inodes {
		if in == nil {
			continue
		}
		for _, op := range in.ops {
			if op.seq > d.committed {
				ends = append(ends, op.seq)
			}
		}
	}
	slices.Sort(ends)
	return slices.Compact(ends)
}

// survives says whether a journal that ends at end holds the operation.
func (d *disk) survives(op dirOp, end uint64) bool {
	if op.seq <= d.committed {
		return !op.doomed
	}
	return op.seq <= end
}

// sample returns state number i of a sample: the first two are the extremes, the others random.
func sample(d *disk, p Policy, rng *rand.Rand, i int) *FS {
	c := newChooser(d, 0)
	keep := rng.Float64()
	switch i {
	case 0:
		keep = 0
	case 1:
		keep = 1
	}
	if p == Journal {
		ends := d.journalEnds()
		c.journal, c.end = true, ends[pick(rng, keep, len(ends))]
	}
	c.random(rng, keep)
	return c.build()
}

// pick draws an index: the first for keep 0, the last for keep 1, any in between.
func pick(rng *rand.Rand, keep float64, n int) int {
	switch keep {
	case 0:
		return 0
	case 1:
		return n - 1
	}
	return rng.IntN(n)
}

// describe lists the choices of a state, one inode a clause.
func describe(d *disk, path map[int]string, picked []choice) string {
	var parts []string
	for _, p := range picked {
		in := d.inodes[p.ino]
		if !in.dirty() {
			continue
		}
		if !in.dir {
			parts = append(parts, fmt.Sprintf("%s: content %s", path[p.ino], p.option.kind))
			continue
		}
		var ops []string
		for i, op := range in.ops {
			verb := "lost"
			if p.option.kept[i] {
				verb = "kept"
			}
			ops = append(ops, verb+" "+op.text)
		}
		parts = append(parts, fmt.Sprintf("%s: %s", path[p.ino], strings.Join(ops, ", ")))
	}
	return strings.Join(parts, "; ")
}
