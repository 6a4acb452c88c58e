package lease

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"testing"
	"time"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
)

// unlocked is a file system whose locks exclude nobody, as on some network mounts.
type unlocked struct{ vfs.FS }

func (unlocked) TryLock(string, ...uint64) (vfs.Lock, error) { return noLocks{io.NopCloser(nil)}, nil }

type noLocks struct{ io.Closer }

func (noLocks) Held(int) bool { return true }

// LK-5: where locks exclude nobody, record and token still let one holder commit.
func TestWithoutRealLocksOnlyOneOfTwoClaimsCanCommit(t *testing.T) {
	for _, op := range []vfs.Op{vfs.OpWrite, vfs.OpRename, vfs.OpSyncDir} { // where the other claim comes in between
		f := newFixture(t)
		f.opts.FS = unlocked{f.fault}
		a, b := f.open(), f.open()
		var tokB Token
		f.fault.Inject(faultfs.Rule{Op: op, Hook: func(*vfs.Call) { tokB, _ = b.Claim(bg, firstOfShard0, nil, Holder{Owner: "b"}) }})
		tokA, _ := a.Claim(bg, firstOfShard0, nil, Holder{Owner: "a"})
		f.fault.Clear()
		won := 0
		for _, tok := range []Token{tokA, tokB} {
			err := a.BeginCommit(bg, firstOfShard0, tok, payload("{}"))
			if err == nil {
				won++
			} else if !errors.Is(err, ErrLost) {
				t.Errorf("at %s: %v", op, err)
			}
		}
		if won != 1 {
			t.Errorf("at %s: %d holders began a commit", op, won)
		}
	}
}

// LE-13: what a scan has listed may have been renewed since; the claim decides on what it reads itself.
func TestAClaimDoesNotTrustAnOldList(t *testing.T) {
	f := newFixture(t)
	f.opts.MaxSkew = time.Minute
	table := f.open()
	tok := f.claim(table, firstOfShard0, "a")
	f.clock.set(21)
	expired, err := table.Expired(bg, 0)
	f.must(err)
	f.clock.set(19) // a holder whose clock is a little behind
	f.must(table.Heartbeat(bg, firstOfShard0, tok))
	f.clock.set(21)
	if len(expired) != 1 {
		t.Fatal("nothing was listed")
	}
	f.want(second(table.Claim(bg, expired[0].ID, nil, Holder{Owner: "b"})), ErrHeld)
}

// LE-27: a claim whose context ends at any operation either is done and says so or has not happened, and leaves no goroutine and no lock.
func TestAClaimCancelledAnywhereTellsTheTruth(t *testing.T) {
	before := runtime.NumGoroutine()
	for nth := 1; ; nth++ {
		f := newFixture(t)
		table := f.open()
		ctx, cancel := context.WithCancel(bg)
		f.fault.Inject(faultfs.Rule{Nth: nth, Hook: func(*vfs.Call) { cancel() }})
		tok, err := table.Claim(ctx, firstOfShard0, nil, Holder{Owner: "a"})
		cancel()
		injected := f.fault.Injected()
		f.fault.Clear()
		switch {
		case err == nil:
			f.must(table.Heartbeat(bg, firstOfShard0, tok))
		case errors.Is(err, context.Canceled):
			f.claim(table, firstOfShard0, "b")
		default:
			t.Fatal(err)
		}
		if injected == 0 {
			break
		}
	}
	for start := time.Now(); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatalf("%d goroutines became %d", before, runtime.NumGoroutine())
		}
	}
}

// LE-24: after all holders died, the first claim after the TTL succeeds for each item, without a wait per item.
func TestAllItemsOfDeadHoldersAreClaimableAfterOneTTL(t *testing.T) {
	f := newFixture(t)
	f.claimMany(f.open(), 32)
	again := f.open()
	f.clock.set(20)
	expired, err := again.Expired(bg, 0)
	f.must(err)
	if len(expired) != 32 {
		t.Fatalf("%d of 32 are expired", len(expired))
	}
	for _, r := range expired {
		if tok := f.claim(again, r.ID, "b"); tok.Fence != 2 {
			t.Errorf("fence %d", tok.Fence)
		}
	}
}

// GC-8: the number of barriers is that of the touched shards, whatever the number of records; K <= min(N, shards).
func TestBarriersAreTouchedShards(t *testing.T) {
	for _, shards := range []int{1, 16, 256} {
		for _, n := range []int{1, 8, 64} {
			t.Run(fmt.Sprintf("%d records, %d shards", n, shards), func(t *testing.T) {
				f := newFixture(t)
				f.opts.Shards = shards
				table := f.open()
				held, touched := map[ID]Token{}, []int{}
				for i := range n {
					held[itemID(i)] = f.claim(table, itemID(i), "a")
					touched = append(touched, itemID(i).shard(shards))
				}
				slices.Sort(touched)
				touched = slices.Compact(touched)
				f.trace.Reset()
				b, err := table.HeartbeatMany(bg, held)
				f.must(err)
				if got := f.trace.Counts(); b.DirectorySyncs != len(touched) || got.DirSyncs != len(touched) || got.FileSyncs != n {
					t.Errorf("%d barriers, the file system saw %d and %d content syncs; want %d and %d", b.DirectorySyncs, got.DirSyncs, got.FileSyncs, len(touched), n)
				}
			})
		}
	}
}
