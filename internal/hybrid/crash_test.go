package hybrid

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"shardlease/internal/campaign"
	"shardlease/internal/hybrid/afl"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/lease"
)

// dead is what a coordinator named "dead" left behind: a lease on one input, with a TTL of its own.
type dead struct {
	table *lease.Table
	id    lease.ID
	tok   lease.Token
	sum   lease.ID
}

const seedPath = "main/queue/id:000000,orig:seed"

func (b *bench) die(o *Options, ttl time.Duration, seed, path string) dead {
	b.t.Helper()
	table, err := lease.Open(o.LeaseDir, &lease.Options{Shards: o.Shards, TTL: ttl})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = table.Close() })
	sum := lease.SumID([]byte(seed))
	id := itemID(afl.Sum(sum))
	it := item{Path: path, Schema: schemaItem, SHA256: sum.String(), Strategy: strategy}
	tok, err := table.Claim(b.t.Context(), id, encode(it), lease.Holder{Owner: "dead", Worker: 1})
	if err != nil {
		b.t.Fatal(err)
	}
	return dead{table, id, tok, sum}
}

func TestLeaseOfADeadCoordinatorIsTakenOverWhenItExpires(t *testing.T) {
	t.Parallel()
	b := newBench(t, "xxxxx")
	o := b.options("symcc")
	o.LeaseTTL = time.Second
	b.die(o, time.Second, "xxxxx", seedPath)
	s := b.start(o).wait(b, o, campaign.ExitOK)
	b.check(o)
	if s.Recovered != 1 || b.solver.runs["xxxxx"] != 1 || s.HeldElsewhere == 0 {
		t.Errorf("recovered %d, held elsewhere %d, runs %d", s.Recovered, s.HeldElsewhere, b.solver.runs["xxxxx"])
	}
}

// A coordinator whose workers are all busy when it would look for expired leases must look when the next one is free. The lease is on an
// input that only the dead one's own queue has: nothing but the record leads to it.
func TestBusyCoordinatorLooksForExpiredLeasesWhenAWorkerIsFree(t *testing.T) {
	b := newBench(t, "xxxxx", "yyyyy")
	path := filepath.Join("dead", "queue", "id:000000,op:symcc")
	if err := os.MkdirAll(filepath.Join(b.out, "dead", "queue"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.out, path), []byte("only here"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := b.options("symcc")
	var text console
	m := NewMaster(o, b.env(&text), 1)
	start := time.Now()
	step := func(at time.Duration, ev campaign.Event) { m.Step(t.Context(), start.Add(at), ev) }
	ready := func() campaign.Event {
		return campaign.Message{From: 1, Tag: campaign.TagReady, Data: encode(readyMsg{Schema: schemaReady, Rank: 1, Dispatch: m.workers[0].dispatch, Settings: o.fingerprint()})}
	}
	step(0, ready())
	b.die(o, 50*time.Millisecond, "only here", path)
	time.Sleep(60 * time.Millisecond) // the TTL of the dead one
	step(time.Hour, campaign.Tick{})  // all busy, long after everything was due
	step(time.Hour+time.Millisecond, campaign.Message{From: 1, Tag: campaign.TagResult,
		Data: encode(resultMsg{Schema: schemaResult, Dispatch: m.workers[0].dispatch, Outputs: []outputMsg{}})})
	step(time.Hour+2*time.Millisecond, ready())
	if job := m.workers[0].job; job == nil || !strings.HasSuffix(job.candidate.input.Path, path) {
		t.Errorf("the free worker got %+v\n%s", job, text.text())
	}
	if err := m.site.close(); err != nil {
		t.Fatal(err)
	}
}

func TestExpiredLeaseWhoseInputIsGoneIsGivenUp(t *testing.T) {
	t.Parallel()
	b := newBench(t, "yyyyy")
	o := b.options("symcc")
	o.MaxIdle, o.LeaseTTL = 1200*time.Millisecond, time.Second
	d := b.die(o, time.Second, "xxxxx", "main/queue/id:000007,orig:gone")
	time.Sleep(1100 * time.Millisecond) // its TTL
	j := b.start(o)
	s := j.wait(b, o, campaign.ExitOK)
	b.check(o)
	rec, err := d.table.Lookup(d.id)
	if err != nil || rec.Status != lease.Abandoned || s.Unrecoverable != 1 {
		t.Errorf("record %+v, %v; unrecoverable %d", rec, err, s.Unrecoverable)
	}
	contains(t, j.text.text(), "can't be recovered")
}

// A table that holds another kind of work, such as a standalone campaign's: its expired lease is reported and left as it is.
func TestExpiredLeaseOfAnotherKindIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t, "yyyyy")
	o := b.options("symcc")
	o.MaxIdle, o.LeaseTTL = 1200*time.Millisecond, time.Second
	table, err := lease.Open(o.LeaseDir, &lease.Options{Shards: o.Shards, TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	id := lease.SumID([]byte("other"))
	tok, err := table.Claim(t.Context(), id, []byte(`{"schema":"symcc-standalone-work-v1"}`), lease.Holder{Owner: "other"})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(1100 * time.Millisecond) // its TTL
	j := b.start(o)
	j.wait(b, o, campaign.ExitOK)
	contains(t, j.text.text(), "left alone")
	if rec, err := table.Lookup(id); err != nil || rec.Token != tok || rec.Status != lease.Leased {
		t.Errorf("record %+v, %v", rec, err)
	}
}

// A crash after BeginCommit, before and in the middle of publication: the next coordinator finishes the commit from the manifest, publishes
// each child once, and does not run the item again.
func TestCommitBegunByADeadCoordinatorIsFinished(t *testing.T) {
	t.Parallel()
	for published := range 3 {
		b := newBench(t, "xxxxx")
		o := b.options("symcc")
		d := b.die(o, time.Minute, "xxxxx", seedPath)
		stage := strings.Repeat("ab", 16)
		children := []child{}
		var staged []campaign.Output
		for _, content := range []string{"child one", "child two"} {
			staged = append(staged, campaign.Output{Data: []byte(content)})
			children = append(children, child{Kind: afl.Queue, SHA256: lease.SumID([]byte(content)).String()})
		}
		peer, err := afl.OpenPeer(b.fs, b.out, "dead")
		if err != nil {
			t.Fatal(err)
		}
		old := publisher{fsys: b.fs, out: b.out, peer: peer, name: "dead", limit: maxOutput, published: map[afl.Kind]int{}}
		if _, err := old.stages("dead").Write(1, stage, staged); err != nil {
			t.Fatal(err)
		}
		man := manifest{Children: children, Generated: 2, Peer: "dead", Rank: 1, Schema: schemaManifest, StagingID: stage}
		if err := d.table.BeginCommit(t.Context(), d.id, d.tok, encode(man)); err != nil {
			t.Fatal(err)
		}
		part := man
		part.Children = children[:published]
		if err := old.publish(t.Context(), encode(part)); err != nil {
			t.Fatal(err)
		}
		if err := peer.Close(); err != nil { // as the kernel does
			t.Fatal(err)
		}
		s := b.start(o).wait(b, o, campaign.ExitOK)
		b.check(o)
		if got := append(b.published("dead", afl.Queue), b.published("symcc", afl.Queue)...); count(got, "child one") != 1 || count(got, "child two") != 1 {
			t.Errorf("after %d of 2: published %q", published, got)
		}
		if s.Redone != 1 || b.solver.runs["xxxxx"] != 0 {
			t.Errorf("after %d of 2: redone %d, the item ran %d times", published, s.Redone, b.solver.runs["xxxxx"])
		}
		if rec, err := d.table.Lookup(d.id); err != nil || rec.Status != lease.Done {
			t.Errorf("after %d of 2: record %+v, %v", published, rec.Status, err)
		}
		if left, _ := filepath.Glob(filepath.Join(b.out, "dead", stagingDir, "*", "*")); len(left) > 0 {
			t.Errorf("stage left: %v", left)
		}
	}
}

func count(list []string, want string) (n int) {
	for _, s := range list {
		if s == want {
			n++
		}
	}
	return n
}

// Fencing: a lease that was taken away while the solver ran lets nothing of the result through.
func TestResultOfALostLeaseIsDropped(t *testing.T) {
	t.Parallel()
	b := newBench(t, "xxxxx")
	o := b.options("symcc")
	id := itemID(afl.Sum(lease.SumID([]byte("xxxxx"))))
	var stolen atomic.Bool
	b.solver.before = func(job campaign.Job, _ *campaign.Execution) {
		if job.ID != id || !stolen.CompareAndSwap(false, true) {
			return
		}
		table := b.table(o)
		tok, err := table.TakeOver(t.Context(), id, nil, lease.Holder{Owner: "thief"})
		if err == nil {
			err = table.BeginCommit(t.Context(), id, tok, encode(manifest{Children: []child{}, Peer: "thief", Schema: schemaManifest}))
		}
		if err == nil {
			_, err = table.Complete(t.Context(), id, tok, func(context.Context, json.RawMessage) error { return nil })
		}
		if err != nil {
			t.Error(err)
		}
	}
	j := b.start(o)
	s := j.wait(b, o, campaign.ExitOK)
	b.check(o)
	if s.Stale != 1 || len(b.published("symcc", afl.Queue)) != 0 || s.Completed != 0 || s.DoneElsewhere != 1 {
		t.Errorf("stale %d, completed %d, published %q", s.Stale, s.Completed, b.published("symcc", afl.Queue))
	}
	contains(t, j.text.text(), "dropped stale fenced result from worker")
}

// fullDisk refuses to create files, or to rename them, below the named directories.
type fullDisk struct {
	vfs.FS
	full           atomic.Bool
	create, rename string
}

func (d *fullDisk) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	if d.full.Load() && d.create != "" && flag&os.O_CREATE != 0 && strings.Contains(name, d.create) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOSPC}
	}
	return d.FS.OpenFile(name, flag, perm)
}

func (d *fullDisk) Rename(oldname, newname string) error {
	if d.full.Load() && d.rename != "" && strings.Contains(newname, d.rename) {
		return &os.LinkError{Op: "rename", Old: oldname, New: newname, Err: syscall.ENOSPC}
	}
	return d.FS.Rename(oldname, newname)
}

// A disk that is full for a while: where results are staged, where they are published (after the commit has begun), and where leases
// live. Nothing is lost, nothing is parked, and it goes on by itself when there is space.
func TestFullDiskLosesNothing(t *testing.T) {
	t.Parallel()
	cases := []struct{ name, create, rename string }{
		{name: "stage", create: stagingDir},
		{name: "publication", rename: "/symcc/queue/id:"},
		{name: "lease records", create: filepath.Join("leases", "work", "00")}, // in its shards; the root itself can't be opened on a full disk before it has a record
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, "xxxxx")
			disk := &fullDisk{FS: vfs.OS, create: c.create, rename: c.rename}
			b.fs = disk
			o := b.options("symcc")
			o.LeaseTTL = 2 * time.Second
			b.table(o)
			disk.full.Store(true)
			j := b.start(o)
			waitFor(t, "the trouble is told", func() bool { return strings.Contains(j.text.text(), "no space left on device") })
			disk.full.Store(false)
			s := j.wait(b, o, campaign.ExitOK)
			b.check(o)
			if got := len(b.published("symcc", afl.Queue)); got != len(secret) || s.Parked != 0 || s.StorageErrors+s.Redone == 0 {
				t.Errorf("published %d of %d, parked %d, storage errors %d, redone %d\n%s", got, len(secret), s.Parked, s.StorageErrors, s.Redone, j.text.text())
			}
		})
	}
}

// A disk that stays full: the begun commit can't be finished, so the exit code says that it is not over; the next coordinator finishes it.
func TestCommitThatCannotBeFinishedIsLeftForTheNextCoordinator(t *testing.T) {
	t.Parallel()
	b := newBench(t, "xxxxx")
	disk := &fullDisk{FS: vfs.OS, rename: "/symcc/queue/id:"}
	disk.full.Store(true)
	b.fs = disk
	o := b.options("symcc")
	j := b.start(o)
	waitFor(t, "the trouble is told", func() bool { return strings.Contains(j.text.text(), "no space left on device") })
	j.signals <- syscall.SIGINT
	s := j.wait(b, o, campaign.ExitIncomplete)
	if s.Unsettled != 1 || !strings.Contains(s.Reason, "the next coordinator") {
		t.Errorf("unsettled %d, reason %q", s.Unsettled, s.Reason)
	}
	disk.full.Store(false)
	s = b.start(o).wait(b, o, campaign.ExitOK)
	b.check(o)
	if s.Redone != 1 || len(b.published("symcc", afl.Queue)) != len(secret) {
		t.Errorf("redone %d, published %q", s.Redone, b.published("symcc", afl.Queue))
	}
}

// A result that is not what a worker of ours can have sent costs the worker its work, and the item goes back.
func TestForgedResultsAreRejected(t *testing.T) {
	b := newBench(t, "xxxxx")
	o := b.options("symcc")
	var text console
	m := NewMaster(o, b.env(&text), 1)
	step := func(msg campaign.Message) campaign.Actions { return m.Step(t.Context(), time.Now(), msg) }
	ready := campaign.Message{From: 1, Tag: campaign.TagReady, Data: encode(readyMsg{Schema: schemaReady, Rank: 1, Settings: o.fingerprint()})}
	work := step(ready).Send
	step(campaign.Message{From: 9, Tag: campaign.TagReady})
	if len(work) != 1 || work[0].Tag != campaign.TagWork || m.counters.Quarantined == 0 {
		t.Fatalf("sent %v, quarantined %d", work, m.counters.Quarantined)
	}
	sum := lease.SumID([]byte("forged")).String()
	forged := resultMsg{Schema: schemaResult, Dispatch: m.workers[0].dispatch, StagingID: strings.Repeat("0", 32), Generated: 1,
		Outputs: []outputMsg{{SHA256: sum, Map: []byte{1, 1}}}} // nothing is staged there
	step(campaign.Message{From: 1, Tag: campaign.TagResult, Data: encode(forged)})
	if m.counters.Rejected != 1 || !m.workers[0].quarantined || m.phase != stopping || m.code != campaign.ExitIncomplete {
		t.Errorf("rejected %d, phase %v, code %d", m.counters.Rejected, m.phase, m.code)
	}
	contains(t, text.text(), "the rank gets no more work")
	counts, err := b.table(o).Counts(t.Context())
	if err != nil || counts.Abandoned != 1 || counts.Leased != 0 {
		t.Errorf("records %+v, %v", counts, err)
	}
	if err := m.site.close(); err != nil {
		t.Fatal(err)
	}
}
