package hybrid

import (
	"io"
	"sync"
	"time"
)

// Event is one line of the event log: JSON, one object a line, in the order in which they happened in this coordinator.
// Fields that do not apply are left out.
type Event struct {
	TimeS  float64 `json:"time_s"` // Unix time; of a heartbeat, when it began
	Event  string  `json:"event"`  // one of the constants below
	Owner  string  `json:"owner"`
	SHA256 string  `json:"sha256,omitempty"` // the input
	Fence  uint64  `json:"fence,omitempty"`
	Worker int     `json:"worker,omitempty"`
	Detail string  `json:"detail,omitempty"`

	// EventHeartbeat: how many work leases the one call was for, and its outcome.
	Counters       *Counters `json:"counters,omitempty"`
	DirectorySyncs int       `json:"directory_syncs,omitempty"`
	ElapsedS       float64   `json:"elapsed_s,omitempty"`

	// EventDone: what the item brought. EventSample: state of the campaign.
	Generated int `json:"generated,omitempty"`
	Published int `json:"published,omitempty"`
	Edges     int `json:"edges,omitempty"`
	Inputs    int `json:"inputs,omitempty"`
	Active    int `json:"active,omitempty"`
}

// The life of an item is Claim, then Done, Stale, Failed or, in another coordinator's log, Recover.
const (
	EventStart     = "start"     // attached; Detail is the target
	EventClaim     = "claim"     // leased and sent to Worker
	EventRecover   = "recover"   // like EventClaim, of an expired lease
	EventDone      = "done"      // committed
	EventRedo      = "redo"      // another coordinator's begun commit was finished
	EventStale     = "stale"     // the lease was gone when the result came: dropped
	EventFailed    = "failed"    // no result; Detail says why; the lease was given up
	EventHeartbeat = "heartbeat" // one call
	EventSample    = "sample"    // every two seconds
	EventStop      = "stop"      // Detail is the reason
)

// EventLog writes events. A nil log drops them. Its methods may be called concurrently.
type EventLog struct {
	mu    sync.Mutex
	w     io.Writer
	owner string
	now   func() time.Time
	err   error
}

// NewEventLog returns a log that writes to w.
func NewEventLog(w io.Writer, owner string, now func() time.Time) *EventLog {
	return &EventLog{w: w, owner: owner, now: now}
}

func (l *EventLog) add(ev Event) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if ev.TimeS == 0 {
		ev.TimeS = unix(l.now())
	}
	ev.Owner = l.owner
	if _, err := l.w.Write(append(encode(ev), '\n')); err != nil && l.err == nil {
		l.err = err
	}
}

// Err is the first error of writing: the log is incomplete from there on.
func (l *EventLog) Err() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

func (l *EventLog) heartbeat(f Fenced, began time.Time) {
	ev := Event{Event: EventHeartbeat, TimeS: unix(began), Counters: &f.Counters, DirectorySyncs: f.Batch.DirectorySyncs, ElapsedS: time.Since(began).Seconds()}
	if err := f.Err(); err != nil {
		ev.Detail = err.Error()
	}
	l.add(ev)
}
