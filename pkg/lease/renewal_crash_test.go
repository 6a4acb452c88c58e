package lease

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
)

// Power cuts at every operation of a session: whatever instant its holder was told last, no claim before that instant plus the TTL may
// succeed afterwards; and once the promise has lapsed, one must.
func TestNoPowerCutTakesBackAPromisedBeat(t *testing.T) {
	const root = "/root"
	ttl := 10 * time.Second
	clock := at(10)
	var told map[ID]float64 // the instant last acknowledged
	work := func(fsys vfs.FS, acked func(string)) {
		table, err := Open(root, &Options{Shards: 2, TTL: ttl, Now: clock.now, FS: fsys, Renewals: OneFlush})
		if err != nil {
			t.Fatal(err)
		}
		defer table.Close()
		held := map[ID]Token{}
		for i := range 3 {
			tok, err := table.Claim(bg, itemID(i), nil, Holder{Owner: "holder"})
			if err != nil {
				t.Fatal(err)
			}
			held[itemID(i)] = tok
			told[itemID(i)] = 10
			acked("claim")
		}
		beat := func(second float64) {
			clock.set(second)
			batch, err := table.HeartbeatMany(bg, held)
			if err != nil || len(batch.Renewed) != len(held) {
				t.Fatalf("beat: %+v, %v", batch, err)
			}
			for id := range held {
				told[id] = second
			}
			acked(fmt.Sprintf("beat at %v", second))
		}
		beat(11)
		beat(12)
		delete(held, itemID(1)) // keeps what it was promised
		beat(13)
		beat(14)
	}
	check := func(crashed *crashfs.FS) error {
		now := at(0)
		if _, err := crashed.Lstat(root + "/" + layoutFile); err != nil {
			return nil // cut while the root was made: nothing was acknowledged, or the strict tests would fail
		}
		table, err := Open(root, &Options{TTL: ttl, Now: now.now, FS: crashed})
		if err != nil {
			return err
		}
		defer table.Close()
		for id, second := range told {
			now.set(second + ttl.Seconds() - 0.001)
			if _, err := table.Claim(bg, id, nil, Holder{Owner: "other"}); !errors.Is(err, ErrHeld) {
				return fmt.Errorf("%s was promised at %v, a claim before its end got %w", id, second, err)
			}
			now.set(14 + ttl.Seconds())
			if _, err := table.Claim(bg, id, nil, Holder{Owner: "other"}); err != nil {
				return fmt.Errorf("%s can't be claimed after all promises have lapsed: %w", id, err)
			}
		}
		return nil
	}
	run := func(broken func(vfs.FS) vfs.FS) (*crashfs.Sweep, error) {
		clock.set(10)
		told = map[ID]float64{}
		s := &crashfs.Sweep{Limit: 200, Seed: 1}
		return s, s.Run(crashfs.New(), func(fsys vfs.FS, acked func(string)) { work(broken(fsys), acked) }, check)
	}
	s, err := run(func(fsys vfs.FS) vfs.FS { return fsys })
	if err != nil {
		t.Fatal(err)
	}
	t.Log(s)
	// The same without the flush of a beat must be caught.
	if _, err := run(func(fsys vfs.FS) vfs.FS { return withoutDatasync(fsys) }); err == nil {
		t.Error("beats that were never flushed were not missed")
	}
}

func withoutDatasync(fsys vfs.FS) vfs.FS {
	return vfs.Intercept(fsys, func(c *vfs.Call, do func() error) error {
		if c.Op == vfs.OpDatasync {
			return nil
		}
		return do()
	})
}

func TestAReaderFallsBackToTheBeatBeforeWhenTheNewestIsTorn(t *testing.T) {
	session := sessionID{1}
	first, head := appendBeatFile(nil, session, 1, 100, []beatEntry{{id: itemID(1), fence: 1}}, firstCapacity)
	second := head
	second.seq, second.instant, second.area, second.count = 2, 200, 1, 1
	list := appendMembers(nil, []beatEntry{{id: itemID(2), fence: 1}})
	second.listSum = checksum(list)
	whole := append([]byte(nil), first...)
	copy(whole[slotSpacing:], appendSlot(nil, session, second))
	copy(whole[second.listAt():], list)

	fsys := crashfs.New()
	read := func(data []byte) (beats, error) {
		t.Helper()
		if err := groupcommit.WriteFile(fsys, "/beat", data, 0o600); err != nil {
			t.Fatal(err)
		}
		return readBeats(fsys, "/beat", session)
	}
	if b, err := read(whole); err != nil || b.slot.seq != 2 {
		t.Fatalf("whole: %+v, %v", b, err)
	}
	for _, area := range [][2]int64{{slotSpacing, slotBytes}, {second.listAt(), memberBytes}} {
		for i := range area[1] {
			torn := append([]byte(nil), whole...)
			torn[area[0]+i] ^= 0x55
			b, err := read(torn)
			if err != nil || b.slot.seq != 1 {
				t.Fatalf("byte %d of the newest beat: %+v, %v", area[0]+i, b, err)
			}
			if _, ok := b.last(itemID(1), 1); !ok {
				t.Fatal("the older list is not whole")
			}
		}
	}
	if _, err := readBeats(fsys, "/beat", sessionID{2}); !errors.Is(err, errUnreadableBeats) {
		t.Errorf("a file of another session: %v", err)
	}
}
