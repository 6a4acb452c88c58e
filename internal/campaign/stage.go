package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/lease"
)

// Stages are the private directories in which workers leave results for their masters: root/<world rank>/<32 hex>/<child hash>.
type Stages struct {
	fs    vfs.FS
	root  string
	limit int64
}

// NewStages returns the stages under an epoch's staging directory.
func NewStages(fsys vfs.FS, root string, limit int64) *Stages {
	return &Stages{fs: fsys, root: root, limit: limit}
}

func (s *Stages) dir(rank int, id string) string {
	return filepath.Join(s.root, strconv.Itoa(rank), id)
}

// Write makes the distinct contents of outputs durable in a stage that must not exist yet, with one barrier for all of them, and returns their
// sorted hashes.
func (s *Stages) Write(rank int, id string, outputs []Output) ([]string, error) {
	dir := s.dir(rank, id)
	if _, err := s.fs.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("stage %s exists already or can't be read: %v", dir, err)
	}
	if err := groupcommit.MkdirAll(s.fs, dir, 0o777); err != nil {
		return nil, err
	}
	batch := groupcommit.NewBatch(s.fs)
	var hashes []string
	var errs []error
	for _, out := range outputs {
		name := lease.SumID(out.Data).String()
		if slices.Contains(hashes, name) {
			continue
		}
		hashes = append(hashes, name)
		errs = append(errs, batch.Publish([]groupcommit.Update{{Name: filepath.Join(dir, name), Data: out.Data, Perm: 0o666}})...)
	}
	_, err := batch.Flush()
	slices.Sort(hashes)
	return hashes, errors.Join(append(errs, err)...)
}

// Check accepts a stage that holds exactly the declared objects, as regular files with the right content.
func (s *Stages) Check(rank int, id string, hashes []string) error {
	if len(hashes) == 0 {
		return nil
	}
	dir := s.dir(rank, id)
	entries, err := s.fs.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) != len(hashes) {
		return fmt.Errorf("stage %s has %d entries instead of the %d declared", dir, len(entries), len(hashes))
	}
	for i, e := range entries { // both are sorted
		if e.Name() != hashes[i] {
			return fmt.Errorf("stage %s has %q instead of %s", dir, e.Name(), hashes[i])
		}
		want, err := lease.ParseID(hashes[i])
		if err != nil {
			return err
		}
		name := filepath.Join(dir, hashes[i])
		info, err := s.fs.Lstat(name)
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("staged object %s is not a regular file", name)
		}
		if _, err := readObject(s.fs, name, want, s.limit); err != nil {
			return err
		}
	}
	return nil
}

// Remove deletes a stage. A stage that is gone is no error.
func (s *Stages) Remove(rank int, id string) error {
	if id == "" {
		return nil
	}
	return groupcommit.RemoveAll(s.fs, s.dir(rank, id))
}

// publisher returns the function that Complete calls under the record's lock: it promotes the manifest's objects and counts those that
// this call made public. Doing it again after a crash is harmless, from any step on.
func (s *Stages) publisher(c *Corpus, maxObjects int, added *int) func(context.Context, json.RawMessage) error {
	return func(_ context.Context, raw json.RawMessage) error {
		m, err := decodeManifest(raw, resultLimit(maxObjects))
		if err != nil {
			return err
		}
		defer clear(c.named) // what an error leaves without its barrier is in doubt
		var ids []lease.ID
		for _, h := range m.Hashes {
			id, err := lease.ParseID(h)
			if err != nil {
				return err
			}
			made, err := c.Promote(filepath.Join(s.dir(m.WorkerGlobalRank, m.StagingID), h), id)
			if err != nil {
				return fmt.Errorf("publish child %s: %w", h, err)
			}
			if made {
				*added++
			}
			ids = append(ids, id)
		}
		return c.Settle(ids...)
	}
}
