package crashfs

import (
	"fmt"
	"strings"

	"shardlease/pkg/groupcommit/vfs"
)

// Sweep cuts the power after every operation of a piece of work.
type Sweep struct {
	Limit    int      // most states of one moment and policy; above it a sample of that size
	Seed     uint64   // of the samples
	Policies []Policy // nil means Strict and Journal
	// Fault, if not nil, decides over each operation as in FS.WithFaults.
	Fault func(*vfs.Call) error

	// What Run has done, added up over all runs.
	Moments int // at which the power was cut
	Sampled int // pairs of moment and policy that had more states than Limit
	States  int // states checked
}

// Run runs work on f and gives check every state of every policy: before the first operation, after each one that changed
// what a power cut may leave, whenever work calls acked, and at the end. work calls acked once it has noted that it was
// told something is durable; what names the promise in errors. The first error of check ends the checking, not the
// work, and is returned with the moment, the policy and the cut in its text.
//
// check runs inside the operation, before work sees its result. work gets f with the cuts built in; its operations must
// not run concurrently.
func (s *Sweep) Run(f *FS, work func(fsys vfs.FS, acked func(what string)), check func(crashed *FS) error) error {
	var first error
	var last uint64
	cut := func(moment string) {
		if first != nil {
			return
		}
		last = f.Changes()
		s.Moments++
		first = s.cut(f, moment, check)
	}
	cut("the start")
	n := 0
	var below vfs.FS = f
	if s.Fault != nil {
		below = f.WithFaults(s.Fault)
	}
	fsys := vfs.Intercept(below, func(c *vfs.Call, do func() error) error {
		err := do()
		n++
		if f.Changes() != last {
			cut(fmt.Sprintf("operation %d, %s %s", n, c.Op, strings.TrimSpace(c.Name+" "+c.NewName)))
		}
		return err
	})
	work(fsys, func(what string) { cut("acknowledging " + what) })
	cut("the end")
	return first
}

func (s *Sweep) cut(f *FS, moment string, check func(*FS) error) error {
	policies := s.Policies
	if policies == nil {
		policies = []Policy{Strict, Journal}
	}
	for _, p := range policies {
		states := f.States(p, s.Limit, s.Seed)
		if !states.Exhaustive {
			s.Sampled++
		}
		i := 0
		for crashed := range states.All() {
			s.States++
			if err := check(crashed); err != nil {
				return fmt.Errorf("power cut after %s, %v policy, state %d of %d, seed %d (%s): %w",
					moment, p, i, states.Count, s.Seed, crashed.Cut(), err)
			}
			i++
		}
	}
	return nil
}

func (s *Sweep) String() string {
	return fmt.Sprintf("%d crash states at %d moments; %d sets over the limit of %d were sampled with seed %d",
		s.States, s.Moments, s.Sampled, s.Limit, s.Seed)
}
