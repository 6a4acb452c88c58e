package lease

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"shardlease/pkg/groupcommit"
)

// Table keeps one record per ID under its root. All methods may be called concurrently, from any number of goroutines and processes.
// ctx bounds the waiting for locks; what has been written by the time it ends is still finished and reported as it is.
//
// Errors that are not one of the sentinels are I/O errors: nothing was decided, and the caller holds what it held. Those that match
// groupcommit.ErrUnknown mean that the change is or may be visible but may not survive a power cut; repeating the call settles it.
type Table struct {
	s    *store
	done doneSet
}

// Open opens the table under root and creates it durably if there is none. opts may be nil. A root with another layout, or of
// another kind, is refused with ErrLayout.
func Open(root string, opts *Options) (*Table, error) {
	s, err := openStore(root, kindWork, opts)
	if err != nil {
		return nil, err
	}
	return &Table{s: s}, nil
}

// Close ends all waiting for locks in this table, with fs.ErrClosed, and makes later calls fail in the same way. It does not
// wait for running calls (but for a HeartbeatMany with OneFlush renewals) and releases no lease.
func (t *Table) Close() error { return t.s.close() }

// Shards returns the shard count that the root has pinned.
func (t *Table) Shards() int { return t.s.opts.Shards }

// TTL returns the time that a lease claimed through this table lives without a renewal.
func (t *Table) TTL() time.Duration { return t.s.opts.TTL }

// Stats returns the counters of this open table.
func (t *Table) Stats() Stats { return t.s.stats.snapshot() }

// Strategy returns the content strategy in use: Options.Strategy, or what Auto has chosen, or what is left of it on a file system that
// can't do all of it.
func (t *Table) Strategy() groupcommit.Strategy { return t.s.writer.Strategy() }

// Claim takes the lease of id for the TTL from now on and returns the token that holds it, with a fence above all earlier ones of this
// id. It succeeds if there is no record, or an abandoned one, or a lapsed lease; else it is refused with ErrHeld, ErrCommitting, ErrDone or
// ErrCorrupt. payload is any JSON, or nil, and replaces an earlier one.
//
// On any error the caller does not hold the lease. One that matches groupcommit.ErrUnknown may have left a lease that nobody holds; it
// lapses by itself, and the next fence is above its fence. A claim whose own I/O took longer than the TTL matches ErrLost.
func (t *Table) Claim(ctx context.Context, id ID, payload json.RawMessage, by Holder) (Token, error) {
	return t.claim(ctx, OpClaim, id, payload, by)
}

// TakeOver is Claim that does not wait for a lease to lapse. It is for callers who know that the previous holder is gone, as at the resume
// of an epoch; if it is not, it is fenced. Committing and done records are refused as by Claim.
func (t *Table) TakeOver(ctx context.Context, id ID, payload json.RawMessage, by Holder) (Token, error) {
	return t.claim(ctx, OpTakeOver, id, payload, by)
}

func (t *Table) claim(ctx context.Context, op Op, id ID, payload json.RawMessage, by Holder) (Token, error) {
	payload, err := t.s.claimArgs(payload, &by)
	if err != nil {
		return Token{}, err
	}
	var claimed Record
	err = t.s.change(ctx, id, func(r *Record, now time.Time) ([]byte, error) {
		if _, err := next(r, op, Token{}, now, t.s.opts.MaxSkew); err != nil {
			return nil, err
		}
		if err := t.s.handshake(r, op, now); err != nil {
			return nil, err
		}
		fence := uint64(0)
		if r != nil {
			fence = r.Token.Fence
		}
		tok, err := t.s.nextToken(fence)
		if err != nil {
			return nil, err
		}
		claimed = t.s.claimed(r, id, tok, payload, by, now)
		return t.s.encodeNew(&claimed)
	})
	if err != nil {
		return Token{}, err
	}
	if ss := t.s.session; ss != nil {
		ss.remember(id, told{tok: claimed.Token, at: claimed.Updated, written: claimed.Updated, ttl: claimed.TTL})
	}
	return claimed.Token, t.s.inTime(&claimed)
}

// handshake is (b) and (c) of Renewals, for a claim that was found to be allowed. r may be nil.
func (s *store) handshake(r *Record, op Op, now time.Time) error {
	if err := s.challenge(r); err != nil || r == nil || r.session == (sessionID{}) {
		return err
	}
	if err := s.lookAtBeats(r, now, nil); err != nil {
		return err
	}
	_, err := next(r, op, Token{}, now, s.opts.MaxSkew)
	return err
}

// claimArgs checks what a claimer gives before any lock or file is touched.
func (s *store) claimArgs(payload json.RawMessage, by *Holder) (json.RawMessage, error) {
	if err := by.check(); err != nil {
		return nil, err
	}
	if by.Owner == "" {
		by.Owner = s.owner
	}
	return compactJSON("payload", payload)
}

// claimed is the record after a claim. old is nil if there was none.
func (s *store) claimed(old *Record, id ID, tok Token, payload json.RawMessage, by Holder, now time.Time) Record {
	r := Record{ID: id, Status: Leased, Token: tok, Holder: by, Attempts: 1, Payload: payload, Updated: now, TTL: s.opts.TTL}
	if s.session != nil {
		r.session = s.session.id
	}
	if old != nil {
		r.extra = old.extra
		r.PreviousOwner = old.Holder.Owner
		r.Attempts = min(old.Attempts+1, maxCount)
		r.Steals = old.Steals
		if old.Status == Leased && old.Holder.Owner != by.Owner {
			r.Steals = min(r.Steals+1, r.Attempts-1)
		}
	}
	return r
}

// inTime refuses a lease that lapsed while it was written.
func (s *store) inTime(r *Record) error {
	now, err := s.now()
	if err != nil {
		return err
	}
	if r.Lapsed(now, s.opts.MaxSkew) {
		return fmt.Errorf("%w: writing the lease of %s took longer than its TTL %v", ErrLost, r.ID, r.TTL)
	}
	return nil
}

// change runs one read, decision and durable write under the record's lock. decide gets nil for an absent record and returns the new
// content, or an error to leave the file alone.
func (s *store) change(ctx context.Context, id ID, decide func(r *Record, now time.Time) ([]byte, error)) error {
	return s.locked(ctx, id, func(r *Record, now time.Time) error {
		data, err := decide(r, now)
		if err != nil {
			return err
		}
		return s.write(id, data)
	})
}

// locked calls f with the record (nil: absent) and the time, both read under the record's lock.
func (s *store) locked(ctx context.Context, id ID, f func(r *Record, now time.Time) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	l, err := s.lock(ctx, id, s.lockDeadline())
	if err != nil {
		return err
	}
	defer l.Close() // the kernel releases the lock even if this fails
	r, _, err := s.read(id, nil)
	found := &r
	if errors.Is(err, fs.ErrNotExist) {
		found, err = nil, nil
	}
	if err != nil {
		return err
	}
	now, err := s.now()
	if err == nil && found != nil {
		err = s.lookAtBeats(found, now, nil)
	}
	if err != nil {
		return err
	}
	return f(found, now)
}

// BeginCommit moves a lease to committing, durably: from then on nobody can take it over, and whoever finds it completes it. manifest
// is a JSON object that says what is to be published and suffices to do it again. Repeating the call with the same token and an
// equal manifest (equal but for blanks) is fine; a different one is refused with ErrManifest. A lapsed lease can't be committed: ErrLost.
func (t *Table) BeginCommit(ctx context.Context, id ID, tok Token, manifest json.RawMessage) error {
	manifest, err := compactJSON("manifest", manifest)
	if err != nil {
		return err
	}
	if len(manifest) == 0 || manifest[0] != '{' {
		return fmt.Errorf("lease: the manifest of %s is not a JSON object: %w", id, fs.ErrInvalid)
	}
	return t.s.change(ctx, id, func(r *Record, now time.Time) ([]byte, error) {
		to, err := next(r, OpBeginCommit, tok, now, t.s.opts.MaxSkew)
		if err != nil {
			return nil, err
		}
		if r.Status == Committing && !bytes.Equal(r.Manifest, manifest) {
			return nil, fmt.Errorf("%w: %s", ErrManifest, id)
		}
		if err := t.s.challenge(r); err != nil {
			return nil, err
		}
		r.Status, r.Manifest = to, manifest
		r.renew(now)
		return t.s.encodeNew(r)
	})
}

// Complete calls publish with the manifest while it holds the record's lock, then marks the record done, durably. If publish fails, its
// error is returned and the record stays committing, for this caller or another to try again; so publish must be idempotent.
//
// first says that this call marked it. If the record is done by this very token already, publish is not called and the result is false and
// nil, after the record was made durable once more. A holder that has not begun the commit gets ErrNotCommitting.
func (t *Table) Complete(ctx context.Context, id ID, tok Token, publish func(context.Context, json.RawMessage) error) (first bool, err error) {
	err = t.s.locked(ctx, id, func(r *Record, now time.Time) error {
		to, err := next(r, OpComplete, tok, now, t.s.opts.MaxSkew)
		if err != nil {
			return err
		}
		first = r.Status != Done
		if err := t.s.challenge(r); err != nil {
			return err
		}
		if first {
			if err := publish(ctx, bytes.Clone(r.Manifest)); err != nil {
				return fmt.Errorf("lease: publish %s: %w", id, err)
			}
			if now, err = t.s.now(); err != nil {
				return err
			}
			r.Status, r.Completed = to, now
		}
		data, err := t.s.encode(r, nil, 0)
		if err != nil {
			return err
		}
		return t.s.write(id, data)
	})
	return first && err == nil, err
}

// Abandon gives the lease back: the record stays, with its fence, and can be claimed at once. A lapsed lease can be abandoned while
// nobody has taken it. Repeating the call with the same token is fine.
func (t *Table) Abandon(ctx context.Context, id ID, tok Token) error {
	return t.s.change(ctx, id, func(r *Record, now time.Time) ([]byte, error) {
		to, err := next(r, OpAbandon, tok, now, t.s.opts.MaxSkew)
		if err != nil {
			return nil, err
		}
		if err := t.s.challenge(r); err != nil {
			return nil, err
		}
		r.Status = to
		return t.s.encode(r, nil, 0)
	})
}

// Lookup reads the record of id, without a lock. The error matches fs.ErrNotExist if there is none, ErrCorrupt if it can't be trusted,
// and neither if it can't be read.
func (t *Table) Lookup(id ID) (Record, error) {
	if err := t.s.enter(context.Background()); err != nil {
		return Record{}, err
	}
	r, _, err := t.s.read(id, nil)
	return r, err
}
