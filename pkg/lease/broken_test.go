package lease

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
	"shardlease/pkg/groupcommit/vfs/tracefs"
)

// breakage is one way in which one kind of operation fails. Errno 0 is a short write.
type breakage struct {
	errno syscall.Errno
	after bool // done all the same
}

// breakages are what disks and file systems answer, by operation: local ones (EIO, ENOSPC, EDQUOT, EROFS), network ones (ESTALE, an
// error of something that was done), interrupted calls, and file systems without directory syncs.
var breakages = map[vfs.Op][]breakage{
	vfs.OpOpen:   {{syscall.EIO, false}, {syscall.ENOSPC, false}, {syscall.EDQUOT, false}, {syscall.EROFS, false}, {syscall.ESTALE, false}, {syscall.EINTR, false}},
	vfs.OpRead:   {{syscall.EIO, false}, {syscall.ESTALE, false}},
	vfs.OpWrite:  {{syscall.EIO, false}, {syscall.ENOSPC, false}, {syscall.EDQUOT, true}, {0, false}},
	vfs.OpSync:   {{syscall.EIO, false}, {syscall.EIO, true}, {syscall.ENOSPC, false}, {syscall.EDQUOT, false}},
	vfs.OpClose:  {{syscall.EIO, true}, {syscall.EDQUOT, true}}, // of a file that was written
	vfs.OpRename: {{syscall.EIO, false}, {syscall.EIO, true}, {syscall.ENOENT, true}, {syscall.ENOSPC, false}, {syscall.EROFS, false}, {syscall.ESTALE, false}},
	vfs.OpLink:   {{syscall.EIO, false}, {syscall.EIO, true}, {syscall.ENOSPC, false}},
	vfs.OpMkdir:  {{syscall.EIO, false}, {syscall.EDQUOT, false}, {syscall.EROFS, false}},
	vfs.OpSyncDir: {{syscall.EIO, false}, {syscall.EIO, true}, {syscall.ENOSPC, false}, {syscall.EROFS, false}, {syscall.ESTALE, false},
		{syscall.EINVAL, false}, {syscall.ENOTSUP, false}},
	vfs.OpLstat:   {{syscall.EIO, false}, {syscall.ESTALE, false}},
	vfs.OpReadDir: {{syscall.EIO, false}, {syscall.ESTALE, false}},
	vfs.OpLock:    {{syscall.EIO, false}, {syscall.ENOLCK, false}, {syscall.EINTR, false}, {syscall.EROFS, false}},
}

// brokenWorld is a root on which one operation is about to be called while the disk fails.
type brokenWorld struct {
	*fixture
	table   *Table
	targets *TargetTable
	held    map[ID]Token
	group   Token
}

var brokenGroup = []uint64{1, 2, 3}

// brokenOperations is every operation that acknowledges something. Each may be repeated.
var brokenOperations = map[string]func(w *brokenWorld) error{
	"open":  func(w *brokenWorld) error { return second(Open(w.root, &w.opts)) },
	"claim": func(w *brokenWorld) error { return second(w.table.TakeOver(bg, onlyOfShard1, nil, Holder{Owner: "b"})) },
	"take-over": func(w *brokenWorld) error {
		return second(w.table.TakeOver(bg, firstOfShard0, nil, Holder{Owner: "b"}))
	},
	"heartbeat": func(w *brokenWorld) error { return w.table.Heartbeat(bg, firstOfShard0, w.held[firstOfShard0]) },
	"heartbeat-many": func(w *brokenWorld) error {
		b, err := w.table.HeartbeatMany(bg, w.held)
		if err != nil && (len(b.Renewed) > 0 || len(b.Lost) > 0 || b.DirectorySyncs > 0) {
			w.Errorf("an erring batch has a result: %+v", b)
		}
		return err
	},
	"begin-commit": func(w *brokenWorld) error {
		return w.table.BeginCommit(bg, firstOfShard0, w.held[firstOfShard0], payload("{}"))
	},
	"complete": func(w *brokenWorld) error {
		return second(w.table.Complete(bg, secondOfShard0, w.held[secondOfShard0], func(context.Context, jsonRaw) error { return nil }))
	},
	"abandon": func(w *brokenWorld) error { return w.table.Abandon(bg, firstOfShard0, w.held[firstOfShard0]) },
	"claim-group": func(w *brokenWorld) error {
		return second(w.targets.ClaimGroup(bg, []uint64{7, 8, 9}, nil, Holder{Owner: "a"}))
	},
	"heartbeat-group": func(w *brokenWorld) error { return w.targets.HeartbeatGroup(bg, brokenGroup, w.group) },
	"release-group":   func(w *brokenWorld) error { return w.targets.ReleaseGroup(bg, brokenGroup, w.group) },
}

func newBrokenWorld(t *testing.T, name string) *brokenWorld {
	w := &brokenWorld{fixture: newFixture(t), held: map[ID]Token{}}
	switch {
	case name == "open":
	case strings.HasSuffix(name, "group"):
		w.targets = w.openTargets()
		var err error
		w.group, err = w.targets.ClaimGroup(bg, brokenGroup, nil, Holder{Owner: "a"})
		w.must(err)
	default:
		w.table = w.open()
		w.held[firstOfShard0] = w.claim(w.table, firstOfShard0, "a")
		w.held[secondOfShard0] = w.claim(w.table, secondOfShard0, "a")
		if name == "complete" {
			w.must(w.table.BeginCommit(bg, secondOfShard0, w.held[secondOfShard0], payload("{}")))
		}
	}
	w.clock.set(12)
	w.trace.Reset()
	return w
}

// place is one operation of a run: the nth of its kind on its name.
type place struct {
	op   vfs.Op
	name string // relative to the root
	nth  int
}

func (w *brokenWorld) rel(name string) string {
	rel, err := filepath.Rel(w.root, name)
	w.must(err)
	return rel
}

// places lists those in the root; what is above it was there before.
func (w *brokenWorld) places() []place {
	seen := map[place]int{}
	var list []place
	for _, e := range w.trace.Events() {
		p := place{op: e.Op, name: w.rel(e.Name)}
		if strings.HasPrefix(p.name, "..") {
			continue
		}
		seen[p]++
		p.nth = seen[place{op: e.Op, name: p.name}]
		if e.Op == vfs.OpClose && !strings.HasSuffix(p.name, ".tmp") && !strings.HasSuffix(p.name, ".new") {
			continue // of a file that was only read: nothing depends on it
		}
		list = append(list, p)
	}
	return list
}

// Broken disks: for each operation of the package, each file-system operation in it, and each error that a disk answers there. Nothing is
// acknowledged, a failure is never a loss, the error is the disk's own and typed, a failed sync is not tried again, and the same table
// works again as soon as the disk does.
func TestEveryOperationOnABrokenDisk(t *testing.T) {
	total := 0
	for name, operation := range brokenOperations {
		t.Run(name, func(t *testing.T) {
			sound := newBrokenWorld(t, name)
			sound.must(operation(sound))
			for _, p := range sound.places() {
				for _, how := range breakages[p.op] {
					t.Run(fmt.Sprintf("%s-%s-%d-%v-after-%v", p.op, p.name, p.nth, how.errno, how.after), func(t *testing.T) {
						total++
						breakOnce(newBrokenWorld(t, name), operation, p, how)
					})
				}
			}
		})
	}
	if total < 300 {
		t.Errorf("only %d breakages were tried", total)
	}
}

func breakOnce(w *brokenWorld, operation func(*brokenWorld) error, p place, how breakage) {
	from := -1
	rule := faultfs.Rule{Op: p.op, Nth: p.nth, Match: func(c *vfs.Call) bool { return w.rel(c.Name) == p.name },
		Hook: func(*vfs.Call) { from = len(w.trace.Events()) }}
	want := error(how.errno)
	if how.errno == 0 {
		rule.Short, want = 1, io.ErrShortWrite
	} else {
		rule.Err, rule.After = how.errno, how.after
	}
	w.fault.Inject(rule)
	err := operation(w)
	injected := w.fault.Injected()
	w.fault.Clear()
	if injected != 1 {
		w.Fatalf("%d faults were injected", injected)
	}
	// Looking again is right, and settles it.
	stale := p.op == vfs.OpLstat || how.errno == syscall.ESTALE && (p.op == vfs.OpOpen || p.op == vfs.OpRead)
	raced := how.errno == syscall.ENOENT // a rename that lost its answer
	if !stale || err != nil {
		w.want(err, want)
	}
	for _, other := range []error{ErrLost, ErrHeld, ErrDone, ErrCommitting, ErrCorrupt, ErrLayout, ErrClock} {
		if errors.Is(err, other) {
			w.Errorf("a failure is reported as %v: %v", other, err)
		}
	}
	if errors.Is(err, fs.ErrNotExist) && !raced {
		w.Errorf("a failure is reported as an absence: %v", err)
	}
	unsupported := p.op == vfs.OpSyncDir && (how.errno == syscall.EINVAL || how.errno == syscall.ENOTSUP)
	if errors.Is(err, groupcommit.ErrNotDurable) != unsupported {
		w.Errorf("not durable here: %t, want %t: %v", !unsupported, unsupported, err)
	}
	if p.op == vfs.OpRename && how.after {
		w.want(err, groupcommit.ErrUnknown)
	}
	if how.after {
		from++ // the operation itself
	}
	noSecondSync(w, p, from)
	if err != nil {
		w.must(operation(w)) // the disk is well: no restart is needed
	}
}

// noSecondSync fails if what could not be synced is synced again as it is, or read back: only a new file, or a new change in the
// directory, is a reason for another sync there.
func noSecondSync(w *brokenWorld, p place, from int) {
	if p.op != vfs.OpSync && p.op != vfs.OpSyncDir {
		return
	}
	for _, e := range w.trace.Events()[from:] {
		name := w.rel(e.Name)
		switch {
		case p.op == vfs.OpSync && name == p.name && e.Op == vfs.OpOpen, p.op == vfs.OpSyncDir && changesIn(e, filepath.Join(w.root, p.name)):
			return
		case p.op == e.Op && name == p.name:
			w.Errorf("%s was tried again", p)
		case p.op == vfs.OpSync && name == p.name && (e.Op == vfs.OpRename || e.Op == vfs.OpRead):
			w.Errorf("after the failed %s came a %s of it", p, e.Op)
		}
	}
}

func (p place) String() string { return fmt.Sprintf("%s of %s", p.op, p.name) }

// changesIn says whether the event changes a name in the directory.
func changesIn(e tracefs.Event, dir string) bool {
	switch e.Op {
	case vfs.OpRename, vfs.OpLink, vfs.OpRemove, vfs.OpMkdir, vfs.OpExchange:
		return filepath.Dir(e.Name) == dir || e.NewName != "" && filepath.Dir(e.NewName) == dir
	}
	return false
}
