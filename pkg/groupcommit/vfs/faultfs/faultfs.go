// Package faultfs fails, delays or shortens chosen operations of a file system and counts what it injected, so that a
// test can prove that each injected error surfaced.
package faultfs

import (
	"path"
	"path/filepath"
	"sync"

	"shardlease/pkg/groupcommit/vfs"
)

// Rule says which operations go wrong, and how. The zero value of each selecting field matches everything.
type Rule struct {
	Op    vfs.Op                 // kind of operation
	Base  string                 // pattern (path.Match) for the base name; either name of a rename, exchange or link
	Match func(c *vfs.Call) bool // anything else; must be safe for concurrent use

	Nth    int  // the first match that goes wrong, counted from 1; 0 means 1
	Sticky bool // so does every later match

	// Hook runs before the operation and may block it. It counts as injected. It must be safe for concurrent use.
	Hook func(c *vfs.Call)
	// Err is returned instead of doing the operation. A close or unlock is done in any case: what it holds would leak.
	Err error
	// After does the operation first and then returns Err: done, but not known to be done.
	After bool
	// Short takes this many bytes off the end of a read or write (at most all), without an error of its own.
	Short int
}

// FS is a vfs.FS under fault injection. It is safe for concurrent use.
type FS struct {
	vfs.FS

	mu    sync.Mutex
	rules []*active
}

type active struct {
	Rule
	seen, injected int
}

// New returns fsys without any fault yet.
func New(fsys vfs.FS) *FS {
	f := &FS{}
	f.FS = vfs.Intercept(fsys, f.around)
	return f
}

// Inject adds a rule. The first rule that fires for an operation is the one applied to it; the others still count it as
// seen. A malformed pattern panics.
func (f *FS) Inject(r Rule) {
	if _, err := path.Match(r.Base, ""); err != nil {
		panic("faultfs: " + r.Base + ": " + err.Error())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, &active{Rule: r})
}

// Clear removes the rules and sets the count to zero.
func (f *FS) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
}

// Injected returns how many operations went wrong on purpose since the last Clear.
func (f *FS) Injected() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, r := range f.rules {
		n += r.injected
	}
	return n
}

func (f *FS) around(c *vfs.Call, do func() error) error {
	r := f.fire(c)
	if r == nil {
		return do()
	}
	if r.Hook != nil {
		r.Hook(c)
	}
	if r.Short > 0 {
		c.Data = c.Data[:max(0, len(c.Data)-r.Short)]
	}
	if r.Err == nil {
		return do()
	}
	if r.After || c.Op == vfs.OpClose || c.Op == vfs.OpUnlock {
		_ = do() // the injected error is what counts
	}
	return r.Err
}

// fire returns the rule that applies to this operation, or nil.
func (f *FS) fire(c *vfs.Call) *Rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	var fired *active
	for _, r := range f.rules {
		if !r.matches(c) {
			continue
		}
		r.seen++
		nth := max(1, r.Nth)
		if fired == nil && (r.seen == nth || r.seen > nth && r.Sticky) {
			fired = r
			r.injected++
		}
	}
	if fired == nil {
		return nil
	}
	return &fired.Rule
}

func (r *Rule) matches(c *vfs.Call) bool {
	return (r.Op == "" || r.Op == c.Op) &&
		(r.Base == "" || matchBase(r.Base, c.Name) || c.NewName != "" && matchBase(r.Base, c.NewName)) &&
		(r.Match == nil || r.Match(c))
}

func matchBase(pattern, name string) bool {
	ok, _ := path.Match(pattern, filepath.Base(name)) // Inject has checked the pattern
	return ok
}
