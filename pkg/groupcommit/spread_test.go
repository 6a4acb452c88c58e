package groupcommit

import (
	"runtime"
	"sync"
	"testing"
)

func TestSpreadCallsEachOnceInOrderOfItsWorker(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	for n := range 100 {
		var mu sync.Mutex
		seen := make([]int, n)
		last := map[int]int{}
		spread(n, func(w, i int) {
			mu.Lock()
			defer mu.Unlock()
			seen[i]++
			if before, ok := last[w]; ok && before >= i || w >= workers(n) {
				t.Errorf("n=%d: worker %d of %d came to %d after %d", n, w, workers(n), i, before)
			}
			last[w] = i
		})
		for i, times := range seen {
			if times != 1 {
				t.Errorf("n=%d: %d was done %d times", n, i, times)
			}
		}
		if n < 2*worth && len(last) > 1 {
			t.Errorf("n=%d: %d workers for so little", n, len(last))
		}
	}
}

func TestSpreadRunsWorkersAtTheSameTime(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	var both sync.WaitGroup
	both.Add(2)
	var once [2]sync.Once
	spread(2*worth, func(w, _ int) {
		once[w].Do(both.Done)
		both.Wait() // for ever, were there one worker
	})
}
