package campaign

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Shutdown is the bounded end of a group of workers (reference behaviour 6.11): each READY worker gets one STOP with its own token, and
// only an acknowledgement with exactly that source, rank and token counts.
type Shutdown struct {
	epoch        string
	started      time.Time
	deadline     time.Time
	ended        time.Time
	sent, acked  []bool // by group rank minus one
	Drained      int    // results that arrived during the shutdown
	ResultErrors []string
	CommErrors   []string
	Quarantined  map[string]int // acknowledgements that did not count, by reason
}

// NewShutdown starts the shutdown of workers with group ranks 1..n.
func NewShutdown(epoch string, n int, now time.Time, grace time.Duration) *Shutdown {
	return &Shutdown{epoch: epoch, started: now, deadline: now.Add(grace), ended: now, sent: make([]bool, n), acked: make([]bool, n),
		Quarantined: map[string]int{}}
}

// Stop returns the STOP message for a READY worker, the first time.
func (s *Shutdown) Stop(group int) ([]byte, bool) {
	if s.sent[group-1] {
		return nil, false
	}
	s.sent[group-1] = true
	return mustMarshal(stopMsg{Schema: schemaStop, Rank: group, ShutdownToken: ShutdownToken(s.epoch, group)}), true
}

// AckStop is a worker's answer to a STOP: its group rank must be in it. Whether the token is right only the sender of the STOP can tell, and a
// worker that knows the epoch.
func AckStop(data []byte, group int) (ack []byte, token string, err error) {
	stop, err := decodeStop(data, schemaStop)
	if err == nil && stop.Rank != group {
		err = fmt.Errorf("it is for rank %d", stop.Rank)
	}
	if err != nil {
		return nil, "", err
	}
	return mustMarshal(stopMsg{Schema: schemaStopAck, Rank: group, ShutdownToken: stop.ShutdownToken}), stop.ShutdownToken, nil
}

// Ack takes a STOP_ACK from the worker with the given group rank; 0 means that the sender is none of this master's workers.
func (s *Shutdown) Ack(group int, data []byte, now time.Time) {
	ack, err := decodeStop(data, schemaStopAck)
	switch {
	case err != nil && len(data) == 0:
		s.Quarantined["missing"]++
	case err != nil:
		s.Quarantined["malformed"]++
	case group == 0:
		s.Quarantined["unowned"]++
	case ack.Rank != group, ack.ShutdownToken != ShutdownToken(s.epoch, group), !s.sent[group-1]:
		s.Quarantined["stale"]++
	default:
		s.acked[group-1] = true
		s.ended = now
	}
}

// Acked tells whether a worker has ended.
func (s *Shutdown) Acked(group int) bool { return s.acked[group-1] }

// Done tells that every worker has acknowledged or that the grace is over.
func (s *Shutdown) Done(now time.Time) bool {
	if len(s.Pending()) == 0 {
		return true
	}
	if !now.Before(s.deadline) {
		s.ended = now
		return true
	}
	return false
}

// Pending are the group ranks that have not acknowledged.
func (s *Shutdown) Pending() []int {
	pending := []int{}
	for i, ok := range s.acked {
		if !ok {
			pending = append(pending, i+1)
		}
	}
	return pending
}

// Clean tells that nothing is pending and nothing went wrong.
func (s *Shutdown) Clean() bool {
	return len(s.Pending()) == 0 && len(s.ResultErrors) == 0 && len(s.CommErrors) == 0
}

// Line is the reference's output line.
func (s *Shutdown) Line(master int) string {
	n := len(s.acked)
	return fmt.Sprintf("[Master %d] Worker shutdown: acked=%d/%d pending=%s drained_results=%d result_errors=%s quarantined=%s communication_errors=%s elapsed=%.3fs",
		master, n-len(s.Pending()), n, intList(s.Pending()), s.Drained, textList(s.ResultErrors), countMap(s.Quarantined), textList(s.CommErrors),
		s.ended.Sub(s.started).Seconds())
}

// The lists and maps of the output lines look like Python's, whose program printed them first.
func intList(v []int) string {
	parts := make([]string, len(v))
	for i, n := range v {
		parts[i] = strconv.Itoa(n)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func textList(v []string) string {
	parts := make([]string, len(v))
	for i, text := range v {
		parts[i] = pyQuote(text)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func countMap(m map[string]int) string {
	var parts []string
	for key, n := range m {
		parts = append(parts, fmt.Sprintf("%s: %d", pyQuote(key), n))
	}
	sort.Strings(parts)
	return "{" + strings.Join(slices.Clip(parts), ", ") + "}"
}

func pyQuote(s string) string {
	q := strconv.Quote(s)
	return "'" + strings.ReplaceAll(strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`), "'", `\'`) + "'"
}
