package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"
)

// Renewals is how HeartbeatMany makes renewals durable.
//
// # One-flush renewals
//
// A batch of renewals is a snapshot of everything its holder still wants, so only the newest one matters. A table opened with OneFlush is
// a session; each record it claims or renews names it. Its renewals go into its beat file (beatfile.go): the instant, and the list of
// leases. With an unchanged set that is one write of 64 bytes and one flush, for any number of records and shards. A lease is alive
// as long as its record or the last beat of its session says so. Claims, commits, completions and abandons stay on the strict
// path under the record's lock, and they alone decide ownership.
//
// The holder (HeartbeatMany): (0) reads the clock, (1) writes the beat, (2) flushes it, (3) looks at its challenges. Each challenged
// lease is looked at under its lock, and renewed strictly or reported as lost. (4) Only then it reports the rest as renewed.
//
// Whoever changes a record that names a session, under the record's lock: (a) finds the change allowed by the record and by the last
// beat, (b) appends a challenge to the session's file, and, if a lapsed lease is claimed, (c) looks at the beat again and refuses if it is
// alive by now; (d) publishes.
//
// If the beat (1) is visible before (c), the claimant sees it and refuses. If not, then (b) came before (c), before (1), before (3), so the holder sees
// the challenge, waits for the claimant's lock and finds the lease lost. That is all it needs, besides a file system on which a write is
// visible to every later read; so network file systems are refused.
//
// A failed flush is final for the file. All leases are renewed strictly in the same call, and the next one begins a new file. A lease
// that leaves the set stays in the list with the instant of its last renewal until that has lapsed: what was promised holds.
// renewal_model_test.go searches all interleavings of this protocol, with and without each of its parts.
type Renewals uint8

const (
	// Strict rewrites each record: the report's renewal.
	Strict Renewals = iota
	// OneFlush renews all leases of a table with one flush. The table holds two open files, and belongs to one process on a
	// local file system. Tables of both kinds may share a root.
	OneFlush
)

// beating is one HeartbeatMany of a session.
type beating struct {
	s       *store
	ss      *session
	now     time.Time
	instant time.Time // of the beat: now, unless the clock was set back, for a renewal never shortens a lease
	held    map[ID]Token
	members []ID        // the leases that the beat renews, by (shard, ID)
	order   []member    // the same as held was ranged over; nil if repeated
	list    []beatEntry // what the beat file is to say
	strict  []heartbeat // those that need their record

	repeated bool          // the set is that of the beat before, found so by the roster
	same     bool          // the same, found by looking at each promise
	future   bool          // a promise is later than this beat
	shortest time.Duration // TTL among the members; 0 if none can lapse
	edits    uint64        // session.edits
}

// beatMany is HeartbeatMany of a session.
func (t *Table) beatMany(ctx context.Context, held map[ID]Token) (HeartbeatBatch, error) {
	ss := t.s.session
	fail := func(err error) (HeartbeatBatch, error) {
		t.s.stats.failures.Add(1)
		return HeartbeatBatch{}, err
	}
	if err := t.s.enter(context.WithoutCancel(ctx)); err != nil {
		return fail(err)
	}
	if err := ss.take(ctx); err != nil {
		return fail(fmt.Errorf("lease: heartbeat not begun: %w", err))
	}
	defer ss.giveBack()
	now, err := t.s.now() // (0)
	if err != nil {
		return fail(err)
	}
	b := &beating{s: t.s, ss: ss, now: now, held: held}
	b.split()
	renewed := b.beat()
	return b.finish(ctx, renewed)
}

// split tells leases that a beat can renew from those that need their record: the ones about which this session has promised nothing, and
// those that have lapsed.
func (b *beating) split() {
	ss := b.ss
	ss.mu.Lock()
	defer ss.mu.Unlock()
	b.same, b.list = true, ss.listed
	if b.instant = b.now; ss.instant.After(b.now) {
		b.instant = ss.instant
	}
	if b.repeated = ss.repeats(b.held, b.now); b.repeated {
		b.members, b.shortest = ss.current, ss.roster.shortest
		return
	}
	b.members, b.order = make([]ID, 0, len(b.held)), make([]member, 0, len(b.held))
	for id, tok := range b.held {
		p, ok := ss.promise(id)
		if !ok || p.tok != tok || !p.aliveAt(b.now, b.s.opts.MaxSkew) {
			it := heartbeat{id: id, tok: tok, shard: b.s.shard(id)}
			if tok.Fence == 0 {
				it.outcome = lost
			}
			b.strict = append(b.strict, it)
			continue
		}
		b.members, b.order = append(b.members, id), append(b.order, member{id, tok})
		b.same = b.same && p.current
		b.future = b.future || p.at.After(b.instant)
		if !p.committing && (b.shortest == 0 || p.ttl < b.shortest) {
			b.shortest = p.ttl
		}
	}
	if b.same = b.same && len(b.members) == len(ss.current); b.same {
		b.members = ss.current
	} else {
		slices.SortFunc(b.members, b.s.compare)
		b.list = b.listing()
	}
	b.edits = ss.edits
}

// listing is what the beat file is to say: what this beat renews, and what earlier ones have promised and still holds. Caller holds mu.
func (b *beating) listing() []beatEntry {
	ss := b.ss
	list := make([]beatEntry, 0, len(ss.told))
	for _, id := range b.members {
		list = append(list, beatEntry{id: id, fence: b.held[id].Fence})
	}
	for id := range ss.told {
		p, _ := ss.promise(id)
		switch tok, wanted := b.held[id]; {
		case wanted && tok == p.tok && p.aliveAt(b.now, b.s.opts.MaxSkew):
		case !p.aliveAt(b.now, b.s.opts.MaxSkew):
			ss.edits++
			delete(ss.told, id)
		case p.at.After(p.written) && !p.committing:
			list = append(list, beatEntry{id: id, fence: p.tok.Fence, at: p.at.UnixNano()})
		}
	}
	slices.SortFunc(list, func(x, y beatEntry) int { return compareIDs(x.id, y.id) })
	return list
}

// beat does (1) to (3) and returns the members that are renewed by it. The others join the strict ones: those that were challenged, and
// all of them if the flush failed, if it can't be told who was challenged, or if a lease may have lapsed meanwhile.
func (b *beating) beat() (renewed []ID) {
	if len(b.members) == 0 {
		return nil
	}
	var challenged map[ID]bool
	err := b.ss.write(b.instant.UnixNano(), b.list) // (1), (2)
	if err == nil {
		b.ss.promiseAll(b)
		challenged, err = b.ss.challenged() // (3)
	}
	if now, clockErr := b.s.now(); err != nil || clockErr != nil || b.shortest > 0 && now.Sub(b.now) >= b.shortest {
		b.strictly(b.members...)
		return nil
	}
	if len(challenged) == 0 {
		return b.members
	}
	for _, id := range b.members {
		if challenged[id] {
			b.strictly(id)
		} else {
			renewed = append(renewed, id)
		}
	}
	return renewed
}

func (b *beating) strictly(ids ...ID) {
	for _, id := range ids {
		b.strict = append(b.strict, heartbeat{id: id, tok: b.held[id], shard: b.s.shard(id)})
	}
}

// finish renews the others by their records and puts both results together.
func (b *beating) finish(ctx context.Context, renewed []ID) (HeartbeatBatch, error) {
	ok := HeartbeatBatch{}
	var err error
	if len(b.strict) > 0 {
		slices.SortFunc(b.strict, func(x, y heartbeat) int { return b.s.compare(x.id, y.id) })
		h := &heartbeats{s: b.s, items: b.strict}
		ok, err = h.run(ctx)
		b.ss.settle(h.items)
	}
	var e *BatchError
	if errors.As(err, &e) {
		e.Durable = b.merge(e.Durable, renewed)
		return HeartbeatBatch{}, e
	}
	if len(b.strict) == 0 {
		b.s.stats.batches.Add(1)
	}
	b.s.stats.beat(len(renewed))
	ok.Renewed = b.merge(ok.Renewed, renewed)
	return ok, err
}

// merge leaves beaten, which may be the session's own, as it is.
func (b *beating) merge(strict, beaten []ID) []ID {
	if len(beaten) == 0 {
		return strict
	}
	if len(strict) == 0 {
		return slices.Clone(beaten)
	}
	all := slices.Concat(strict, beaten)
	slices.SortFunc(all, b.s.compare)
	return all
}

// compare orders by (shard, ID).
func (s *store) compare(x, y ID) int {
	return cmp.Or(cmp.Compare(s.shard(x), s.shard(y)), compareIDs(x, y))
}

// promiseAll notes what the file now says. What a challenge takes away from it is settled before anybody is told.
func (ss *session) promiseAll(b *beating) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if !b.same {
		for _, id := range ss.current {
			p, ok := ss.promise(id)
			if ok {
				p.current = false
				ss.told[id] = p
			}
		}
		for _, id := range b.members {
			p := ss.told[id]
			p.current = true
			ss.told[id] = p
		}
		ss.current = b.members
	}
	ss.instant = b.instant
	if b.repeated {
		return
	}
	ss.roster = roster{shortest: b.shortest, edits: b.edits}
	if !b.future {
		ss.roster.members = b.order
	}
}

// settle notes what strict renewals have promised.
func (ss *session) settle(items []heartbeat) {
	for i := range items {
		switch it := &items[i]; {
		case it.outcome == lost:
			ss.forget(it.id, it.tok)
		case it.outcome == renewed && it.durable:
			ss.remember(it.id, it.promise)
		}
	}
}

// lookAtBeats fills r.beat if that could change whether r has lapsed. A session without a file has no beats; one that can't be read is an
// error, since the lease may well be alive.
func (s *store) lookAtBeats(r *Record, now time.Time, known map[sessionID]beats) error {
	if r.Status != Leased || r.session == (sessionID{}) || !r.Lapsed(now, s.opts.MaxSkew) {
		return nil
	}
	if s.session != nil && r.session == s.session.id {
		r.beat, _ = s.session.renewedAt(r.ID, r.Token.Fence)
		return nil
	}
	found, ok := known[r.session]
	if !ok {
		var err error
		found, err = readBeats(s.fs, s.beatName(r.session), r.session)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return hideAbsence(fmt.Errorf("lease: renewals of %s by session %s: %w", r.ID, r.session, err))
		}
		if known != nil {
			known[r.session] = found
		}
	}
	r.beat, _ = found.last(r.ID, r.Token.Fence)
	return nil
}

// challenge is (b): it tells the session of a record that the record is about to be changed. Caller holds the record's lock.
func (s *store) challenge(r *Record) error {
	switch {
	case r == nil || r.session == (sessionID{}):
		return nil
	case s.session != nil && r.session == s.session.id:
		s.session.changing(r.ID)
		return nil
	}
	err := challenge(s.fs, s.challengesName(r.session), r.ID, r.Token.Fence)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the files of a session are removed only when it has ended
	}
	if err != nil {
		return fmt.Errorf("lease: %s is left alone, because its session %s can't be told: %w", r.ID, r.session, err)
	}
	return nil
}

// findBeat is lookAtBeats for readers without a lock.
func (s *store) findBeat(r *Record, known map[sessionID]beats) error {
	if r.session == (sessionID{}) {
		return nil
	}
	now, err := s.now()
	if err != nil {
		return err
	}
	return s.lookAtBeats(r, now, known)
}

// adopt makes a record that is renewed strictly one of this table's session. The session it named before may belong to the same holder and
// be alive: it has to learn that it must not answer for the lease any more. Caller holds the record's lock.
func (s *store) adopt(r *Record) error {
	if s.session == nil || r.session == s.session.id {
		return nil
	}
	if err := s.challenge(r); err != nil {
		return err
	}
	r.session = s.session.id
	return nil
}
