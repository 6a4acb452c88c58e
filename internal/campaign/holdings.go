package campaign

import (
	"maps"
	"sync"

	"shardlease/pkg/lease"
)

// Holdings are the leases of one master, pending and dispatched. The master adds and drops; its heartbeat lane takes snapshots
// and drops what was lost. All methods may be called concurrently.
type Holdings struct {
	mu sync.Mutex
	m  map[lease.ID]lease.Token
}

// NewHoldings returns empty holdings.
func NewHoldings() *Holdings { return &Holdings{m: map[lease.ID]lease.Token{}} }

// Add notes that id is held with tok.
func (h *Holdings) Add(id lease.ID, tok lease.Token) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.m[id] = tok
}

// Drop forgets id if it is held with tok, and tells whether it was. A token that has been replaced meanwhile stays.
func (h *Holdings) Drop(id lease.ID, tok lease.Token) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.m[id] != tok {
		return false
	}
	delete(h.m, id)
	return true
}

// Has tells whether id is held with tok.
func (h *Holdings) Has(id lease.ID, tok lease.Token) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	held, ok := h.m[id]
	return ok && held == tok
}

// Len is the number of leases held.
func (h *Holdings) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.m)
}

// Snapshot is a copy.
func (h *Holdings) Snapshot() map[lease.ID]lease.Token {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.m)
}

// Clear forgets everything: no heartbeat starts after it.
func (h *Holdings) Clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.m)
}
