package lease

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"
)

// state is one row of the enumeration below: what the record is, and whose.
type state struct {
	status Status // "": no record
	held   bool   // the caller's token is the record's
	lapsed bool
}

// put brings a new record of a fresh table into the state and returns the caller's token.
func (f *fixture) put(t *Table, id ID, s state) Token {
	f.Helper()
	f.clock.set(10)
	if s.status == "" {
		return Token{Fence: 1}
	}
	tok := f.claim(t, id, "holder")
	switch s.status {
	case Abandoned:
		f.must(t.Abandon(bg, id, tok))
	case Committing, Done:
		f.must(t.BeginCommit(bg, id, tok, payload(`{"m":1}`)))
	}
	if s.status == Done {
		_, err := t.Complete(bg, id, tok, publishNothing)
		f.must(err)
	}
	if !s.held {
		tok.Nonce[0] ^= 1
	}
	if s.lapsed {
		f.clock.set(20)
	}
	return tok
}

func apply(t *Table, op Op, id ID, tok Token) (err error) {
	switch op {
	case OpClaim:
		_, err = t.Claim(bg, id, nil, Holder{Owner: "other"})
	case OpTakeOver:
		_, err = t.TakeOver(bg, id, nil, Holder{Owner: "other"})
	case OpHeartbeat:
		err = t.Heartbeat(bg, id, tok)
	case OpBeginCommit:
		err = t.BeginCommit(bg, id, tok, json.RawMessage(`{"m":1}`))
	case OpComplete:
		_, err = t.Complete(bg, id, tok, publishNothing)
	case OpAbandon:
		err = t.Abandon(bg, id, tok)
	}
	return err
}

// wantNext is written down independently of Transitions, as what design and report say: the state after the operation, or the error.
func wantNext(s state, op Op) (Status, error) {
	claim := op == OpClaim || op == OpTakeOver
	switch {
	case claim && (s.status == "" || s.status == Abandoned):
		return Leased, nil
	case claim && s.status == Leased && (s.lapsed || op == OpTakeOver):
		return Leased, nil
	case claim:
		return "", map[Status]error{Leased: ErrHeld, Committing: ErrCommitting, Done: ErrDone}[s.status]
	case s.status == "" || !s.held:
		return "", ErrLost
	}
	type row struct {
		status Status
		op     Op
	}
	results := map[row]any{
		{Leased, OpHeartbeat}: Leased, {Leased, OpBeginCommit}: Committing, {Leased, OpComplete}: ErrNotCommitting, {Leased, OpAbandon}: Abandoned,
		{Abandoned, OpHeartbeat}: ErrLost, {Abandoned, OpBeginCommit}: ErrLost, {Abandoned, OpComplete}: ErrLost, {Abandoned, OpAbandon}: Abandoned,
		{Committing, OpHeartbeat}: Committing, {Committing, OpBeginCommit}: Committing, {Committing, OpComplete}: Done, {Committing, OpAbandon}: ErrCommitting,
		{Done, OpHeartbeat}: ErrLost, {Done, OpBeginCommit}: ErrDone, {Done, OpComplete}: Done, {Done, OpAbandon}: ErrDone,
	}
	if s.status == Leased && s.lapsed && (op == OpHeartbeat || op == OpBeginCommit) {
		return "", ErrLost // the clock rule, for heartbeat and commit alike (beyond.md, row 6)
	}
	if to, ok := results[row{s.status, op}].(Status); ok {
		return to, nil
	}
	return "", results[row{s.status, op}].(error)
}

// Every operation in every state, on disk, against the expectation above and against Transitions.
func TestMethodsObeyTheTransitionTable(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	n := 0
	for _, status := range []Status{"", Leased, Committing, Done, Abandoned} {
		for _, op := range []Op{OpClaim, OpTakeOver, OpHeartbeat, OpBeginCommit, OpComplete, OpAbandon} {
			for mask := range 4 {
				s := state{status, mask&1 > 0, mask&2 > 0}
				id := itemID(n)
				n++
				t.Run(fmt.Sprintf("%s in %q held %t lapsed %t", op, status, s.held, s.lapsed), func(t *testing.T) {
					f := &fixture{T: t, root: f.root, clock: f.clock, opts: f.opts, fault: f.fault, trace: f.trace}
					tok := f.put(table, id, s)
					f.checkTransition(table, id, s, op, tok)
				})
			}
		}
	}
}

func (f *fixture) checkTransition(table *Table, id ID, s state, op Op, tok Token) {
	f.Helper()
	to, wantErr := wantNext(s, op)
	var before []byte
	if s.status != "" {
		before = f.bytes(id)
	}
	listed := listedTo(s, op)
	if listed != to {
		f.Errorf("Transitions leads to %q, want %q", listed, to)
	}
	err := apply(table, op, id, tok)
	if !errors.Is(err, wantErr) {
		f.Fatalf("error is %v, want %v", err, wantErr)
	}
	r, lookErr := table.Lookup(id)
	switch {
	case wantErr == nil && (lookErr != nil || r.Status != to):
		f.Errorf("the record is %q, %v, want %q", r.Status, lookErr, to)
	case wantErr != nil && s.status == "" && lookErr == nil:
		f.Errorf("a refused operation made a record")
	case wantErr != nil && s.status != "" && string(before) != string(f.bytes(id)):
		f.Errorf("a refused operation changed the record")
	}
}

func listedTo(s state, op Op) Status {
	for _, tr := range Transitions {
		if tr.From == s.status && tr.Op == op && tr.Guard.holds(s.held, s.lapsed && s.status == Leased) {
			return tr.To
		}
	}
	return ""
}

func TestFencesRiseForEverAndAttemptsAndStealsAreCounted(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	id := firstOfShard0
	steps := []struct {
		owner            string
		prepare          func(tok Token)
		attempts, steals int
		previous         string
	}{
		{"a", func(Token) {}, 1, 0, ""},
		{"b", func(tok Token) { f.must(table.Abandon(bg, id, tok)) }, 2, 0, "a"}, // given, not taken
		{"b", func(Token) { f.clock.add(10 * time.Second) }, 3, 0, "b"},          // from itself
		{"c", func(Token) { f.clock.add(10 * time.Second) }, 4, 1, "b"},
	}
	var tok Token
	seen := map[[16]byte]bool{}
	for i, s := range steps {
		s.prepare(tok)
		tok = f.claim(table, id, s.owner)
		r, err := table.Lookup(id)
		f.must(err)
		if tok.Fence != uint64(i+1) || r.Token != tok || seen[tok.Nonce] {
			t.Errorf("claim %d: token %v, record has %v", i, tok, r.Token)
		}
		seen[tok.Nonce] = true
		if r.Attempts != s.attempts || r.Steals != s.steals || r.PreviousOwner != s.previous {
			t.Errorf("claim %d: %d attempts, %d steals, previous %q", i, r.Attempts, r.Steals, r.PreviousOwner)
		}
	}
	tok, err := table.TakeOver(bg, id, nil, Holder{Owner: "d"})
	f.must(err)
	if tok.Fence != 5 {
		t.Errorf("take-over has fence %d", tok.Fence)
	}
}

// LE-19: a fence is never reused, not even the last one.
func TestTheLastFenceIsNotFollowedByTheFirst(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	f.must(writeAll(f.file(firstOfShard0), replaced(`"fence":7`, `"fence":9223372036854775807`)))
	f.clock.set(1000)
	_, err := table.Claim(bg, firstOfShard0, nil, Holder{})
	f.want(err, ErrCorrupt)
}

// LE-23: a holder that returns after the lapse, when nobody took the lease, claims again and gets a new token.
func TestReturningHolderGetsANewToken(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	old := f.claim(table, firstOfShard0, "a")
	f.clock.set(20)
	f.want(table.Heartbeat(bg, firstOfShard0, old), ErrLost)
	tok := f.claim(table, firstOfShard0, "a")
	if tok.Fence != old.Fence+1 || tok.Nonce == old.Nonce {
		t.Errorf("token %v after %v", tok, old)
	}
	f.want(table.Heartbeat(bg, firstOfShard0, old), ErrLost)
}
