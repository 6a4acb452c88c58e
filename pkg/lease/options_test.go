package lease

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"testing/iotest"

	"shardlease/pkg/groupcommit/vfs/crashfs"
)

func TestTablesWithTheSameRandomSourceWriteTheSameBytes(t *testing.T) {
	write := func(seed byte, renewals Renewals) string {
		fsys, clock := crashfs.New(), at(10)
		table, err := Open("/root", &Options{Shards: 4, Renewals: renewals, Rand: rand.NewChaCha8([32]byte{seed}), Now: clock.now, FS: fsys})
		if err != nil {
			t.Fatal(err)
		}
		defer table.Close()
		held := map[ID]Token{}
		for i := range 3 {
			if held[itemID(i)], err = table.Claim(bg, itemID(i), nil, Holder{Owner: "a"}); err != nil {
				t.Fatal(err)
			}
		}
		clock.add(table.TTL() / 3)
		if _, err := table.HeartbeatMany(bg, held); err != nil {
			t.Fatal(err)
		}
		return tree(fsys, "/root")
	}
	for _, renewals := range []Renewals{Strict, OneFlush} {
		if a, b := write(1, renewals), write(1, renewals); a != b {
			t.Errorf("renewals %v: two tables with seed 1 differ:\n%s\n%s", renewals, a, b)
		}
		if write(1, renewals) == write(2, renewals) {
			t.Errorf("renewals %v: seeds 1 and 2 give the same bytes: nothing is drawn from the source", renewals)
		}
	}
}

func TestAFailingRandomSourceClaimsNothing(t *testing.T) {
	f := newFixture(t)
	broken := errors.New("broken source")
	f.opts.Rand = bytes.NewReader(make([]byte, 8)) // enough for the owner's name
	table := f.open()
	table.s.opts.Rand = iotest.ErrReader(broken)
	_, err := table.Claim(bg, firstOfShard0, nil, Holder{})
	f.want(err, broken)
	if _, err := f.fault.Lstat(filepath.Join(f.root, "000", firstOfShard0.String()+".json")); err == nil {
		t.Error("a record was written without a nonce")
	}
	f.opts.Rand = iotest.ErrReader(broken)
	if _, err := Open(f.root, &f.opts); !errors.Is(err, broken) {
		t.Errorf("Open: %v", err)
	}
}
