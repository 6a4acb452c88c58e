//go:build mpi && cgo

package mpi

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// How the owner waits. Timers below a millisecond are about a millisecond in an
// idle Go program, so a shorter first delay would only cost more.
const (
	spins    = 20 // turns that only yield, before it sleeps
	pollMin  = time.Millisecond
	pollMax  = 5 * time.Millisecond
	maxCalls = 64 // requests served between two polls
)

// Messages handed to MPI whose buffers it still needs, per communicator and
// destination. Further ones wait in the process: a rank that does not receive
// delays those who send to it, and nobody else.
const (
	maxPending      = 256
	maxPendingBytes = 64 << 20
)

// owner is the one goroutine that calls MPI. Others reach it through calls.
// All other fields are its own.
type owner struct {
	calls   chan func()   // run on the owner's thread
	ended   chan struct{} // closed when no further call is served
	last    chan func()   // MPI_Finalize, after ended
	world   *Comm
	exit    *Comm // all ranks too; its MPI barrier must not meet one of the program's
	stopped bool

	routes      map[routeKey]*route
	recvs       []*recvOp // waiting, in order of arrival
	arrived     []*arrival
	collectives []*collective
}

type routeKey struct {
	comm *Comm
	to   int
}

// route is the traffic to one destination, in order.
type route struct {
	pending []*sendOp // handed to MPI
	waiting []*sendOp
	bytes   int   // of pending
	err     error // a send failed after it had been accepted: reported by the next one
}

type sendOp struct {
	ticket
	comm     *Comm
	to, tag  int
	data     []byte
	transfer *transfer
}

type recvOp struct {
	ticket
	comm      *Comm
	from, tag int
	msg       Message
}

// arrival is a message that MPI has matched; until done, its content is on its way.
type arrival struct {
	comm     *Comm
	msg      *Message
	transfer *transfer
	done     bool
	err      error
}

// collective is an MPI barrier this rank has entered. Entered stays entered: when
// the caller has given up, the owner still does what the other ranks wait for.
type collective struct {
	ticket
	comm     *Comm
	transfer *transfer
	then     func() error // after all ranks have entered
}

// ticket decides, once, between the owner doing a request and its caller giving up.
type ticket struct {
	taken atomic.Bool
	done  chan error
}

func newTicket() ticket { return ticket{done: make(chan error, 1)} }

// take reports whether the taker came first.
func (t *ticket) take() bool { return t.taken.CompareAndSwap(false, true) }

// await hands begin to the owner and waits for the outcome of t. When ctx or MPI
// ends before the owner has taken t, the request has no effect on this rank.
func (o *owner) await(ctx context.Context, t *ticket, begin func()) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case o.calls <- begin:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-o.ended:
		return ErrEnded
	}
	select {
	case err := <-t.done:
		return err
	case <-ctx.Done():
		if t.take() {
			return context.Cause(ctx)
		}
	case <-o.ended:
		if t.take() {
			return ErrEnded
		}
	}
	return <-t.done
}

// serve runs until stop. It polls even when nothing is asked of it, because other
// ranks' transfers need this rank's progress.
func (o *owner) serve() {
	idle, delay := 0, pollMin
	timer := time.NewTimer(pollMax)
	for !o.stopped {
		busy := o.serveCalls()
		if o.poll() || busy {
			idle, delay = 0, pollMin
			continue
		}
		if idle < spins {
			idle++
			runtime.Gosched()
			continue
		}
		timer.Reset(delay)
		select {
		case call := <-o.calls:
			call()
			idle, delay = 0, pollMin
		case <-timer.C:
			delay = min(2*delay, pollMax)
		}
	}
	close(o.ended)
}

func (o *owner) serveCalls() (busy bool) {
	for range maxCalls {
		select {
		case call := <-o.calls:
			call()
			busy = true
		default:
			return busy
		}
	}
	return busy
}

// poll moves everything that can move and reports whether something did.
func (o *owner) poll() (busy bool) {
	progress(o.world.handle)
	for _, r := range o.routes {
		busy = o.pollRoute(r) || busy
	}
	busy = o.pollArrivals() || busy
	busy = o.pollRecvs() || busy
	return o.pollCollectives() || busy
}

func (o *owner) beginSend(s *sendOp) {
	key := routeKey{s.comm, s.to}
	r := o.routes[key]
	if r == nil {
		r = new(route)
		o.routes[key] = r
	}
	r.waiting = append(r.waiting, s)
	o.fillRoute(r)
}

// fillRoute hands waiting messages to MPI, in order, as far as the window allows.
func (o *owner) fillRoute(r *route) {
	for len(r.waiting) > 0 {
		s := r.waiting[0]
		full := len(r.pending) >= maxPending || r.bytes+len(s.data) > maxPendingBytes
		if full && len(r.pending) > 0 {
			return
		}
		r.waiting = r.waiting[1:]
		if !s.take() {
			continue
		}
		err := r.err
		if r.err = nil; err == nil {
			s.transfer, err = startSend(s.comm.handle, s.to, s.tag, s.data)
		}
		if err == nil {
			r.pending = append(r.pending, s)
			r.bytes += len(s.data)
		}
		s.done <- err
	}
}

func (o *owner) pollRoute(r *route) (busy bool) {
	kept := r.pending[:0]
	for _, s := range r.pending {
		ended, err := s.transfer.test()
		if !ended {
			kept = append(kept, s)
			continue
		}
		busy = true
		r.bytes -= len(s.data)
		if err != nil {
			r.err = err
		}
	}
	clear(r.pending[len(kept):])
	r.pending = kept
	if busy || len(r.waiting) > 0 {
		o.fillRoute(r)
	}
	return busy
}
