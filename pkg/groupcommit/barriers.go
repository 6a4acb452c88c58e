package groupcommit

import (
	"sync"

	"shardlease/pkg/groupcommit/vfs"
)

// barriers lets goroutines that wait for a barrier of one directory share it. Nobody waits for company: a barrier
// starts at once if none is running there, and whoever comes while one is running joins the next, which starts as soon as that ends. So
// a barrier covers exactly those who switched their names before it started (assumption A3).
//
// A failed barrier fails everyone it covers and is not tried again for them.
type barriers struct {
	fsys vfs.FS

	mu   sync.Mutex
	dirs map[string]*round // running barriers; each holds the round that comes next, or nil
}

// round is one barrier to come, with all who wait for it.
type round struct {
	next *round
	lead chan struct{} // one token, for the member that is to run it
	done chan struct{} // closed when it ended with err
	err  error
}

func newRound() *round {
	return &round{lead: make(chan struct{}, 1), done: make(chan struct{})}
}

// sync makes every name durable that was changed in dir before the call, or says that this is unknown.
func (b *barriers) sync(dir string) error {
	b.mu.Lock()
	running := b.dirs[dir]
	if running == nil {
		r := newRound()
		b.dirs[dir] = r
		b.mu.Unlock()
		return b.run(dir, r)
	}
	if running.next == nil {
		running.next = newRound()
	}
	r := running.next
	b.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-r.lead:
		return b.run(dir, r)
	}
}

// run runs the barrier of r, which is b.dirs[dir], and hands over to one of those who have come meanwhile.
func (b *barriers) run(dir string, r *round) error {
	r.err = SyncDir(b.fsys, dir)
	b.mu.Lock()
	if r.next != nil {
		b.dirs[dir] = r.next
		r.next.lead <- struct{}{}
	} else {
		delete(b.dirs, dir)
	}
	b.mu.Unlock()
	close(r.done)
	return r.err
}
