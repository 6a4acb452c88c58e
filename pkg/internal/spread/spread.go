// Package spread shares out work on records that is bound by the processor, not by the disk.
package spread

import (
	"runtime"
	"sync"
)

// worth is how many records make a second goroutine worth its start: some 100 µs of work. Less is done in order.
const worth = 8

// Do calls f(worker, i) once for each i from 0 to n-1, on up to Workers(n) goroutines, the caller's among them. Each has a worker number
// of its own, from 0 to Workers(n)-1, and calls f in ascending order of i.
func Do(n int, f func(worker, i int)) {
	workers := Workers(n)
	run := func(w int) {
		for i := w * n / workers; i < (w+1)*n/workers; i++ {
			f(w, i)
		}
	}
	var wg sync.WaitGroup
	for w := 1; w < workers; w++ {
		wg.Go(func() { run(w) })
	}
	run(0)
	wg.Wait()
}

// Workers returns how many goroutines Do uses for n records, at least 1.
func Workers(n int) int { return max(1, min(runtime.GOMAXPROCS(0), n/worth)) }
