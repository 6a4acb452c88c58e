package lease

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"time"
	"unicode/utf8"
)

// Status is the state of a record; doc.go draws the states, Transitions lists how they follow each other.
type Status string

const (
	Leased     Status = "leased"
	Committing Status = "committing"
	Done       Status = "done"
	Abandoned  Status = "abandoned"
)

// Record is what the file of one ID holds.
type Record struct {
	ID     ID
	Status Status
	Token  Token // of the present holder; of the last one in done and abandoned records
	Holder Holder
	// PreviousOwner is the owner before the last claim, "" at the first.
	PreviousOwner string
	// Attempts counts claims. Steals counts the claims that took a lease from another owner.
	Attempts, Steals int
	// Payload is what the last claim gave; nil if nothing.
	Payload json.RawMessage
	// Manifest says what a commit publishes. Present from BeginCommit on.
	Manifest json.RawMessage
	// Updated is the time of the last claim, renewal or BeginCommit, Completed that of Complete. UTC.
	Updated, Completed time.Time
	// TTL is the holder's own, fixed at the claim.
	TTL time.Duration
	// Target and Targets are set in target tables: the branch target, and the group it was claimed with, in lock order.
	Target  uint64
	Targets []uint64

	session sessionID // whose beats renew the lease; zero: only the record itself says
	beat    time.Time // the last of them, as far as the reader had to look
	extra   []byte    // members this version does not know, each with a leading comma; kept through every rewrite
}

const (
	maxFence = math.MaxInt64 // one below is the last that a claim may issue, so that readers in other languages are safe
	maxCount = math.MaxInt32 // attempts, steals
)

// Lapsed reports whether the lease is over at now. The lease's time is half-open: it is alive in [Updated, Updated+TTL). A record
// further in the future than maxSkew counts as lapsed too. Only leased records lapse.
func (r *Record) Lapsed(now time.Time, maxSkew time.Duration) bool {
	if r.Status != Leased {
		return false
	}
	return lapsed(r.Updated, r.TTL, now, maxSkew) && (r.beat.IsZero() || lapsed(r.beat, r.TTL, now, maxSkew))
}

func lapsed(renewed time.Time, ttl time.Duration, now time.Time, maxSkew time.Duration) bool {
	age := now.Sub(renewed) // saturates
	return age >= ttl || age < -maxSkew
}

// renew moves the lease's end to now+TTL, but never back.
func (r *Record) renew(now time.Time) {
	if now.After(r.Updated) {
		r.Updated = now
	}
}

// check is the pair assertion on both sides of the disk: it runs just before a record is written and just after it was read.
func (r *Record) check() error {
	committed := r.Status == Committing || r.Status == Done
	switch {
	case r.Status != Leased && r.Status != Abandoned && !committed:
		return fmt.Errorf("unknown status %.40q", r.Status)
	case r.Token.Fence < 1 || r.Token.Fence > maxFence:
		return fmt.Errorf("fence %d is out of range", r.Token.Fence)
	case r.Holder.check() != nil:
		return r.Holder.check()
	case len(r.PreviousOwner) > MaxOwner || !utf8.ValidString(r.PreviousOwner):
		return fmt.Errorf("previous_owner %.80q is not valid", r.PreviousOwner)
	case r.Attempts < 1 || r.Attempts > maxCount || r.Steals < 0 || r.Steals >= r.Attempts:
		return fmt.Errorf("%d attempts with %d steals is impossible", r.Attempts, r.Steals)
	case !inRange(r.Updated):
		return fmt.Errorf("updated_ns is out of range")
	case r.TTL < 1 || r.TTL > MaxTTL:
		return fmt.Errorf("ttl_ns %d is out of range", r.TTL)
	case committed != (r.Manifest != nil):
		return fmt.Errorf("status %s with manifest: %t", r.Status, r.Manifest != nil)
	case r.Manifest != nil && r.Manifest[0] != '{':
		return fmt.Errorf("manifest is not an object")
	case (r.Status == Done) != !r.Completed.IsZero():
		return fmt.Errorf("status %s with completed_ns: %t", r.Status, !r.Completed.IsZero())
	case r.Status == Done && !inRange(r.Completed):
		return fmt.Errorf("completed_ns is out of range")
	}
	return r.checkTargets()
}

func (r *Record) checkTargets() error {
	if r.Targets == nil {
		if r.Target != 0 {
			return fmt.Errorf("target without its group")
		}
		return nil
	}
	if len(r.Targets) < 1 || len(r.Targets) > MaxGroup {
		return fmt.Errorf("group of %d targets, want 1 to %d", len(r.Targets), MaxGroup)
	}
	var last ID
	member := false
	for i, target := range r.Targets {
		id := TargetID(target)
		if i > 0 && compareIDs(last, id) >= 0 {
			return fmt.Errorf("targets are not in lock order")
		}
		last = id
		member = member || target == r.Target && id == r.ID
	}
	if !member {
		return fmt.Errorf("target %d does not belong here", r.Target)
	}
	return nil
}

// inRange reports whether t can be written as nanoseconds since 1970 in an int64.
func inRange(t time.Time) bool {
	return !t.Before(time.Unix(0, 0)) && !t.After(time.Unix(0, math.MaxInt64))
}

// compactJSON checks JSON given by a caller and takes its blanks out, so that equal manifests have equal bytes. Nil stays nil.
func compactJSON(what string, raw json.RawMessage) (json.RawMessage, error) {
	if raw == nil {
		return nil, nil
	}
	var out bytes.Buffer
	if err := json.Compact(&out, raw); err != nil {
		return nil, fmt.Errorf("lease: %s is not valid JSON: %w: %w", what, fs.ErrInvalid, err)
	}
	return out.Bytes(), nil
}
