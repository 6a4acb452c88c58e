//go:build mpi && cgo

package mpi

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"
)

// Enabled reports whether this program was built with MPI.
const Enabled = true

// Comm is a group of ranks that exchange messages, numbered from 0. Messages of
// different communicators never meet. Its methods may be called from any goroutine
// until Run returns; then they return ErrEnded.
type Comm struct {
	owner      *owner
	handle     commHandle
	rank, size int
}

// Rank returns the number of this process in c.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks in c.
func (c *Comm) Size() int { return c.size }

// Send hands a copy of data to MPI and returns; it does not wait for the receiver,
// so two ranks may send to each other first and receive then. Messages of one
// goroutine to one rank arrive in the order they were sent. When 256 messages or
// 64 MiB to that rank are on their way, Send waits until there is room or ctx ends.
//
// After nil the message is received if the rank receives it and no process of the
// job dies before; MPI gives no receipt. After an error it was not sent: it matches
// ErrNotSent and the cause, an *Error of the library (bad rank, bad tag) among them.
// An error that MPI reports late, for a message already accepted, is returned by
// the next Send to the same rank.
func (c *Comm) Send(ctx context.Context, to, tag int, data []byte) error {
	err := fitsC("MPI_Isend", classCount, "length", len(data))
	if err == nil {
		err = fitsC("MPI_Isend", classRank, "rank", to)
	}
	if err == nil {
		err = fitsC("MPI_Isend", classTag, "tag", tag)
	}
	if err == nil {
		s := &sendOp{ticket: newTicket(), comm: c, to: to, tag: tag, data: bytes.Clone(data)}
		err = c.owner.await(ctx, &s.ticket, func() { c.owner.beginSend(s) })
	}
	if err != nil {
		return fmt.Errorf("%w to rank %d: %w", ErrNotSent, to, err)
	}
	return nil
}

// Recv waits for a message of that rank (or AnySource) and tag (or AnyTag).
// When ctx ends first, no message is lost: the next receive gets it.
func (c *Comm) Recv(ctx context.Context, from, tag int) (Message, error) {
	if err := checkSelector(from, tag); err != nil {
		return Message{}, err
	}
	r := &recvOp{ticket: newTicket(), comm: c, from: from, tag: tag}
	err := c.owner.await(ctx, &r.ticket, func() { c.owner.recvs = append(c.owner.recvs, r) })
	if err != nil {
		return Message{}, err
	}
	return r.msg, nil
}

// TryRecv is Recv without waiting: false means that no such message is here yet.
// A loop that has nothing else to do should wait in Recv instead.
func (c *Comm) TryRecv(from, tag int) (Message, bool, error) {
	if err := checkSelector(from, tag); err != nil {
		return Message{}, false, err
	}
	var msg Message
	var ok bool
	t := newTicket()
	err := c.owner.await(context.Background(), &t, func() {
		if t.take() {
			var err error
			msg, ok, err = c.owner.tryRecv(c, from, tag)
			t.done <- err
		}
	})
	return msg, ok && err == nil, err
}

func checkSelector(from, tag int) error {
	if from < AnySource {
		return &Error{Op: "MPI_Improbe", Class: classRank, Text: fmt.Sprintf("no rank %d", from)}
	}
	if tag < AnyTag {
		return &Error{Op: "MPI_Improbe", Class: classTag, Text: fmt.Sprintf("no tag %d", tag)}
	}
	if err := fitsC("MPI_Improbe", classRank, "rank", from); err != nil {
		return err
	}
	return fitsC("MPI_Improbe", classTag, "tag", tag)
}

// Barrier is an MPI barrier: it returns nil after every rank of c has entered it.
// When ctx ends first, this rank has entered all the same and the others may pass;
// the next Barrier is the next one. All ranks call the collective methods, Barrier
// and Split, of one communicator in the same order.
func (c *Comm) Barrier(ctx context.Context) error {
	g := &collective{ticket: newTicket(), comm: c}
	return c.owner.await(ctx, &g.ticket, func() { c.owner.beginCollective(g) })
}

// Split is collective: it makes one communicator of all ranks that give the same
// color (0 or more), ordered by key, then by rank. When ctx ends first, this rank
// has taken part all the same and the result is dropped.
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	if color < 0 {
		return nil, fmt.Errorf("mpi: split: color %d: want 0 or more", color)
	}
	if err := fitsC("MPI_Comm_split", classCount, "color or key", max(color, key)); err != nil {
		return nil, err
	}
	part := &Comm{owner: c.owner}
	g := &collective{ticket: newTicket(), comm: c}
	// MPI_Comm_split blocks and spins. It begins when all ranks are there.
	g.then = func() (err error) {
		if part.handle, err = split(c.handle, color, key); err != nil {
			return err
		}
		part.rank, part.size, err = rankAndSize(part.handle)
		return err
	}
	if err := c.owner.await(ctx, &g.ticket, func() { c.owner.beginCollective(g) }); err != nil {
		return nil, err
	}
	return part, nil
}

// abortLimit bounds the time in which MPI_Abort has to end the process.
const abortLimit = 2 * time.Second

// Abort ends all ranks of the job at once; mpirun exits with code, which is 1 to
// 255 (anything else becomes 1: an abort is never a success). It does not return.
func (c *Comm) Abort(code int) {
	if code < 1 || code > 255 {
		code = 1
	}
	select {
	case c.owner.calls <- func() { abort(code) }:
		time.Sleep(abortLimit)
	case <-time.After(abortLimit): // the owner is inside MPI
	case <-c.owner.ended:
	}
	// Leaving without MPI_Finalize makes mpirun end the job too, only later.
	os.Exit(code)
}
