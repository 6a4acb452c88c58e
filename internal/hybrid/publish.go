package hybrid

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"shardlease/internal/campaign"
	"shardlease/internal/hybrid/afl"
	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/lease"
)

// stagingDir holds, below a peer's directory, the stages of its workers. AFL++ looks into queue/ only.
const stagingDir = ".staging"

// publisher makes the children of a commit visible to AFL++, its own or those of a coordinator that died. Everything it needs is in the
// manifest, and doing it again after a crash is harmless from any step on: a child is published if a file with its sum in
// the name is there.
type publisher struct {
	fsys  vfs.FS
	out   string // AFL's output directory
	peer  *afl.Peer
	name  string
	limit int64 // bytes of one child

	published map[afl.Kind]int // by this process
}

// stages are the stages of a peer's workers.
func (p *publisher) stages(peer string) *campaign.Stages {
	return campaign.NewStages(p.fsys, filepath.Join(p.out, peer, stagingDir), p.limit)
}

// publish is what Complete calls under the record's lock.
func (p *publisher) publish(_ context.Context, raw json.RawMessage) error {
	m, err := decodeManifest(raw)
	if err != nil {
		return err
	}
	var theirs map[afl.Sum]afl.Kind
	if m.Peer != p.name {
		if theirs, err = afl.PublishedBy(p.fsys, p.out, m.Peer); err != nil {
			return fmt.Errorf("look for what %s has published: %w", m.Peer, err)
		}
	}
	var files []afl.Staged
	for _, c := range m.Children {
		id, err := lease.ParseID(c.SHA256)
		if err != nil {
			return err
		}
		if kind, ok := theirs[afl.Sum(id)]; ok {
			// Seen is not durable: the publisher may have died between the rename and the barrier.
			if err := groupcommit.SyncDir(p.fsys, filepath.Join(p.out, m.Peer, string(kind))); err != nil {
				return err
			}
			continue
		}
		staged := filepath.Join(p.out, m.Peer, stagingDir, fmt.Sprint(m.Rank), m.StagingID, c.SHA256)
		files = append(files, afl.Staged{Path: staged, Kind: c.Kind, Sum: afl.Sum(id), Source: m.Source})
	}
	done, err := p.peer.Publish(files)
	for kind, n := range done {
		p.published[kind] += n
	}
	return err
}

// cleanUp removes the stage of a finished commit. What stays for an error costs space, nothing else; the next start of the peer removes it.
func (p *publisher) cleanUp(m manifest) error {
	return p.stages(m.Peer).Remove(m.Rank, m.StagingID)
}

// redo finishes a commit that somebody has begun. first tells whether this call did it.
func (p *publisher) redo(ctx context.Context, table workTable, rec lease.Record) (first bool, err error) {
	m, err := decodeManifest(rec.Manifest)
	if err != nil {
		return false, fmt.Errorf("work record %s: %w", rec.ID, err)
	}
	// Whoever began the commit may have died before it was durable: published now, its result could outlive the record. So it is begun once more.
	if err = table.BeginCommit(ctx, rec.ID, rec.Token, rec.Manifest); err == nil {
		first, err = table.Complete(ctx, rec.ID, rec.Token, p.publish)
	}
	if err != nil && !errors.Is(err, lease.ErrDone) {
		return false, fmt.Errorf("finish the commit of work record %s, begun by %s: %w", rec.ID, rec.Holder.Owner, err)
	}
	return first, p.cleanUp(m)
}

// sweep removes the stages that this peer's workers left in an earlier run, except those that a begun commit still needs. It comes after
// the commits were redone.
func (p *publisher) sweep(needed map[string]bool) error {
	root := filepath.Join(p.out, p.name, stagingDir)
	ranks, err := p.fsys.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, rank := range ranks {
		stages, err := p.fsys.ReadDir(filepath.Join(root, rank.Name()))
		errs = append(errs, err)
		for _, stage := range stages {
			if !needed[stage.Name()] {
				errs = append(errs, groupcommit.RemoveAll(p.fsys, filepath.Join(root, rank.Name(), stage.Name())))
			}
		}
	}
	return errors.Join(errs...)
}
