//go:build mpi && cgo

package mpi

import "slices"

func (o *owner) pollArrivals() (busy bool) {
	for _, a := range o.arrived {
		if !a.done {
			a.done, a.err = a.transfer.test()
			busy = busy || a.done
		}
	}
	return busy
}

// pollRecvs serves the waiting receives in the order in which they were asked for.
func (o *owner) pollRecvs() (busy bool) {
	o.recvs = slices.DeleteFunc(o.recvs, func(r *recvOp) bool {
		if r.taken.Load() { // the caller has given up; an arrival it might have had stays
			return true
		}
		a, err := o.find(r.comm, r.from, r.tag)
		if err == nil && a == nil {
			return false
		}
		busy = true
		if err != nil {
			if r.take() {
				r.done <- err
			}
			return true
		}
		if !a.done {
			return false
		}
		if r.take() {
			r.msg = *a.msg
			o.forget(a)
			r.done <- a.err
		}
		return true
	})
	return busy
}

// find returns the first message that fits, complete or not. One that is still on
// its way holds back later ones: messages of one sender never overtake each other.
func (o *owner) find(c *Comm, from, tag int) (*arrival, error) {
	for _, a := range o.arrived {
		if a.comm == c && (from == AnySource || from == a.msg.From) && (tag == AnyTag || tag == a.msg.Tag) {
			return a, nil
		}
	}
	msg, t, err := startRecv(c.handle, from, tag)
	if err != nil || msg == nil {
		return nil, err
	}
	a := &arrival{comm: c, msg: msg, transfer: t}
	a.done, a.err = t.test()
	o.arrived = append(o.arrived, a)
	return a, nil
}

func (o *owner) forget(a *arrival) {
	o.arrived = slices.DeleteFunc(o.arrived, func(b *arrival) bool { return a == b })
}

// tryRecv looks twice, since MPI makes progress only after it has looked.
func (o *owner) tryRecv(c *Comm, from, tag int) (Message, bool, error) {
	progress(o.world.handle)
	o.pollArrivals()
	a, err := o.find(c, from, tag)
	if err != nil || a == nil || !a.done {
		return Message{}, false, err
	}
	o.forget(a)
	return *a.msg, a.err == nil, a.err
}

// beginCollective enters the MPI barrier of c; then runs on the owner's thread once
// all ranks have entered it.
func (o *owner) beginCollective(g *collective) {
	var err error
	if g.transfer, err = startBarrier(g.comm.handle); err != nil {
		g.finish(err)
		return
	}
	o.collectives = append(o.collectives, g)
}

func (o *owner) pollCollectives() (busy bool) {
	o.collectives = slices.DeleteFunc(o.collectives, func(g *collective) bool {
		ended, err := g.transfer.test()
		if !ended {
			return false
		}
		busy = true
		if err == nil && g.then != nil {
			err = g.then()
		}
		g.finish(err)
		return true
	})
	return busy
}

func (g *collective) finish(err error) {
	if g.take() {
		g.done <- err
	}
}

// undelivered counts, for each world or part rank, the messages MPI still has to hand over.
func (o *owner) undelivered() map[int]int {
	counts := make(map[int]int)
	for key, r := range o.routes {
		if n := len(r.pending); n > 0 {
			counts[key.to] += n
		}
	}
	return counts
}
