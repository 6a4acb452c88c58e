package lease

import (
	"fmt"
	"time"
)

// Op is an operation that changes a record's state.
type Op string

const (
	OpClaim       Op = "claim"
	OpTakeOver    Op = "take over"
	OpHeartbeat   Op = "heartbeat"
	OpBeginCommit Op = "begin commit"
	OpComplete    Op = "complete"
	OpAbandon     Op = "abandon"
)

// Guard is the condition of a transition.
type Guard string

const (
	Always    Guard = ""
	IfLapsed  Guard = "lapsed"            // the lease is over
	IfHeld    Guard = "token"             // the caller's token is the record's
	IfHeldNow Guard = "token, not lapsed" // and the lease is not over
)

// Transition is one edge of the state machine. From "" is the state before the first claim: no record.
type Transition struct {
	From  Status
	Op    Op
	Guard Guard
	To    Status
}

// Transitions is the whole state machine, and what the methods obey: whatever is not listed is refused and changes nothing.
// Edges from a state to itself that need the token are there so that an operation whose outcome was unknown can be repeated. Do not
// modify it.
var Transitions = []Transition{
	{"", OpClaim, Always, Leased},
	{"", OpTakeOver, Always, Leased},
	{Abandoned, OpClaim, Always, Leased},
	{Abandoned, OpTakeOver, Always, Leased},
	{Leased, OpClaim, IfLapsed, Leased},
	{Leased, OpTakeOver, Always, Leased},
	{Leased, OpHeartbeat, IfHeldNow, Leased},
	{Leased, OpBeginCommit, IfHeldNow, Committing},
	{Leased, OpAbandon, IfHeld, Abandoned},
	{Abandoned, OpAbandon, IfHeld, Abandoned},
	{Committing, OpHeartbeat, IfHeld, Committing},
	{Committing, OpBeginCommit, IfHeld, Committing}, // with the same manifest
	{Committing, OpComplete, IfHeld, Done},
	{Done, OpComplete, IfHeld, Done}, // publishes nothing
}

func (g Guard) holds(held, lapsed bool) bool {
	switch g {
	case Always:
		return true
	case IfLapsed:
		return lapsed
	case IfHeld:
		return held
	}
	return held && !lapsed
}

// next returns the state that op leads to, or why it is refused. r is nil if there is no record. now was read under r's lock.
func next(r *Record, op Op, tok Token, now time.Time, maxSkew time.Duration) (Status, error) {
	var from Status
	var held, lapsed bool
	if r != nil {
		from, held, lapsed = r.Status, r.Token == tok, r.Lapsed(now, maxSkew)
	}
	for _, t := range Transitions {
		if t.From == from && t.Op == op && t.Guard.holds(held, lapsed) {
			return t.To, nil
		}
	}
	return "", refusal(r, op, held, now)
}

// refusal says why op is not possible in the state that was read.
func refusal(r *Record, op Op, held bool, now time.Time) error {
	claim := op == OpClaim || op == OpTakeOver
	switch {
	case r == nil:
		return fmt.Errorf("%w: there is no record", ErrLost)
	case claim && r.Status == Leased:
		return fmt.Errorf("%w: %s by %q, updated %v ago, TTL %v", ErrHeld, r.ID, r.Holder.Owner, now.Sub(r.Updated), r.TTL)
	case claim && r.Status == Committing:
		return fmt.Errorf("%w: %s by %q: complete it with its own token and manifest", ErrCommitting, r.ID, r.Holder.Owner)
	case claim:
		return fmt.Errorf("%w: %s", ErrDone, r.ID)
	case !held:
		return fmt.Errorf("%w: %s is %s by %q under fence %d", ErrLost, r.ID, r.Status, r.Holder.Owner, r.Token.Fence)
	case r.Status == Leased && op == OpComplete:
		return fmt.Errorf("%w: %s: call BeginCommit first", ErrNotCommitting, r.ID)
	case r.Status == Leased:
		return fmt.Errorf("%w: the lease of %s lapsed: updated %v ago, TTL %v", ErrLost, r.ID, now.Sub(r.Updated), r.TTL)
	case r.Status == Committing:
		return fmt.Errorf("%w: %s can only be completed now", ErrCommitting, r.ID)
	case r.Status == Done && op != OpHeartbeat:
		return fmt.Errorf("%w: %s, by this very token", ErrDone, r.ID)
	}
	return fmt.Errorf("%w: %s is %s", ErrLost, r.ID, r.Status)
}
