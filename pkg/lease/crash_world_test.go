package lease

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
)

const (
	crashLimit  = 1000 // states of one moment and policy; a larger set is sampled
	secondLimit = 2    // the same for the second power cut, during recovery
	crashRoot   = "/epoch/work"
	crashOut    = "/out"
)

// view is a state that a record may be in after a power cut. r is nil if there is no record.
type view struct {
	what string
	is   func(r *Record) bool
}

var noRecord = view{"no record", func(r *Record) bool { return r == nil }}

// holding is a record with this token and status, not updated before the given time.
func holding(status Status, tok Token, updated time.Time) view {
	return view{fmt.Sprintf("%s under fence %d since %v", status, tok.Fence, updated.Unix()), func(r *Record) bool {
		return r != nil && r.Status == status && r.Token == tok && !r.Updated.Before(updated)
	}}
}

// claimedBy is a lease whose token is not known yet.
func claimedBy(owner string, fence uint64) view {
	return view{fmt.Sprintf("claimed by %s under fence %d", owner, fence), func(r *Record) bool {
		return r != nil && r.Status == Leased && r.Holder.Owner == owner && r.Token.Fence == fence
	}}
}

// crashWorld is a table with what its users were told about it.
type crashWorld struct {
	fsys     vfs.FS
	clock    *clock
	acked    func(string)
	renewals Renewals // of who works; who checks and who goes on renews strictly

	opened bool // somebody was told so
	steps  int  // changes of the promises
	views  map[ID][]view
	fences map[ID]uint64 // the highest that was given to anybody
	tokens map[ID]Token  // of the last claim
}

func newCrashWorld() *crashWorld {
	w := &crashWorld{clock: at(1000), views: map[ID][]view{}, fences: map[ID]uint64{}, tokens: map[ID]Token{}}
	for _, id := range crashIDs {
		w.views[id] = []view{noRecord}
	}
	return w
}

// crashIDs are two records of one shard and one of the other.
var crashIDs = []ID{firstOfShard0, secondOfShard0, onlyOfShard1}

// on is a copy of the world on another file system: what was promised, and the time, are the same.
func (w *crashWorld) on(fsys vfs.FS, acked func(string)) *crashWorld {
	c := *w
	c.fsys, c.acked, c.clock = fsys, acked, &clock{}
	c.clock.ns.Store(w.clock.ns.Load())
	c.views, c.fences, c.tokens = maps.Clone(w.views), maps.Clone(w.fences), maps.Clone(w.tokens)
	return &c
}

func (w *crashWorld) options(fsys vfs.FS) *Options {
	return &Options{Shards: 2, TTL: 10 * time.Second, LockTimeout: time.Second, Now: w.clock.now, FS: fsys}
}

func (w *crashWorld) open() (*Table, error) {
	o := w.options(w.fsys)
	o.Renewals = w.renewals
	t, err := Open(crashRoot, o)
	if err == nil && !w.opened {
		w.opened = true
		w.steps++
		w.acked("Open")
	}
	return t, err
}

// do runs an operation on one record that makes next possible, and true for good once it is acknowledged.
func (w *crashWorld) do(what string, id ID, next view, op func() error) error {
	w.steps++
	w.views[id] = append(slices.Clip(w.views[id]), next)
	err := op()
	if err == nil {
		w.steps++
		w.views[id] = []view{next}
		w.acked(what)
	}
	return err
}

func (w *crashWorld) claim(t *Table, id ID, owner string, fence uint64) error {
	return w.do("Claim", id, claimedBy(owner, fence), func() error {
		tok, err := t.Claim(bg, id, json.RawMessage(`{"n":1}`), Holder{Owner: owner})
		if err != nil {
			return err
		}
		if tok.Fence <= w.fences[id] {
			return fmt.Errorf("fence %d was given out twice", tok.Fence)
		}
		w.tokens[id], w.fences[id] = tok, tok.Fence
		return nil
	})
}

func manifestOf(id ID) json.RawMessage { return json.RawMessage(`{"out":"` + id.String()[:8] + `"}`) }

func outOf(manifest json.RawMessage) string {
	var m struct{ Out string }
	if err := json.Unmarshal(manifest, &m); err != nil {
		return "bad manifest"
	}
	return crashOut + "/" + m.Out
}

func (w *crashWorld) begin(t *Table, id ID) error {
	return w.do("BeginCommit", id, holding(Committing, w.tokens[id], time.Time{}), func() error {
		return t.BeginCommit(bg, id, w.tokens[id], manifestOf(id))
	})
}

func (w *crashWorld) complete(t *Table, id ID) error {
	return w.do("Complete", id, holding(Done, w.tokens[id], time.Time{}), func() error {
		_, err := t.Complete(bg, id, w.tokens[id], func(_ context.Context, manifest json.RawMessage) error {
			return groupcommit.WriteFile(w.fsys, outOf(manifest), manifest, 0o666)
		})
		return err
	})
}

func (w *crashWorld) abandon(t *Table, id ID) error {
	return w.do("Abandon", id, holding(Abandoned, w.tokens[id], time.Time{}), func() error {
		return t.Abandon(bg, id, w.tokens[id])
	})
}

// heartbeat renews all leases, and believes exactly what it is told about each.
func (w *crashWorld) heartbeat(t *Table) error {
	now := w.clock.now()
	if w.renewals == OneFlush {
		now = time.Time{} // the record itself does not tell; TestNoPowerCutTakesBackAPromisedBeat has the beats
	}
	w.steps++
	for id, tok := range w.tokens {
		w.views[id] = append(slices.Clip(w.views[id]), holding(Leased, tok, now))
	}
	b, err := t.HeartbeatMany(bg, w.tokens)
	durable := b.Renewed
	var be *BatchError
	if errors.As(err, &be) {
		durable = be.Durable
	}
	for _, id := range durable {
		w.views[id] = []view{holding(Leased, w.tokens[id], now)}
	}
	w.steps++
	w.acked("HeartbeatMany")
	return err
}

// check opens the table on what a power cut has left, and compares it with what was promised.
func (w *crashWorld) check(crashed *crashfs.FS) error {
	if _, err := crashed.Lstat(crashRoot + "/" + layoutFile); w.opened && err != nil {
		return fmt.Errorf("Open was acknowledged, and the layout is gone: %w", err)
	}
	t, err := Open(crashRoot, w.options(crashed))
	if err != nil {
		return err
	}
	for _, id := range crashIDs {
		r, err := t.Lookup(id)
		found := &r
		if errors.Is(err, fs.ErrNotExist) {
			found, err = nil, nil
		}
		if err != nil {
			return err
		}
		if err := w.checkRecord(crashed, id, found); err != nil {
			return err
		}
	}
	return nil
}

func (w *crashWorld) checkRecord(crashed *crashfs.FS, id ID, r *Record) error {
	if !slices.ContainsFunc(w.views[id], func(v view) bool { return v.is(r) }) {
		var want []string
		for _, v := range w.views[id] {
			want = append(want, v.what)
		}
		return fmt.Errorf("record %.8s is %s, want one of %q", id, describeRecord(r), want)
	}
	if r == nil {
		return nil
	}
	if r.Token.Fence < w.fences[id] {
		return fmt.Errorf("record %.8s went back to fence %d from %d", id, r.Token.Fence, w.fences[id])
	}
	if committed := r.Status == Committing || r.Status == Done; committed && !bytes.Equal(r.Manifest, manifestOf(id)) {
		return fmt.Errorf("record %.8s has the manifest %s", id, r.Manifest)
	}
	if r.Status == Done {
		if out, err := vfs.ReadFile(crashed, outOf(r.Manifest), 1<<10); err != nil || !bytes.Equal(out, r.Manifest) {
			return fmt.Errorf("record %.8s is done and its result is %q, %v", id, out, err)
		}
	}
	return nil
}

func describeRecord(r *Record) string {
	if r == nil {
		return "absent"
	}
	return fmt.Sprintf("%s by %s under fence %d since %v", r.Status, r.Holder.Owner, r.Token.Fence, r.Updated.Unix())
}

// goOn is what the next process does with a table: it claims what it can, completes what was begun, and respects the rest
// until it lapses.
func (w *crashWorld) goOn() error {
	w.renewals = Strict
	t, err := w.open()
	if err != nil {
		return err
	}
	for _, id := range crashIDs {
		r, err := t.Lookup(id)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = w.claim(t, id, "next", 1)
		case err != nil:
		case r.Status == Done:
			err = wantRefusal(t, id, ErrDone)
		case r.Status == Committing:
			w.tokens[id] = r.Token // whoever finds it completes it
			err = errors.Join(wantRefusal(t, id, ErrCommitting), w.complete(t, id))
		case r.Status == Leased && !r.Lapsed(w.clock.now(), r.TTL):
			err = wantRefusal(t, id, ErrHeld)
			w.clock.add(r.TTL) // no renewal was later than now
			fallthrough
		default:
			err = errors.Join(err, w.claim(t, id, "next", r.Token.Fence+1))
		}
		if err != nil {
			return fmt.Errorf("going on with %.8s: %w", id, err)
		}
	}
	c, err := t.Counts(bg)
	if n := c.Leased + c.Committing + c.Done + c.Abandoned; err != nil || c.Corrupt != 0 || n != len(crashIDs) {
		return fmt.Errorf("counts %+v, %v", c, err)
	}
	return nil
}

func wantRefusal(t *Table, id ID, want error) error {
	if _, err := t.Claim(bg, id, nil, Holder{Owner: "thief"}); !errors.Is(err, want) {
		return fmt.Errorf("claim of %.8s: %v, want %v", id, err, want)
	}
	return nil
}

// tree is all that a file system holds.
func tree(fsys vfs.FS, dir string) string {
	list, err := fsys.ReadDir(dir)
	text := fmt.Sprint(err)
	for _, e := range list {
		name := dir + "/" + e.Name()
		if e.IsDir() {
			text += name + "{" + tree(fsys, name) + "}"
			continue
		}
		data, err := vfs.ReadFile(fsys, name, 1<<20)
		text += fmt.Sprint(name, "=", string(data), err)
	}
	return text
}

// sweepCase cuts the power everywhere in work, lets the next process go on in each state, and cuts the power everywhere
// in that too. Nobody goes on twice from the same state with the same promises.
func sweepCase(f *crashfs.FS, w *crashWorld, work func(w *crashWorld) error, first, second *crashfs.Sweep) error {
	var workErr error
	live, seen := w.on(nil, nil), map[string]bool{}
	err := first.Run(f, func(fsys vfs.FS, acked func(string)) {
		live.fsys, live.acked = fsys, acked
		workErr = work(live)
	}, func(crashed *crashfs.FS) error {
		if err := live.check(crashed.Clone()); err != nil || second == nil {
			return err
		}
		state := fmt.Sprint(live.steps, tree(crashed, "/"))
		if seen[state] {
			return nil
		}
		seen[state] = true
		next := live.on(nil, nil)
		var nextErr error
		err := second.Run(crashed, func(fsys vfs.FS, acked func(string)) {
			next.fsys, next.acked = fsys, acked
			nextErr = next.goOn()
		}, func(again *crashfs.FS) error { return next.check(again) })
		return errors.Join(err, nextErr)
	})
	return errors.Join(err, workErr)
}
