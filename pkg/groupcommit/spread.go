package groupcommit

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// MaxWorkers bounds the goroutines that make up the updates of one PublishFunc.
const MaxWorkers = 16

// worth is how many records make a second goroutine worth its start: some 100 µs of work. Less is done in order.
const worth = 8

// spread calls f(worker, i) once for each i from 0 to n-1, on up to workers(n) goroutines, the caller's among them. Each has a worker
// number of its own, from 0 to workers(n)-1, and calls f in ascending order of i. It is for work that is bound by the processor; see each.
func spread(n int, f func(worker, i int)) {
	var next atomic.Int64 // no fixed shares: another program may have the other processor
	run := func(w int) {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			f(w, i)
		}
	}
	var wg sync.WaitGroup
	for w := 1; w < workers(n); w++ {
		wg.Go(func() { run(w) })
	}
	run(0)
	wg.Wait()
}

// workers returns how many goroutines spread uses for n records, at least 1.
func workers(n int) int { return max(1, min(runtime.GOMAXPROCS(0), n/worth, MaxWorkers)) }
