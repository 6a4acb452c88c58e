package diagrams

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
	"shardlease/pkg/groupcommit/vfs/tracefs"
	"shardlease/pkg/lease"
)

// Event is one recorded operation, reduced to what is drawn.
type Event struct {
	Op     vfs.Op `json:"op"`
	Record int    `json:"record,omitempty"` // from 1, in the order of the batch
	Shard  int    `json:"shard"`
	Failed bool   `json:"failed,omitempty"`
	Text   string `json:"text,omitempty"` // of a mark: what the caller was told
}

// Trace is one scenario. Records of a trace are those of every other.
type Trace struct {
	Title  string  `json:"title"`
	Shards []int   `json:"shards"` // of record 1, 2, ...
	Events []Event `json:"events"`
}

// ids are three records of two shards out of four, in the order of a batch.
var ids = []string{"00000000" + strings.Repeat("a", 56), "00000004" + strings.Repeat("b", 56), "00000001" + strings.Repeat("c", 56)}

const shards = 4

// Marks of a trace: what the caller was told.
const (
	acknowledged = "acknowledged"
	refused      = "error returned"
)

// Record renews three leases on the real file system below dir: one by one, as a batch, and as a batch in which one write fails.
func Record(ctx context.Context, dir string) ([]Trace, error) {
	oneByOne := func(t *lease.Table, held map[lease.ID]lease.Token, mark func(error)) error {
		for _, text := range ids {
			id, err := lease.ParseID(text)
			if err != nil {
				return err
			}
			err = t.Heartbeat(ctx, id, held[id])
			mark(err)
			if err != nil {
				return err
			}
		}
		return nil
	}
	batch := func(t *lease.Table, held map[lease.ID]lease.Token, mark func(error)) error {
		_, err := t.HeartbeatMany(ctx, held)
		mark(err)
		return err
	}
	failing := func(t *lease.Table, held map[lease.ID]lease.Token, mark func(error)) error {
		if err := batch(t, held, mark); !errors.Is(err, syscall.EIO) {
			return fmt.Errorf("the injected error did not surface: %v", err)
		}
		return nil
	}
	var all []Trace
	for i, sc := range []struct {
		title string
		fault *faultfs.Rule
		renew func(*lease.Table, map[lease.ID]lease.Token, func(error)) error
	}{
		{"one by one: a barrier for every record", nil, oneByOne},
		{"as a batch: a barrier for every shard", nil, batch},
		{"as a batch, and one write fails: the barriers still run", &faultfs.Rule{Op: vfs.OpWrite, Base: ids[1] + "*", Err: syscall.EIO}, failing},
	} {
		events, err := scenario(ctx, filepath.Join(dir, strconv.Itoa(i)), sc.fault, sc.renew)
		if err != nil {
			return nil, fmt.Errorf("recording %q: %w", sc.title, err)
		}
		t, err := reduce(sc.title, events)
		if err != nil {
			return nil, fmt.Errorf("recording %q: %w", sc.title, err)
		}
		all = append(all, t)
	}
	return all, nil
}

// scenario claims the records, then records a renewal. The trace lies above the faults, so that it has the failed operations too.
func scenario(ctx context.Context, root string, rule *faultfs.Rule, renew func(*lease.Table, map[lease.ID]lease.Token, func(error)) error) ([]tracefs.Event, error) {
	faults := faultfs.New(vfs.OS)
	trace := tracefs.New(faults, root)
	clock := time.Unix(10, 0)
	t, err := lease.Open(root, &lease.Options{Shards: shards, TTL: time.Hour, FS: trace, Now: func() time.Time { return clock }})
	if err != nil {
		return nil, err
	}
	held := map[lease.ID]lease.Token{}
	for _, text := range ids {
		id, err := lease.ParseID(text)
		if err != nil {
			return nil, err
		}
		if held[id], err = t.Claim(ctx, id, nil, lease.Holder{Owner: "diagram"}); err != nil {
			return nil, err
		}
	}
	clock = clock.Add(time.Second)
	trace.Reset()
	if rule != nil {
		faults.Inject(*rule)
	}
	err = renew(t, held, func(err error) {
		if err != nil {
			trace.Mark(refused)
		} else {
			trace.Mark(acknowledged)
		}
	})
	events := trace.Events()
	return events, errors.Join(err, t.Close())
}

// drawn are the operations that the drawing shows; the others (opening, reading, closing) are left out.
var drawn = map[vfs.Op]bool{
	vfs.OpLock: true, vfs.OpUnlock: true, vfs.OpWrite: true, vfs.OpSync: true, vfs.OpRename: true, vfs.OpSyncDir: true, tracefs.OpMark: true,
}

// reduce keeps what is drawn, and replaces names by numbers. A lock's name says only its shard; it belongs to the record that is worked on
// next.
func reduce(title string, events []tracefs.Event) (Trace, error) {
	t := Trace{Title: title}
	for _, id := range ids {
		parsed, err := lease.ParseID(id)
		if err != nil {
			return t, err
		}
		t.Shards = append(t.Shards, int(uint32(parsed[0])<<24|uint32(parsed[1])<<16|uint32(parsed[2])<<8|uint32(parsed[3]))%shards)
	}
	record := func(e tracefs.Event) int {
		for i, id := range ids {
			if strings.HasPrefix(filepath.Base(e.Name), id) {
				return i + 1
			}
		}
		return 0
	}
	current := 0
	for i, e := range events {
		if r := record(e); r != 0 {
			current = r
		}
		if !drawn[e.Op] {
			continue
		}
		d := Event{Op: e.Op, Record: record(e), Failed: e.Err != nil}
		switch e.Op {
		case tracefs.OpMark:
			d.Text = e.Name
		case vfs.OpSyncDir:
			n, err := strconv.Atoi(filepath.Base(e.Name))
			if err != nil {
				return t, fmt.Errorf("directory %s is no shard", e.Name)
			}
			d.Shard = n
		case vfs.OpLock:
			for _, next := range events[i:] {
				if d.Record = record(next); d.Record != 0 {
					break
				}
			}
		case vfs.OpUnlock:
			d.Record = current
		}
		if d.Record != 0 {
			d.Shard = t.Shards[d.Record-1]
		}
		t.Events = append(t.Events, d)
	}
	return t, nil
}
