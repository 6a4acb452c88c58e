package lease

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
)

// modelRecord is all that the trivial model knows of one item.
type modelRecord struct {
	status    Status
	tok       Token
	updated   time.Time
	ttl       time.Duration
	published int // by the holders, outside of the table
}

func (r *modelRecord) state(tok Token, now time.Time, skew time.Duration) state {
	age := now.Sub(r.updated)
	return state{r.status, r.status != "" && r.tok == tok, r.status == Leased && (age >= r.ttl || age < -skew)}
}

// world is the system under test, the model of it, and a few holders with what they believe.
type world struct {
	*rapid.T
	root   string
	clock  *clock
	fault  *faultfs.FS
	tables []*Table // one for each holder
	items  []ID
	model  map[ID]*modelRecord
	tokens []map[ID]Token // last token of each holder, perhaps stale
}

const modelSkew = 5 * time.Second

func newWorld(t *rapid.T, root string) *world {
	w := &world{T: t, root: root, clock: at(1000), fault: faultfs.New(withoutSyncs(vfs.OS)), model: map[ID]*modelRecord{}}
	for n := range 5 {
		w.items = append(w.items, itemID(n))
		w.model[itemID(n)] = &modelRecord{}
	}
	for holder := range 3 {
		w.tables = append(w.tables, nil)
		w.tokens = append(w.tokens, map[ID]Token{})
		w.reopen(holder)
	}
	return w
}

// reopen is the crash of a holder, which forgets nothing on disk; its TTL is its own.
func (w *world) reopen(holder int) {
	table, err := Open(w.root, &Options{Shards: 2, TTL: time.Duration(4+3*holder) * time.Second, MaxSkew: modelSkew, Now: w.clock.now, FS: w.fault})
	if err != nil {
		w.Fatal(err)
	}
	w.tables[holder] = table
}

func (w *world) holder() int { return rapid.IntRange(0, len(w.tables)-1).Draw(w.T, "holder") }
func (w *world) item() ID    { return rapid.SampledFrom(w.items).Draw(w.T, "item") }

// token is the holder's own, or the record's (a finder's), or wrong.
func (w *world) token(holder int, id ID) Token {
	switch rapid.IntRange(0, 9).Draw(w.T, "token") {
	case 0:
		return Token{Fence: w.model[id].tok.Fence, Nonce: [16]byte{1}}
	case 1:
		return w.model[id].tok
	}
	return w.tokens[holder][id]
}

// maybeFault lets one operation of the next call fail now and then.
func (w *world) maybeFault() {
	if rapid.IntRange(0, 3).Draw(w.T, "fault") > 0 {
		return
	}
	w.fault.Inject(faultfs.Rule{
		Op:    rapid.SampledFrom([]vfs.Op{vfs.OpLock, vfs.OpOpen, vfs.OpRead, vfs.OpWrite, vfs.OpSync, vfs.OpRename, vfs.OpSyncDir}).Draw(w.T, "op"),
		Nth:   rapid.IntRange(1, 3).Draw(w.T, "nth"),
		After: rapid.Bool().Draw(w.T, "after"),
		Err:   syscall.EIO,
	})
}

// settle compares the outcome of a call on one record with what the model says, and returns whether the record changed.
func (w *world) settle(id ID, s state, op Op, err error) bool {
	w.Helper()
	injected := w.fault.Injected() > 0
	w.fault.Clear()
	_, want := wantNext(s, op)
	if !injected || !errors.Is(err, syscall.EIO) {
		if !errors.Is(err, want) || want == nil && err != nil {
			w.Fatalf("%s of %s in %+v: %v, want %v", op, id, s, err, want)
		}
		return want == nil
	}
	if errors.Is(err, ErrLost) || errors.Is(err, ErrCorrupt) {
		w.Fatalf("an I/O error was taken for %v", err)
	}
	if want != nil && errors.Is(err, groupcommit.ErrUnknown) {
		w.Fatalf("%s of %s in %+v must not write: %v", op, id, s, err)
	}
	return errors.Is(err, groupcommit.ErrUnknown)
}

func (w *world) claim(op Op) {
	h, id := w.holder(), w.item()
	m := w.model[id]
	s := m.state(Token{}, w.clock.now(), modelSkew)
	w.maybeFault()
	call := w.tables[h].Claim
	if op == OpTakeOver {
		call = w.tables[h].TakeOver
	}
	tok, err := call(context.Background(), id, nil, Holder{Worker: h})
	if !w.settle(id, s, op, err) {
		return
	}
	r, lookErr := w.tables[h].Lookup(id)
	if lookErr != nil || r.Token.Fence != m.tok.Fence+1 || r.Token.Nonce == m.tok.Nonce || err == nil && r.Token != tok || err != nil && tok != (Token{}) {
		w.Fatalf("claimed with %v after %v, record %+v, %v", tok, m.tok, r, lookErr)
	}
	*m = modelRecord{status: Leased, tok: r.Token, updated: w.clock.now(), ttl: w.tables[h].TTL(), published: m.published}
	if err == nil {
		w.tokens[h][id] = tok
	}
}

func (w *world) one(op Op) {
	h, id := w.holder(), w.item()
	m, tok := w.model[id], w.token(h, id)
	s := m.state(tok, w.clock.now(), modelSkew)
	w.maybeFault()
	table, published, err := w.tables[h], 0, error(nil)
	switch op {
	case OpBeginCommit:
		err = table.BeginCommit(bg, id, tok, payload(`{"m":1}`))
	case OpComplete:
		_, err = table.Complete(bg, id, tok, func(context.Context, jsonRaw) error { published++; return nil })
	case OpAbandon:
		err = table.Abandon(bg, id, tok)
	}
	if published > 0 && (s.status != Committing || !s.held) {
		w.Fatalf("published in %+v", s)
	}
	m.published += published
	if !w.settle(id, s, op, err) {
		return
	}
	m.status, _ = wantNext(s, op)
	if op == OpBeginCommit && w.clock.now().After(m.updated) {
		m.updated = w.clock.now()
	}
}

func (w *world) heartbeats() {
	h := w.holder()
	held := map[ID]Token{}
	for _, id := range rapid.SliceOfNDistinct(rapid.SampledFrom(w.items), 0, len(w.items), rapid.ID[ID]).Draw(w.T, "set") {
		held[id] = w.token(h, id)
	}
	w.maybeFault()
	b, err := w.tables[h].HeartbeatMany(bg, held)
	injected := w.fault.Injected() > 0
	w.fault.Clear()
	now := w.clock.now()
	var be *BatchError
	if err != nil && (!errors.As(err, &be) || !injected || b.Renewed != nil) {
		w.Fatalf("%+v, %v", b, err)
	}
	if be == nil {
		be = &BatchError{Durable: b.Renewed, Lost: b.Lost}
	}
	seen := 0
	for id, tok := range held {
		m := w.model[id]
		s := m.state(tok, now, modelSkew)
		_, want := wantNext(s, OpHeartbeat)
		renewed := slices.Contains(be.Durable, id) || slices.Contains(be.Unknown, id)
		cause, failed := be.Failed[id]
		switch {
		case failed && !errors.Is(cause, syscall.EIO), renewed && want != nil, slices.Contains(be.Lost, id) && want == nil:
			w.Fatalf("%s in %+v: %+v, failure %v", id, s, be, cause)
		case (renewed || errors.Is(cause, groupcommit.ErrUnknown)) && now.After(m.updated):
			m.updated = now
		}
		if renewed || failed || slices.Contains(be.Lost, id) {
			seen++
		}
	}
	if seen != len(held) || seen != len(be.Failed)+len(be.Durable)+len(be.Unknown)+len(be.Lost) {
		w.Fatalf("%d of %d are in one list: %+v", seen, len(held), be)
	}
}

// check compares every record on disk with the model.
func (w *world) check() {
	table := w.tables[0]
	for id, m := range w.model {
		r, err := table.Lookup(id)
		if m.status == "" {
			if !errors.Is(err, os.ErrNotExist) {
				w.Fatalf("%s should not exist: %+v, %v", id, r, err)
			}
			continue
		}
		if err != nil || r.Status != m.status || r.Token != m.tok || !r.Updated.Equal(m.updated) || r.TTL != m.ttl {
			w.Fatalf("%s is %+v, %v, want %+v", id, r, err, m)
		}
		if m.status == Done && m.published == 0 {
			w.Fatalf("%s is done but was never published", id)
		}
	}
	counts, err := table.Counts(bg)
	total := counts.Leased + counts.Committing + counts.Done + counts.Abandoned
	want := len(slices.DeleteFunc(slices.Collect(maps.Values(w.model)), func(m *modelRecord) bool { return m.status == "" }))
	if err != nil || total != want || counts.Corrupt > 0 {
		w.Fatalf("counts %+v, %v, want %d in all", counts, err, want)
	}
}

// Three holders with their own TTLs, a clock that jumps both ways, crashes, stale tokens and I/O errors, against a model that is a few lines of
// wantNext. A failure prints the seed that replays it.
func TestTableBehavesLikeTheModel(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		root, err := os.MkdirTemp(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, filepath.Join(root, "root"))
		t.Repeat(map[string]func(*rapid.T){
			"claim":     func(t *rapid.T) { w.T = t; w.claim(OpClaim) },
			"take over": func(t *rapid.T) { w.T = t; w.claim(OpTakeOver) },
			"begin":     func(t *rapid.T) { w.T = t; w.one(OpBeginCommit) },
			"complete":  func(t *rapid.T) { w.T = t; w.one(OpComplete) },
			"abandon":   func(t *rapid.T) { w.T = t; w.one(OpAbandon) },
			"heartbeat": func(t *rapid.T) { w.T = t; w.heartbeats() },
			"crash":     func(t *rapid.T) { w.T = t; w.reopen(w.holder()) },
			"clock":     func(t *rapid.T) { w.clock.add(time.Duration(rapid.IntRange(-7, 12).Draw(t, "seconds")) * time.Second) },
			"":          func(t *rapid.T) { w.T = t; w.check() },
		})
		checkRoot(t, w.root)
		os.RemoveAll(root)
	})
}
