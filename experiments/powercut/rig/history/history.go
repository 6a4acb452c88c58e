// Package history is what a workload says it does, and what that lets one find after a power cut.
//
// The workload marks each operation twice in the disk's log: when it starts, and when it was acknowledged. After a cut at any
// position, each item must be in the state of its last acknowledged operation, or of one that had started after it.
package history

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"shardlease/experiments/powercut/rig/recdisk"
)

// State is what one operation makes of one item. The zero State is an item without a record.
type State struct {
	Status string `json:"status"`
	Fence  uint64 `json:"fence"`
	Beat   int64  `json:"beat"` // of a leased item: number of the operation that last claimed or renewed it
}

func (s State) String() string {
	if s == (State{}) {
		return "no record"
	}
	return fmt.Sprintf("%s, fence %d, renewed by operation %d", s.Status, s.Fence, s.Beat)
}

// Note is one mark. Operations are numbered from 1.
type Note struct {
	N     int64         `json:"n"`
	Acked bool          `json:"acked"`
	Sets  map[int]State `json:"sets"` // item -> state after the operation
}

// Epoch is the instant of operation 0; operation n happens n seconds later. The workload's clock says nothing else, so that a record
// tells which operation wrote it.
var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Instant is the time of operation n.
func Instant(n int64) time.Time { return Epoch.Add(time.Duration(n) * time.Second) }

// Allowed is what may be found of one item: the state last acknowledged, and those of operations started later.
type Allowed struct {
	Acked   State
	Started []State
}

// Has says whether s may be found.
func (a Allowed) Has(s State) bool {
	if s == a.Acked {
		return true
	}
	for _, t := range a.Started {
		if s == t {
			return true
		}
	}
	return false
}

// Expect replays the marks before pos, on top of what was allowed when the recording began; nil is an empty disk.
func Expect(before map[int]*Allowed, r *recdisk.Recording, pos int) (map[int]*Allowed, error) {
	items := map[int]*Allowed{}
	for item, a := range before {
		items[item] = &Allowed{a.Acked, slices.Clone(a.Started)}
	}
	var failed error
	r.Marks(func(p int, label string) {
		if p > pos || failed != nil {
			return
		}
		var n Note
		if err := json.Unmarshal([]byte(label), &n); err != nil {
			failed = fmt.Errorf("mark %q: %w", label, err)
			return
		}
		for item, s := range n.Sets {
			if items[item] == nil {
				items[item] = &Allowed{}
			}
			a := items[item]
			if n.Acked {
				*a = Allowed{Acked: s}
			} else {
				a.Started = append(a.Started, s)
			}
		}
	})
	return items, failed
}

// Acks returns the positions right after acknowledgements, in order.
func Acks(r *recdisk.Recording) ([]int, error) {
	var acked []int
	var failed error
	r.Marks(func(pos int, label string) {
		var n Note
		if err := json.Unmarshal([]byte(label), &n); err != nil {
			failed = fmt.Errorf("mark %q: %w", label, err)
		} else if n.Acked {
			acked = append(acked, pos)
		}
	})
	return acked, failed
}
