package sim

import (
	"iter"
	"time"
)

// task is one step of an actor, or one batch of a heartbeat lane. It runs as a coroutine, so that it can be suspended within a
// file-system operation while others go on; only one of all tasks runs at any time.
type task struct {
	run    func() (asleep time.Duration, suspended bool)
	cancel func()
	sleep  func(time.Duration) bool
	due    time.Time // to go on
	then   func()    // when it has ended
}

func newTask(f func()) *task {
	t := &task{}
	t.run, t.cancel = iter.Pull(func(sleep func(time.Duration) bool) {
		t.sleep = sleep
		f()
	})
	return t
}

// resume runs t until it is suspended, and then keeps it in slot, or until it has ended.
func (c *Cluster) resume(slot **task, t *task) {
	outer := c.running
	c.running = t
	d, suspended := t.run()
	c.running = outer
	if suspended {
		t.due = c.now.Add(d)
		*slot = t
		return
	}
	*slot = nil
	t.then()
}

// Sleep suspends the step or batch of rank that is running for d, as a slow file-system operation does, while everything else goes on. It
// is for the file systems of Config.FS.
func (c *Cluster) Sleep(rank int, d time.Duration) {
	if c.running != nil && !c.ranks[rank].killed {
		c.running.sleep(d)
	}
}

// Kill ends a rank at once, as SIGKILL does: nothing more happens in it, and nothing that its unfinished steps still want is done. The caller
// has killed its view of the file system before, since these steps run on to their ends.
func (c *Cluster) Kill(rank int) {
	r := c.ranks[rank]
	r.killed = true
	outer := c.running
	c.running = nil
	for _, t := range []*task{r.step, r.batch} {
		if t != nil && t != outer {
			t.cancel()
		}
	}
	c.running = outer
	r.step, r.batch = nil, nil
}
