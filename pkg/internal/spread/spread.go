// Package spread shares out work on records that is bound by the processor, not by the disk.
package spread

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// worth is how many records make a second goroutine worth its start: some 100 µs of work. Less is done in order.
const worth = 8

// Do calls f(worker, i) once for each i from 0 to n-1, on up to Workers(n) goroutines, the caller's among them. Each has a worker number
// of its own, from 0 to Workers(n)-1, and calls f in ascending order of i.
func Do(n int, f func(worker, i int)) {
	var next atomic.Int64 // no fixed shares: another program may have the other processor
	run := func(w int) {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			f(w, i)
		}
	}
	var wg sync.WaitGroup
	for w := 1; w < Workers(n); w++ {
		wg.Go(func() { run(w) })
	}
	run(0)
	wg.Wait()
}

// Workers returns how many goroutines Do uses for n records, at least 1.
func Workers(n int) int { return max(1, min(runtime.GOMAXPROCS(0), n/worth)) }
