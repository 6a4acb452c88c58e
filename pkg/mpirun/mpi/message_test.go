//go:build mpi && cgo

package mpi_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"shardlease/pkg/mpirun/mpi"
)

func init() {
	programs["echo"] = echo
	programs["manyToOne"] = manyToOne
	programs["split"] = splitByParity
	programs["errors"] = badArguments
	programs["cancel"] = cancelled
	programs["crossing"] = crossing
	programs["window"] = window
	programs["storm"] = storm
}

func TestMessagesOfAnySizeComeBackUnchanged(t *testing.T)     { both(t, "echo") }
func TestMessagesOfOneSenderKeepTheirOrder(t *testing.T)      { both(t, "manyToOne") }
func TestSplitMakesCommunicatorsOfTheirOwn(t *testing.T)      { both(t, "split") }
func TestMistakesComeBackAsErrors(t *testing.T)               { succeed(t, 2, "errors") }
func TestACancelledReceiveLosesNothing(t *testing.T)          { succeed(t, 2, "cancel") }
func TestTwoRanksMaySendFirst(t *testing.T)                   { both(t, "crossing") }
func TestARankThatDoesNotReceiveHoldsBackSend(t *testing.T)   { succeed(t, 3, "window") }
func TestGoroutinesAndGarbageCollectionDoNoHarm(t *testing.T) { succeed(t, 3, "storm") }

func pattern(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i*7 + i>>8 + n)
	}
	return data
}

func echo(ctx context.Context, world *mpi.Comm) error {
	for _, n := range []int{0, 1, 1000, 4096, 65_537, 9 << 20} {
		if world.Rank() != 0 {
			m, err := world.Recv(ctx, 0, mpi.AnyTag)
			if err == nil {
				err = world.Send(ctx, 0, m.Tag+1, m.Data)
			}
			if err != nil {
				return err
			}
			continue
		}
		for to := 1; to < world.Size(); to++ {
			data := pattern(n)
			if err := world.Send(ctx, to, 2*to, data); err != nil {
				return err
			}
			clear(data) // Send has a copy
		}
		for range world.Size() - 1 {
			m, err := world.Recv(ctx, mpi.AnySource, mpi.AnyTag)
			if err != nil {
				return err
			}
			if m.Tag != 2*m.From+1 || !bytes.Equal(m.Data, pattern(n)) {
				return fmt.Errorf("%d bytes came back from rank %d as %d with tag %d", n, m.From, len(m.Data), m.Tag)
			}
		}
	}
	return world.Barrier(ctx)
}

func manyToOne(ctx context.Context, world *mpi.Comm) error {
	const count = 300
	if world.Rank() != 0 {
		for i := range count {
			// Sizes on both sides of the eager limit: transfers end in another order than they begin.
			data := binary.BigEndian.AppendUint32(nil, uint32(i))
			data = append(data, make([]byte, i%7*10_000)...)
			if err := world.Send(ctx, 0, 1+i%2, data); err != nil {
				return err
			}
		}
		return world.Barrier(ctx)
	}
	next := make([]uint32, world.Size())
	for got := 0; got < count*(world.Size()-1); {
		m, ok, err := world.TryRecv(mpi.AnySource, mpi.AnyTag)
		if err == nil && !ok {
			m, err = world.Recv(ctx, mpi.AnySource, mpi.AnyTag)
		}
		if err != nil {
			return err
		}
		if n := binary.BigEndian.Uint32(m.Data); n != next[m.From] {
			return fmt.Errorf("rank %d: message %d, want %d", m.From, n, next[m.From])
		}
		next[m.From]++
		got++
	}
	if _, ok, err := world.TryRecv(mpi.AnySource, mpi.AnyTag); ok || err != nil {
		return fmt.Errorf("one message too many: %v %v", ok, err)
	}
	return world.Barrier(ctx)
}

func splitByParity(ctx context.Context, world *mpi.Comm) error {
	part, err := world.Split(ctx, world.Rank()%2, -world.Rank()) // highest first
	if err != nil {
		return err
	}
	if want := world.Size() / 2; part.Size() != want || part.Rank() != want-1-world.Rank()/2 {
		return fmt.Errorf("rank %d is %d of %d", world.Rank(), part.Rank(), part.Size())
	}
	// The same tag in both communicators: the messages don't meet.
	to := (part.Rank() + 1) % part.Size()
	if err := part.Send(ctx, to, 5, []byte("part")); err != nil {
		return err
	}
	if err := world.Send(ctx, world.Rank(), 5, []byte("world")); err != nil {
		return err
	}
	m, err := world.Recv(ctx, mpi.AnySource, 5)
	if err != nil || string(m.Data) != "world" || m.From != world.Rank() {
		return fmt.Errorf("in world: %q from %d, %v", m.Data, m.From, err)
	}
	m, err = part.Recv(ctx, mpi.AnySource, 5)
	if err != nil || string(m.Data) != "part" || (m.From+1)%part.Size() != part.Rank() {
		return fmt.Errorf("in part: %q from %d, %v", m.Data, m.From, err)
	}
	return errors.Join(part.Barrier(ctx), world.Barrier(ctx))
}

func badArguments(ctx context.Context, world *mpi.Comm) error {
	var errs []error
	for _, to := range []int{world.Size(), -3, 1 << 40} {
		err := world.Send(ctx, to, 1, nil)
		if !errors.Is(err, mpi.ErrNotSent) {
			errs = append(errs, fmt.Errorf("rank %d: %v does not match ErrNotSent", to, err))
		}
		errs = append(errs, wantError("MPI_Isend", err))
	}
	errs = append(errs, wantError("MPI_Isend", world.Send(ctx, 0, -1, nil)))
	_, err := world.Recv(ctx, world.Size(), 1)
	errs = append(errs, wantError("MPI_Improbe", err))
	_, err = world.Recv(ctx, 0, -2)
	errs = append(errs, wantError("MPI_Improbe", err))
	_, _, err = world.TryRecv(-2, 1)
	errs = append(errs, wantError("MPI_Improbe", err))
	if _, err = world.Split(ctx, -1, 0); err == nil {
		errs = append(errs, errors.New("negative color accepted"))
	}
	if err := mpi.Run(ctx, mpi.Options{}, nil); !errors.Is(err, mpi.ErrEnded) {
		errs = append(errs, fmt.Errorf("second Run: %v", err))
	}
	return errors.Join(append(errs, world.Barrier(ctx))...) // still usable
}

func cancelled(ctx context.Context, world *mpi.Comm) error {
	why := errors.New("enough")
	gone, cancel := context.WithCancelCause(ctx)
	cancel(why)
	waiting, stop := context.WithCancelCause(ctx)
	done := make(chan error)
	go func() {
		_, err := world.Recv(waiting, mpi.AnySource, 9)
		done <- err
	}()
	stop(why)
	if err := <-done; !errors.Is(err, why) {
		return fmt.Errorf("cancelled receive: %v", err)
	}
	if err := world.Send(gone, 1, 9, nil); !errors.Is(err, why) || !errors.Is(err, mpi.ErrNotSent) {
		return fmt.Errorf("send with an ended context: %v", err)
	}
	if world.Rank() == 0 {
		// This rank has entered the first barrier although it did not wait for it.
		half, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		go func() { done <- world.Barrier(half) }()
		if m, err := world.Recv(ctx, 1, 1); err != nil || len(m.Data) != 0 {
			return err
		}
		stop(why)
		if err := <-done; !errors.Is(err, why) {
			return fmt.Errorf("cancelled barrier: %v", err)
		}
		if err := world.Send(ctx, 1, 9, []byte("the only one")); err != nil {
			return err
		}
		return world.Barrier(ctx)
	}
	if err := world.Send(ctx, 0, 1, nil); err != nil {
		return err
	}
	m, err := world.Recv(ctx, 0, 9)
	if err != nil || string(m.Data) != "the only one" {
		return fmt.Errorf("got %q, %v", m.Data, err)
	}
	return errors.Join(world.Barrier(ctx), world.Barrier(ctx))
}

// crossing would deadlock if Send waited for the receiver: the messages are larger
// than anything MPI buffers.
func crossing(ctx context.Context, world *mpi.Comm) error {
	peer := world.Rank() ^ 1
	for i := range 3 {
		if err := world.Send(ctx, peer, i, pattern(1<<20+i)); err != nil {
			return err
		}
	}
	for i := range 3 {
		m, err := world.Recv(ctx, peer, i)
		if err != nil || !bytes.Equal(m.Data, pattern(1<<20+i)) {
			return fmt.Errorf("message %d: %d bytes, %v", i, len(m.Data), err)
		}
	}
	return nil
}

// window sends rank 1 more than MPI may hold while rank 1 does not receive: Send
// waits, rank 2 is still reached, and a send that was given up is not received.
func window(ctx context.Context, world *mpi.Comm) error {
	const size = 16 << 20 // four fill the window
	switch world.Rank() {
	case 1:
		if _, err := world.Recv(ctx, 2, 2); err != nil {
			return err
		}
		for i := range 4 {
			if m, err := world.Recv(ctx, 0, i); err != nil || len(m.Data) != size {
				return fmt.Errorf("message %d: %d bytes, %v", i, len(m.Data), err)
			}
		}
		m, err := world.Recv(ctx, 0, mpi.AnyTag)
		if err != nil || m.Tag != 5 {
			return fmt.Errorf("got tag %d, %v, want 5: message 4 was given up", m.Tag, err)
		}
	case 2:
		if _, err := world.Recv(ctx, 0, 1); err != nil {
			return err
		}
		return world.Send(ctx, 1, 2, nil)
	case 0:
		for i := range 4 {
			if err := world.Send(ctx, 1, i, make([]byte, size)); err != nil {
				return err
			}
		}
		why := errors.New("enough")
		waiting, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		done := make(chan error)
		go func() { done <- world.Send(waiting, 1, 4, make([]byte, size)) }()
		for range 20 { // the owner has had its turns
			if _, _, err := world.TryRecv(1, 1); err != nil {
				return err
			}
		}
		select {
		case err := <-done:
			return fmt.Errorf("send to a rank that does not receive returned %v", err)
		default:
		}
		stop(why)
		if err := <-done; !errors.Is(err, why) || !errors.Is(err, mpi.ErrNotSent) {
			return fmt.Errorf("send given up: %v", err)
		}
		if err := world.Send(ctx, 2, 1, nil); err != nil {
			return err
		}
		return world.Send(ctx, 1, 5, nil)
	}
	return nil
}

// storm sends from several goroutines while others allocate and collect garbage, so
// that buffers not pinned would be lost (MP-14).
func storm(ctx context.Context, world *mpi.Comm) error {
	const senders, count = 4, 30
	quit := make(chan struct{})
	go func() {
		for {
			select {
			case <-quit:
				return
			default:
				_ = make([]byte, 1<<16)
				runtime.GC()
			}
		}
	}()
	defer close(quit)
	var wg sync.WaitGroup
	errs := make(chan error, 2*senders)
	next, previous := (world.Rank()+1)%world.Size(), (world.Rank()+world.Size()-1)%world.Size()
	for s := range senders {
		wg.Go(func() {
			for i := range count {
				if err := world.Send(ctx, next, s, pattern(i*i*20)); err != nil {
					errs <- err
					return
				}
			}
		})
		wg.Go(func() {
			for i := range count {
				m, err := world.Recv(ctx, previous, s)
				if err != nil || !bytes.Equal(m.Data, pattern(i*i*20)) {
					errs <- fmt.Errorf("sender %d, message %d: %d bytes, %v", s, i, len(m.Data), err)
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}
