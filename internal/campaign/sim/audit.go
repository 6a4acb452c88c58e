package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"shardlease/internal/campaign"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
	"shardlease/pkg/lease"
)

// Invariants are what each campaign is held to, numbered from 1.
var Invariants = []string{
	"an item is done once: a record that is done never changes, and in the end every object has one",
	"each child that a done record declares is public, with the content of its digest, and no execution's child is missing from its record",
	"nothing else is public: no stale and no rejected result",
	"nobody begins a commit with a token after a later one was granted",
	"what a master was told survives everything: fences, commits, results",
	"executions <= items + workers x jobs cut off + leases at risk when time was disturbed + disk errors, and together no more than claims + disk errors",
	"the end is agreed on only when nothing is leased, committing or undone",
	"the epoch is retired only when everything is done, and not kept when the job ends well",
	"a job to which nothing was done succeeds, and every other ends by itself unless a message was lost",
	"the job that is left alone finishes whatever the others left: no commit is stuck",
}

// audited is a master's table that notes what the master is told.
type audited struct {
	campaign.Table
	j    *job
	last time.Time // of a heartbeat batch
}

func (w *world) promised(id lease.ID) *promise {
	if w.acked[id] == nil {
		w.acked[id] = &promise{}
	}
	return w.acked[id]
}

func (a *audited) Claim(ctx context.Context, id lease.ID, payload json.RawMessage, by lease.Holder) (lease.Token, error) {
	return a.granted(id)(a.Table.Claim(ctx, id, payload, by))
}

func (a *audited) TakeOver(ctx context.Context, id lease.ID, payload json.RawMessage, by lease.Holder) (lease.Token, error) {
	return a.granted(id)(a.Table.TakeOver(ctx, id, payload, by))
}

func (a *audited) granted(id lease.ID) func(lease.Token, error) (lease.Token, error) {
	return func(tok lease.Token, err error) (lease.Token, error) {
		if err != nil {
			return tok, err
		}
		p := a.j.promised(id)
		if tok.Fence <= p.fence {
			a.j.violate(5, "%s is granted under fence %d after %d", id, tok.Fence, p.fence)
		}
		if p.done || p.commit > 0 {
			a.j.violate(1, "%s is granted after its commit", id)
		}
		if tok.Fence > 1 {
			a.j.TakenOver++
		}
		p.fence = max(p.fence, tok.Fence)
		return tok, err
	}
}

func (a *audited) BeginCommit(ctx context.Context, id lease.ID, tok lease.Token, manifest json.RawMessage) error {
	p := a.j.promised(id)
	newest := p.fence
	err := a.Table.BeginCommit(ctx, id, tok, manifest)
	switch {
	case errors.Is(err, lease.ErrLost):
		a.j.Stale++
		a.j.note("the result for %s under fence %d is stale", id, tok.Fence)
	case err == nil && tok.Fence < newest:
		a.j.violate(4, "%s is committed under fence %d, after %d was granted", id, tok.Fence, newest)
	case err == nil && p.commit > 0 && (p.commit != tok.Fence || p.manifest != string(manifest)):
		a.j.violate(5, "%s is committed with another manifest", id)
	case err == nil:
		p.commit, p.manifest = tok.Fence, string(manifest)
	}
	return err
}

func (a *audited) Complete(ctx context.Context, id lease.ID, tok lease.Token, publish func(context.Context, json.RawMessage) error) (bool, error) {
	p := a.j.promised(id)
	was := p.done
	first, err := a.Table.Complete(ctx, id, tok, publish)
	if err != nil {
		return first, err
	}
	if first && was {
		a.j.violate(1, "%s is completed a second time", id)
	}
	p.done = true
	a.j.note("%s is done under fence %d, first %t", id, tok.Fence, first)
	return first, nil
}

// HeartbeatMany counts batches that came or ended so late that leases may have lapsed as disturbances.
func (a *audited) HeartbeatMany(ctx context.Context, held map[lease.ID]lease.Token) (lease.HeartbeatBatch, error) {
	b, err := a.Table.HeartbeatMany(ctx, held)
	if now := a.j.now; err == nil {
		if !a.last.IsZero() && now.Sub(a.last) > a.j.plan.TTL/2 {
			a.j.Hangs++
			a.j.leasesAtRisk()
		}
		a.last = now
	}
	return b, err
}

// endWriter reads the lines in which rank 0 says that the end is agreed on.
type endWriter struct{ j *job }

func (w endWriter) Write(p []byte) (int, error) {
	text := string(p)
	if strings.Contains(text, "Global quiescence committed") || strings.Contains(text, "No more inputs after") {
		w.j.note("%s", strings.TrimSpace(text))
		s := w.j.look(w.j.disk)
		for id, r := range s.records {
			if r.Status == lease.Leased || r.Status == lease.Committing {
				w.j.violate(7, "the end is agreed on while %s is %s", id, r.Status)
			}
		}
		for id := range s.objects {
			if s.records[id].Status != lease.Done {
				w.j.violate(7, "the end is agreed on while %s is not done", id)
			}
		}
	}
	return len(p), nil
}

// snapshot is what a disk holds.
type snapshot struct {
	epoch   bool
	records map[lease.ID]lease.Record
	objects map[lease.ID]bool // public, with the right content
	wrong   error
}

// look reads a disk without changing it.
func (w *world) look(disk *crashfs.FS) *snapshot {
	s := &snapshot{records: map[lease.ID]lease.Record{}, objects: map[lease.ID]bool{}}
	copied := disk.Clone()
	entries, err := copied.ReadDir(outputDir)
	if err != nil {
		return s // not made yet
	}
	for _, e := range entries {
		if id, err := lease.ParseID(e.Name()); err == nil {
			data, err := vfs.ReadFile(copied, outputDir+"/"+e.Name(), 1<<20)
			if err != nil || lease.SumID(data) != id {
				s.wrong = fmt.Errorf("object %s has other content: %q, %v", id, data, err)
			}
			s.objects[id] = true
		}
		if strings.HasPrefix(e.Name(), ".standalone-work-") {
			s.readRecords(copied, outputDir+"/"+e.Name())
		}
	}
	return s
}

func (s *snapshot) readRecords(disk *crashfs.FS, root string) {
	if _, err := disk.Lstat(root + "/layout.json"); err != nil {
		return // the table is not open yet
	}
	s.epoch = true
	t, err := lease.Open(root, &lease.Options{FS: disk})
	if err != nil {
		s.wrong = err
		return
	}
	for r, err := range t.Records(context.Background()) {
		if err != nil {
			s.wrong = err
		}
		s.records[r.ID] = r
	}
}

// declared are the children in a record's manifest.
func declared(r lease.Record) (hashes []string) {
	var m struct {
		Hashes []string `json:"hashes"`
	}
	if err := json.Unmarshal(r.Manifest, &m); err != nil {
		return nil // the record has none
	}
	return m.Hashes
}

func has(hashes []string, id lease.ID) bool { return slices.Contains(hashes, id.String()) }
