package lease

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
)

// F320 to F322, beyond.md row 12: a manifest is required, and there is one per commit.
func TestBeginCommitNeedsOneManifest(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	tok := f.claim(table, firstOfShard0, "a")
	f.trace.Reset()
	for _, bad := range []jsonRaw{nil, {}, payload("null"), payload("[]"), payload(`"x"`), payload("1"), payload("{"), payload("{}{}")} {
		f.want(table.BeginCommit(bg, firstOfShard0, tok, bad), fs.ErrInvalid)
	}
	if n := len(f.trace.Events()); n > 0 {
		t.Errorf("%d accesses for bad manifests", n)
	}
	f.must(table.BeginCommit(bg, firstOfShard0, tok, payload(`{"files": [1, 2]}`)))
	f.must(table.BeginCommit(bg, firstOfShard0, tok, payload(` {"files":[1,2]} `)))
	before := f.bytes(firstOfShard0)
	for _, other := range []string{`{"files":[1]}`, `{"files":[1,3]}`, "{}"} {
		f.want(table.BeginCommit(bg, firstOfShard0, tok, payload(other)), ErrManifest)
	}
	if !bytes.Equal(before, f.bytes(firstOfShard0)) {
		t.Error("a refused manifest changed the record")
	}
	committing, err := table.Committing(bg, 0)
	f.must(err)
	if len(committing) != 1 || string(committing[0].Manifest) != `{"files":[1,2]}` || committing[0].Token != tok {
		t.Errorf("%+v", committing)
	}
}

// committing is never taken over by time, whatever TTL the other table has.
func TestCommittingIsNeverTakenOver(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	tok := f.claim(table, firstOfShard0, "a")
	f.must(table.BeginCommit(bg, firstOfShard0, tok, payload("{}")))
	f.clock.set(1e6)
	f.opts.TTL = MinTTL
	other := f.open()
	f.want(second(other.Claim(bg, firstOfShard0, nil, Holder{})), ErrCommitting)
	f.want(second(other.TakeOver(bg, firstOfShard0, nil, Holder{})), ErrCommitting)
	f.must(table.Heartbeat(bg, firstOfShard0, tok))
	expired, err := other.Expired(bg, 0)
	f.must(err)
	if len(expired) > 0 {
		t.Error("a committing record is listed as expired")
	}
}

// Complete publishes under the lock, once, and whoever finds a committing record can do it with the record's own token and manifest.
func TestCompletePublishesUnderTheLockThenMarksDone(t *testing.T) {
	f := newFixture(t)
	f.opts.LockTimeout = time.Millisecond
	table := f.open()
	tok := f.claim(table, firstOfShard0, "a")
	f.want(second(table.Complete(bg, firstOfShard0, tok, publishNothing)), ErrNotCommitting)
	f.must(table.BeginCommit(bg, firstOfShard0, tok, payload(`{"n":1}`)))

	broken := errors.New("publication failed")
	_, err := table.Complete(bg, firstOfShard0, tok, func(context.Context, jsonRaw) error { return broken })
	f.want(err, broken)
	r, err := table.Lookup(firstOfShard0)
	f.must(err)
	if r.Status != Committing {
		t.Errorf("status %s after a failed publication", r.Status)
	}

	f.clock.set(12)
	calls := 0
	publish := func(_ context.Context, manifest jsonRaw) error {
		calls++
		if string(manifest) != `{"n":1}` {
			t.Errorf("manifest %s", manifest)
		}
		manifest[0] = 'x' // it is the callee's copy
		f.want(table.Heartbeat(bg, firstOfShard0, tok), ErrLocked)
		return nil
	}
	finder := f.open()
	first, err := finder.Complete(bg, r.ID, r.Token, publish)
	f.must(err)
	again, err := table.Complete(bg, firstOfShard0, tok, publish)
	f.must(err)
	if !first || again || calls != 1 {
		t.Errorf("first %t, again %t, %d publications", first, again, calls)
	}
	r, err = table.Lookup(firstOfShard0)
	f.must(err)
	if r.Status != Done || !r.Completed.Equal(seconds(12)) || !r.Updated.Equal(seconds(10)) || string(r.Manifest) != `{"n":1}` {
		t.Errorf("%+v", r)
	}
	stale := tok
	stale.Nonce[3] ^= 1
	f.want(second(table.Complete(bg, firstOfShard0, stale, publish)), ErrLost)
	f.want(second(table.Complete(bg, secondOfShard0, tok, publish)), ErrLost)
}

func TestAPanickingPublicationLetsGoOfTheLock(t *testing.T) {
	f := newFixture(t)
	f.opts.LockTimeout = time.Millisecond
	table := f.open()
	tok := f.claim(table, firstOfShard0, "a")
	f.must(table.BeginCommit(bg, firstOfShard0, tok, payload("{}")))
	func() {
		defer func() { recover() }()
		table.Complete(bg, firstOfShard0, tok, func(context.Context, jsonRaw) error { panic("in publish") })
	}()
	first, err := table.Complete(bg, firstOfShard0, tok, publishNothing)
	if f.must(err); !first {
		t.Error("not first")
	}
}

// FS-1 to FS-5 on each path that acknowledges: nothing is acknowledged before its barrier; a failure at any operation surfaces, is no
// loss and no success; and repeating the call settles it.
func TestEveryFailureOfEveryOperationSurfacesAndCanBeRepeated(t *testing.T) {
	ops := map[string]func(table *Table, tok Token) error{
		"heartbeat": func(table *Table, tok Token) error { return table.Heartbeat(bg, firstOfShard0, tok) },
		"begin":     func(table *Table, tok Token) error { return table.BeginCommit(bg, firstOfShard0, tok, payload("{}")) },
		"abandon":   func(table *Table, tok Token) error { return table.Abandon(bg, firstOfShard0, tok) },
		"complete": func(table *Table, tok Token) error {
			if err := table.BeginCommit(bg, firstOfShard0, tok, payload("{}")); err != nil && !errors.Is(err, ErrDone) {
				return err
			}
			return second(table.Complete(bg, firstOfShard0, tok, publishNothing))
		},
		"claim": func(table *Table, _ Token) error {
			return second(table.TakeOver(bg, firstOfShard0, nil, Holder{Owner: "b"}))
		},
	}
	for name, op := range ops {
		for nth := 1; ; nth++ {
			f := newFixture(t)
			table := f.open()
			tok := f.claim(table, firstOfShard0, "a")
			f.trace.Reset()
			f.fault.Inject(faultfs.Rule{Nth: nth, Err: syscall.EIO, Match: func(c *vfs.Call) bool { return noUnlock(c) || c.Op == vfs.OpClose && strings.HasSuffix(c.Name, ".tmp") }})
			err := op(table, tok)
			injected := f.fault.Injected()
			f.fault.Clear()
			if injected == 0 {
				f.must(err)
				f.trace.Mark("acknowledged")
				f.must(f.trace.Check("acknowledged"))
				if nth < 8 {
					t.Errorf("%s takes %d operations only", name, nth)
				}
				break
			}
			f.want(err, syscall.EIO)
			if errors.Is(err, ErrLost) || errors.Is(err, ErrCorrupt) {
				t.Errorf("%s, operation %d: %v", name, nth, err)
			}
			if at := lastFailed(f); (at == vfs.OpSyncDir) != errors.Is(err, groupcommit.ErrUnknown) {
				t.Errorf("%s, failed %s: unknown is %t", name, at, errors.Is(err, groupcommit.ErrUnknown))
			}
			f.must(op(table, tok))
		}
	}
}

// lastFailed cannot be read off the trace, which is under the faults: it is the operation that is missing. A failed barrier is the only
// one after a rename.
func lastFailed(f *fixture) vfs.Op {
	events := f.trace.Events()
	for i, e := range events {
		if e.Op == vfs.OpRename && (i+1 == len(events) || events[i+1].Op != vfs.OpSyncDir) {
			return vfs.OpSyncDir
		}
	}
	return ""
}

// A claim that begins can be finished: what enters a record leaves room for the states that follow.
func TestARecordThatFitsWhenClaimedFitsToTheEnd(t *testing.T) {
	f := newFixture(t)
	f.opts.MaxRecord = MinMaxRecord
	table := f.open()
	id := firstOfShard0
	filler := func(n int) jsonRaw { return payload(`{"x":"` + strings.Repeat("x", n) + `"}`) }
	n := MinMaxRecord
	for ; ; n-- {
		tok, err := table.Claim(bg, id, filler(n/2), Holder{Owner: "a"})
		f.must(err)
		err = table.BeginCommit(bg, id, tok, filler(n/2))
		if err == nil {
			f.clock.set(8e9) // a timestamp as long as they get
			f.must(table.Heartbeat(bg, id, tok))
			_, err = table.Complete(bg, id, tok, publishNothing)
			f.must(err)
			break
		}
		f.want(err, vfs.ErrTooLarge)
		f.must(table.Abandon(bg, id, tok))
		n -= 50
	}
	f.want(second(table.Claim(bg, secondOfShard0, filler(MinMaxRecord), Holder{})), vfs.ErrTooLarge)
	f.want(second(table.Lookup(secondOfShard0)), fs.ErrNotExist)
	f.want(second(table.Claim(bg, secondOfShard0, payload(strings.Repeat("[", 9999)+strings.Repeat("]", 9999)), Holder{})), vfs.ErrTooLarge)
}

func TestAPayloadNestedTooDeepForARecordIsRefused(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	deep := payload(strings.Repeat("[", 10000) + strings.Repeat("]", 10000)) // valid alone, at the limit of encoding/json
	f.want(second(table.Claim(bg, firstOfShard0, deep, Holder{})), fs.ErrInvalid)
	f.want(second(table.Lookup(firstOfShard0)), fs.ErrNotExist)
}

// beyond.md row 11: the leftover of a killed writer goes at the record's next write, and done records are read once by scans.
func TestLeftoversGoAndDoneRecordsAreReadOnce(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	tok := f.claim(table, firstOfShard0, "a")
	f.must(writeAll(f.file(firstOfShard0)+".tmp", []byte("garbage of a killed writer")))
	counts, err := table.Counts(bg)
	f.must(err)
	if counts != (Counts{Leased: 1}) {
		t.Errorf("%+v", counts)
	}
	f.must(table.BeginCommit(bg, firstOfShard0, tok, payload("{}")))
	f.want(second(table.Lookup(mustID(strings.Repeat("0", 64)))), fs.ErrNotExist)
	if data := string(f.bytes(firstOfShard0)); strings.Contains(data, "garbage") {
		t.Error("the leftover was published")
	}
	_, err = table.Complete(bg, firstOfShard0, tok, publishNothing)
	f.must(err)
	for want := 1; want >= 0; want-- {
		f.trace.Reset()
		counts, err := table.Counts(bg)
		f.must(err)
		opens := 0
		for _, e := range f.trace.Events() {
			if e.Op == vfs.OpOpen {
				opens++
			}
		}
		if counts != (Counts{Done: 1}) || opens != want {
			t.Errorf("counts %+v with %d records read, want %d", counts, opens, want)
		}
	}
}

func TestScansAreSortedAndLimited(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	for n := range 8 {
		f.clock.set(float64(10 - n/2))
		f.claim(table, itemID(n), "a")
	}
	f.clock.set(17)
	expired, err := table.Expired(bg, 0)
	f.must(err)
	limited, err := table.Expired(bg, 3)
	f.must(err)
	if len(expired) != 2 || len(limited) != 2 { // at 7: itemID(6) and itemID(7)
		t.Errorf("%d and %d expired", len(expired), len(limited))
	}
	f.clock.set(18)
	expired, err = table.Expired(bg, 3)
	f.must(err)
	if len(expired) != 3 || !expired[0].Updated.Equal(seconds(7)) || compareIDs(expired[0].ID, expired[1].ID) >= 0 || !expired[2].Updated.Equal(seconds(8)) {
		t.Errorf("%+v", expired)
	}
	seen := 0
	for r, err := range table.Records(bg) {
		if f.must(err); r.ID == (ID{}) {
			t.Error("no ID")
		}
		if seen++; seen == 5 {
			break
		}
	}
	ctx, cancel := context.WithCancel(bg)
	cancel()
	f.want(second(table.Counts(ctx)), context.Canceled)
}
