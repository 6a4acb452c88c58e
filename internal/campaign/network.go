package campaign

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Network delivers messages between ranks that live in one process: FIFO within a pair of ranks, in any order across pairs. Delays are drawn
// from a seed. Push, Next and Pop use the caller's clock and are not safe for concurrent use: they are for simulations. Endpoint gives
// the same network to goroutines on the real clock, for tests of whole campaigns.
type Network struct {
	mu       sync.Mutex
	rng      *rand.Rand
	maxDelay time.Duration
	size     int
	sequence uint64
	lastDue  map[[2]int]time.Time
	queues   []deliveries // one a receiver
	wake     []chan struct{}
	aborted  chan struct{}
	code     int
}

// NewNetwork connects size ranks; each message takes up to maxDelay.
func NewNetwork(size int, seed uint64, maxDelay time.Duration) *Network {
	n := &Network{rng: rand.New(rand.NewPCG(seed, 0x5eed)), maxDelay: maxDelay, size: size, lastDue: map[[2]int]time.Time{},
		queues: make([]deliveries, size), wake: make([]chan struct{}, size), aborted: make(chan struct{})}
	for i := range n.wake {
		n.wake[i] = make(chan struct{}, 1)
	}
	return n
}

// Push accepts a message at the time now.
func (n *Network) Push(now time.Time, m Message) error {
	if m.To < 0 || m.To >= n.size {
		return fmt.Errorf("send to rank %d of %d", m.To, n.size)
	}
	due := now
	if n.maxDelay > 0 {
		due = now.Add(time.Duration(n.rng.Int64N(int64(n.maxDelay) + 1)))
	}
	pair := [2]int{m.From, m.To}
	if last := n.lastDue[pair]; due.Before(last) {
		due = last // never overtakes an earlier message of the pair
	}
	n.lastDue[pair] = due
	n.sequence++
	heap.Push(&n.queues[m.To], delivery{due, n.sequence, m})
	return nil
}

// Next is when the next message for rank arrives.
func (n *Network) Next(rank int) (time.Time, bool) {
	if len(n.queues[rank]) == 0 {
		return time.Time{}, false
	}
	return n.queues[rank][0].due, true
}

// Pop takes the next message for rank that has arrived by now.
func (n *Network) Pop(now time.Time, rank int) (Message, bool) {
	q := &n.queues[rank]
	if len(*q) == 0 || (*q)[0].due.After(now) {
		return Message{}, false
	}
	return heap.Pop(q).(delivery).m, true
}

type delivery struct {
	due      time.Time
	sequence uint64
	m        Message
}

type deliveries []delivery

func (d deliveries) Len() int      { return len(d) }
func (d deliveries) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d deliveries) Less(i, j int) bool {
	if !d[i].due.Equal(d[j].due) {
		return d[i].due.Before(d[j].due)
	}
	return d[i].sequence < d[j].sequence
}
func (d *deliveries) Push(x any) { *d = append(*d, x.(delivery)) }
func (d *deliveries) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

// ErrAborted is returned by the endpoints of a network after one of them has called Abort.
var ErrAborted = errors.New("a rank has aborted the campaign")

// Endpoint is the transport of one rank on the real clock.
func (n *Network) Endpoint(rank int) Transport { return &endpoint{n, rank} }

// abortCode is the exit code given to Abort, and whether there was one.
func (n *Network) abortCode() (int, bool) {
	select {
	case <-n.aborted:
		return n.code, true
	default:
		return 0, false
	}
}

type endpoint struct {
	n    *Network
	rank int
}

func (e *endpoint) Rank() int { return e.rank }
func (e *endpoint) Size() int { return e.n.size }

func (e *endpoint) Send(_ context.Context, m Message) error {
	if _, aborted := e.n.abortCode(); aborted {
		return ErrAborted
	}
	m.From = e.rank
	e.n.mu.Lock()
	err := e.n.Push(time.Now(), m)
	e.n.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case e.n.wake[m.To] <- struct{}{}:
	default:
	}
	return nil
}

func (e *endpoint) Recv(ctx context.Context) (Message, error) {
	for {
		e.n.mu.Lock()
		m, ok := e.n.Pop(time.Now(), e.rank)
		due, waiting := e.n.Next(e.rank)
		e.n.mu.Unlock()
		if ok {
			return m, nil
		}
		var timer <-chan time.Time
		if waiting {
			timer = time.After(time.Until(due))
		}
		select {
		case <-e.n.wake[e.rank]:
		case <-timer:
		case <-e.n.aborted:
			return Message{}, ErrAborted
		case <-ctx.Done():
			return Message{}, ctx.Err()
		}
	}
}

func (e *endpoint) Abort(code int) {
	e.n.mu.Lock()
	defer e.n.mu.Unlock()
	if _, aborted := e.n.abortCode(); !aborted {
		e.n.code = code
		close(e.n.aborted)
	}
}
