package lease

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
)

// Rule 1, beyond.md row 3: what can't be read is not lost. Each errno surfaces, and is neither lost, absent nor corrupt.
func TestAnUnreadableRecordIsNeverLost(t *testing.T) {
	for _, op := range []vfs.Op{vfs.OpOpen, vfs.OpRead} {
		for _, errno := range []syscall.Errno{syscall.EIO, syscall.EACCES, syscall.EMFILE, syscall.ESTALE, syscall.ENOTDIR, syscall.ELOOP} {
			f := newFixture(t)
			table := f.open()
			tok := f.claim(table, firstOfShard0, "a")
			f.fault.Inject(faultfs.Rule{Op: op, Base: "*.json", Err: &fs.PathError{Op: string(op), Path: "x", Err: errno}, Sticky: true})
			f.trace.Reset()
			calls := map[string]func() error{
				"claim":    func() error { _, err := table.Claim(bg, firstOfShard0, nil, Holder{}); return err },
				"beat":     func() error { return table.Heartbeat(bg, firstOfShard0, tok) },
				"begin":    func() error { return table.BeginCommit(bg, firstOfShard0, tok, payload("{}")) },
				"complete": func() error { _, err := table.Complete(bg, firstOfShard0, tok, publishNothing); return err },
				"abandon":  func() error { return table.Abandon(bg, firstOfShard0, tok) },
				"lookup":   func() error { _, err := table.Lookup(firstOfShard0); return err },
				"expired":  func() error { _, err := table.Expired(bg, 0); return err },
				"counts":   func() error { _, err := table.Counts(bg); return err },
			}
			for name, call := range calls {
				err := call()
				if !errors.Is(err, errno) || errors.Is(err, ErrLost) || errors.Is(err, ErrCorrupt) || errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s with %v at %s: %v", name, errno, op, err)
				}
			}
			if f.writes() > 0 {
				t.Errorf("%v at %s: something was written", errno, op)
			}
			f.fault.Clear()
			f.must(table.Heartbeat(bg, firstOfShard0, tok)) // LE-11, LE-16: one error ends nothing
		}
	}
}

// FS-20: the first answer of a network file system may be stale. The fence must not restart because of it.
func TestAStaleAbsenceIsLookedAtAgain(t *testing.T) {
	for _, err := range []error{&fs.PathError{Op: "open", Path: "x", Err: syscall.ENOENT}, &fs.PathError{Op: "open", Path: "x", Err: syscall.ESTALE}} {
		f := newFixture(t)
		table := f.open()
		tok := f.claim(table, firstOfShard0, "a")
		f.fault.Inject(faultfs.Rule{Op: vfs.OpOpen, Base: "*.json", Err: err})
		_, claimErr := table.Claim(bg, firstOfShard0, nil, Holder{})
		f.want(claimErr, ErrHeld)
		f.fault.Clear()
		f.fault.Inject(faultfs.Rule{Op: vfs.OpOpen, Base: "*.json", Err: err})
		f.must(table.Heartbeat(bg, firstOfShard0, tok))
		if f.fault.Injected() != 1 {
			t.Error("nothing was injected")
		}
	}
}

// Rule 1, beyond.md row 4: a shard that is gone or can't be listed does not look empty.
func TestAMissingOrUnreadableShardIsAnError(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	tok := f.claim(table, firstOfShard0, "a")
	f.claim(table, onlyOfShard1, "a")
	f.clock.set(30)
	f.fault.Inject(faultfs.Rule{Op: vfs.OpReadDir, Base: "000", Err: syscall.EIO, Sticky: true})
	expired, err := table.Expired(bg, 0)
	f.want(err, syscall.EIO)
	if len(expired) != 1 || expired[0].ID != onlyOfShard1 {
		t.Errorf("the readable shard has %d expired records", len(expired))
	}
	_, err = table.Counts(bg)
	f.want(err, syscall.EIO)
	f.fault.Clear()

	shard, away := filepath.Join(f.root, "000"), f.root+"-away"
	f.must(os.Rename(shard, away))
	defer os.Rename(away, shard)
	_, err = table.Counts(bg)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing shard: %v", err)
	}
	for name, err := range map[string]error{"beat": table.Heartbeat(bg, firstOfShard0, tok), "lookup": second(table.Lookup(firstOfShard0)),
		"claim": second(table.Claim(bg, firstOfShard0, nil, Holder{}))} {
		if !errors.Is(err, ErrLayout) || errors.Is(err, ErrLost) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s in a missing shard: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// Rule 2: half-open, by the record's own TTL, and the same answer for every operation.
func TestALeaseIsAliveUntilJustBeforeItsTTLByTheRecord(t *testing.T) {
	f := newFixture(t)
	long := f.open() // TTL 10
	f.opts.TTL = time.Second
	short := f.open()
	tok := f.claim(long, firstOfShard0, "a")
	f.clock.set(19.999999999)
	f.want(second(short.Claim(bg, firstOfShard0, nil, Holder{})), ErrHeld)
	f.must(short.Heartbeat(bg, firstOfShard0, tok)) // keeps the TTL of the claim: a renewal never shortens
	f.clock.set(29.9)
	f.want(second(short.Claim(bg, firstOfShard0, nil, Holder{})), ErrHeld)
	f.clock.set(29.999999999)
	f.want(long.Heartbeat(bg, firstOfShard0, tok), ErrLost)
	f.want(long.BeginCommit(bg, firstOfShard0, tok, payload("{}")), ErrLost)
	if got := f.claim(long, firstOfShard0, "b"); got.Fence != 2 {
		t.Errorf("fence %d", got.Fence)
	}
}

// Rule 2, LE-2, LE-3, beyond.md row 6: a time in the future is believed up to MaxSkew; a renewal under a clock that went back moves nothing back.
func TestTimesInTheFutureAreBelievedUpToMaxSkew(t *testing.T) {
	f := newFixture(t)
	f.opts.MaxSkew = 5 * time.Second
	table := f.open()
	f.clock.set(100)
	tok := f.claim(table, firstOfShard0, "a")
	f.clock.set(95)
	f.must(table.Heartbeat(bg, firstOfShard0, tok))
	if got := f.updated(firstOfShard0); !got.Equal(seconds(100)) {
		t.Errorf("updated was moved back to %v", got)
	}
	f.want(second(table.Claim(bg, firstOfShard0, nil, Holder{})), ErrHeld)
	f.clock.set(94.999)
	f.want(table.Heartbeat(bg, firstOfShard0, tok), ErrLost)
	expired, err := table.Expired(bg, 0)
	f.must(err)
	if len(expired) != 1 {
		t.Error("a record from the future is not listed as expired")
	}
	f.claim(table, firstOfShard0, "b")
	expired, err = table.Expired(bg, 0) // recoverable once
	f.must(err)
	if len(expired) != 0 {
		t.Error("it is expired again")
	}
}

// Rule 2, LE-1, beyond.md row 6: the clock is read under the lock, so waiting for it counts.
func TestTheClockIsReadUnderTheLock(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	tok := f.claim(table, firstOfShard0, "a")
	f.fault.Inject(faultfs.Rule{Op: vfs.OpLock, Hook: func(*vfs.Call) { f.clock.set(20) }, Sticky: true})
	f.want(table.Heartbeat(bg, firstOfShard0, tok), ErrLost)
	f.clock.set(10)
	f.want(table.BeginCommit(bg, firstOfShard0, tok, payload("{}")), ErrLost)
	f.clock.set(10)
	got := f.claim(table, firstOfShard0, "b") // lapsed while waiting for the lock
	r, err := table.Lookup(firstOfShard0)
	f.must(err)
	if got.Fence != 2 || !r.Updated.Equal(seconds(20)) {
		t.Errorf("fence %d, updated %v: the lease was aged by the wait", got.Fence, r.Updated)
	}
}

// LE-1: what lapsed while it was written is not handed out, nor confirmed.
func TestAClaimOrRenewalThatOutlastsItsTTLIsLost(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	slow := faultfs.Rule{Op: vfs.OpSyncDir, Hook: func(*vfs.Call) { f.clock.add(10 * time.Second) }}
	f.fault.Inject(slow)
	f.want(second(table.Claim(bg, firstOfShard0, nil, Holder{})), ErrLost)
	tok := f.claim(table, firstOfShard0, "b") // at once: it has lapsed
	if tok.Fence != 2 {
		t.Errorf("fence %d", tok.Fence)
	}
	f.fault.Inject(slow)
	f.want(table.Heartbeat(bg, firstOfShard0, tok), ErrLost)
}

// Rule 3: options and clocks are checked before any lock or file is touched.
func TestBadOptionsAndClocksAreRefusedBeforeAnyAccess(t *testing.T) {
	bad := map[string]Options{
		"Shards":      {Shards: -1},
		"Shards ":     {Shards: MaxShards + 1},
		"TTL":         {TTL: -time.Second},
		"TTL ":        {TTL: 30}, // LE-15: 30 ns where seconds were meant
		"TTL  ":       {TTL: 1<<63 - 1},
		"LockTimeout": {LockTimeout: -1},
		"MaxSkew":     {MaxSkew: -1},
		"MaxSkew ":    {MaxSkew: 1<<63 - 1},
		"MaxRecord":   {MaxRecord: -1},
		"MaxRecord ":  {MaxRecord: 100},
	}
	for field, opts := range bad {
		f := newFixture(t)
		opts.FS = f.fault
		_, err := Open(f.root, &opts)
		f.want(err, fs.ErrInvalid)
		if !strings.Contains(err.Error(), "Options."+strings.TrimSpace(field)+" ") || len(f.trace.Events()) > 0 {
			t.Errorf("%+v: %v, %d accesses", opts, err, len(f.trace.Events()))
		}
	}
	f := newFixture(t)
	table := f.open()
	tok := f.claim(table, firstOfShard0, "a")
	for _, now := range []time.Time{{}, time.Unix(-1, 0), time.Unix(1<<40, 0)} {
		f.opts.Now = func() time.Time { return now }
		table := f.open()
		_, many := table.HeartbeatMany(bg, map[ID]Token{firstOfShard0: tok})
		for name, err := range map[string]error{"beat": many, "claim": second(table.Claim(bg, firstOfShard0, nil, Holder{})),
			"begin": table.BeginCommit(bg, firstOfShard0, tok, payload("{}")), "abandon": table.Abandon(bg, firstOfShard0, tok),
			"expired": second(table.Expired(bg, 0)), "complete": second(table.Complete(bg, firstOfShard0, tok, publishNothing))} {
			if !errors.Is(err, ErrClock) || len(f.trace.Events()) > 0 {
				t.Errorf("%s at %v: %v, %d accesses", name, now, err, len(f.trace.Events()))
			}
		}
	}
	for _, by := range []Holder{{Owner: strings.Repeat("x", MaxOwner+1)}, {Owner: "\xff"}, {Worker: -1}} {
		f.want(second(table.Claim(bg, firstOfShard0, nil, by)), fs.ErrInvalid)
	}
}

func TestDefaultsArePutInAndTwoOwnersDiffer(t *testing.T) {
	root := filepath.Join(t.TempDir(), "new", "root")
	a, err := Open(root, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := a.s.opts
	if o.Shards != DefaultShards || o.TTL != DefaultTTL || o.LockTimeout != DefaultLockTimeout || o.MaxSkew != DefaultTTL || o.MaxRecord != DefaultMaxRecord {
		t.Errorf("defaults are %+v", o)
	}
	b, err := Open(root, &Options{TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if b.s.opts.LockTimeout != time.Second || b.s.owner == a.s.owner || len(b.s.owner) > MaxOwner {
		t.Errorf("lock timeout %v, owners %q and %q", b.s.opts.LockTimeout, a.s.owner, b.s.owner)
	}
	tok, err := a.Claim(bg, firstOfShard0, nil, Holder{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.Lookup(firstOfShard0)
	if err != nil || r.Holder.Owner != a.s.owner || r.Token != tok {
		t.Errorf("%+v, %v", r, err)
	}
	checkRoot(t, root)
}

func TestIDsAndTokensHaveOneSpelling(t *testing.T) {
	for _, bad := range []string{"", "0", firstOfShard0.String() + "0", strings.ToUpper(firstOfShard0.String()), strings.Repeat("g", 64), strings.Repeat("é", 32)} {
		if _, err := ParseID(bad); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("ParseID(%q): %v", bad, err)
		}
	}
	tok := Token{Fence: 7, Nonce: [16]byte{1, 2}}
	text, _ := tok.MarshalText()
	var back Token
	if err := back.UnmarshalText(text); err != nil || back != tok {
		t.Errorf("%s became %v, %v", text, back, err)
	}
	for _, bad := range []string{"", "7", "7-", "-1-" + zeroNonce, "7-00", "x-" + zeroNonce} {
		if err := back.UnmarshalText([]byte(bad)); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("token %q: %v", bad, err)
		}
	}
	prefix := firstOfShard0
	prefix[31] ^= 1
	if prefix.lockKey() == firstOfShard0.lockKey() || prefix.lockKey()>>63 != 0 {
		t.Error("the lock key does not depend on the whole ID, or has 64 bits")
	}
	ids := []ID{secondOfShard0, firstOfShard0}
	slices.SortFunc(ids, compareIDs)
	if ids[0] != firstOfShard0 {
		t.Error("IDs are not ordered")
	}
}
