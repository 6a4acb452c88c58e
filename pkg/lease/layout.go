package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"syscall"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
)

const (
	layoutFile   = "layout.json"
	layoutTemp   = "layout.json.new"
	layoutLock   = "layout.lock"
	layoutFormat = "shardlease-layout-v1"
	layoutLimit  = 4 << 10
	locksDir     = "locks"
	// strategyScratch is the name, within locksDir, under which content strategies are tried at Open.
	strategyScratch = "strategy"

	kindWork    = "work"
	kindTargets = "targets"
)

// layout is pinned in the root: two processes with different shard counts would put one ID into different files and exclude each
// other from nothing.
type layout struct {
	Format string `json:"format"`
	Kind   string `json:"kind"`
	Shards int    `json:"shards"`
}

// pin compares the root's layout with the options, or creates the root.
//
// All directories are made before the layout file is linked into place, so its presence vouches for them. That costs up to 4096
// mkdirs and one barrier, once; lazily made directories would cost every process a barrier of the root at its first use of each shard, since the
// one who made the directory may have died before syncing its name.
func (s *store) pin() error {
	found, err := s.readLayout()
	there := err == nil
	if errors.Is(err, fs.ErrNotExist) {
		found, err = s.createLayout()
	}
	if err != nil {
		return err
	}
	want := layout{Format: layoutFormat, Kind: s.kind, Shards: s.opts.Shards}
	if want.Shards == 0 {
		want.Shards = found.Shards
	}
	if found != want {
		return fmt.Errorf("%w: %s says format %q, kind %q, %d shards, but format %q, kind %q, %d shards was asked for: open it with its own values or use a new root",
			ErrLayout, filepath.Join(s.root, layoutFile), found.Format, found.Kind, found.Shards, want.Format, want.Kind, want.Shards)
	}
	if found.Shards < 1 || found.Shards > MaxShards {
		return fmt.Errorf("%w: %s says %d shards, want 1 to %d", ErrLayout, filepath.Join(s.root, layoutFile), found.Shards, MaxShards)
	}
	s.opts.Shards = found.Shards
	if there {
		if err := s.renewLayout(found); err != nil {
			return err
		}
	}
	// Its creator may have died between the link and the barrier; nothing may be acknowledged in a root that a power cut takes back.
	if err := groupcommit.SyncDir(s.fs, s.root); err != nil {
		return fmt.Errorf("lease: open %s: %w", s.root, err)
	}
	if err := s.fs.Remove(filepath.Join(s.root, layoutTemp)); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("lease: open %s: remove the leftover of its creation: %w", s.root, err)
	}
	return nil
}

func (s *store) readLayout() (layout, error) {
	name := filepath.Join(s.root, layoutFile)
	data, err := vfs.ReadFile(s.fs, name, layoutLimit)
	if err != nil {
		return layout{}, fmt.Errorf("lease: read layout: %w", err)
	}
	var l layout
	if err := json.Unmarshal(data, &l); err != nil {
		return layout{}, fmt.Errorf("%w: %s is damaged, restore it: %v", ErrLayout, name, err)
	}
	return l, nil
}

// createLayout makes the root. The lock keeps creators from each other's temp file; the link, which never replaces, decides even where
// locks don't work.
func (s *store) createLayout() (layout, error) {
	fail := func(err error) (layout, error) { return layout{}, fmt.Errorf("lease: create %s: %w", s.root, err) }
	if err := groupcommit.MkdirAll(s.fs, filepath.Join(s.root, locksDir), 0o777); err != nil {
		return fail(err)
	}
	l, err := s.waitLock(context.Background(), filepath.Join(s.root, locksDir, layoutLock), 0, s.lockDeadline())
	if err != nil {
		return fail(err)
	}
	defer l.Close()
	if found, err := s.readLayout(); !errors.Is(err, fs.ErrNotExist) {
		return found, err
	}
	want := layout{Format: layoutFormat, Kind: s.kind, Shards: s.opts.Shards}
	if want.Shards == 0 {
		want.Shards = DefaultShards
	}
	if err := s.syncAncestors(); err != nil {
		return fail(err)
	}
	if err := s.makeShards(want.Shards); err != nil {
		return fail(err)
	}
	data, err := json.Marshal(want)
	if err != nil {
		return fail(err)
	}
	// The barrier of WriteFile, before the link, makes the names of the shards durable; the first barrier of each covers the directory itself.
	temp := filepath.Join(s.root, layoutTemp)
	if err := groupcommit.WriteFile(s.fs, temp, append(data, '\n'), 0o666); err != nil {
		return fail(err)
	}
	if err := groupcommit.Link(s.fs, temp, filepath.Join(s.root, layoutFile)); err != nil && !errors.Is(err, fs.ErrExist) {
		return fail(err)
	}
	return s.readLayout()
}

// renewLayout publishes the layout anew while the root has no record. Its creator's barrier may have failed, after which a later one proves
// nothing, and a root without its layout can't be opened. Whoever wrote a record had opened the root before, so one record vouches for it.
func (s *store) renewLayout(l layout) error {
	for shard := range l.Shards {
		entries, err := s.fs.ReadDir(filepath.Join(s.root, shardName(shard)))
		if err != nil {
			return hideAbsence(fmt.Errorf("lease: open %s: %w", s.root, err))
		}
		if len(entries) > 0 {
			return nil
		}
	}
	err := s.replaceLayout(l)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return nil // who may not write here writes no record either
	}
	if err != nil {
		return fmt.Errorf("lease: open %s: %w", s.root, err)
	}
	return nil
}

func (s *store) replaceLayout(l layout) error {
	if err := groupcommit.MkdirAll(s.fs, filepath.Join(s.root, locksDir), 0o777); err != nil {
		return err
	}
	lock, err := s.waitLock(context.Background(), filepath.Join(s.root, locksDir, layoutLock), 0, s.lockDeadline())
	if err != nil {
		return err
	}
	defer lock.Close()
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return groupcommit.WriteFile(s.fs, filepath.Join(s.root, layoutFile), append(data, '\n'), 0o666)
}

// syncAncestors makes up for creators that were killed between making a directory and its barrier, which MkdirAll then takes
// for durable (assumption A5): a power cut would take the whole root with it. Where syncing is not allowed or not possible no creator
// has been.
func (s *store) syncAncestors() error {
	for dir, last := filepath.Dir(s.root), ""; dir != last; dir, last = filepath.Dir(dir), dir {
		err := groupcommit.SyncDir(s.fs, dir)
		if err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, groupcommit.ErrNotDurable) {
			return err
		}
	}
	return nil
}

func (s *store) makeShards(shards int) error {
	entries, err := s.fs.ReadDir(s.root)
	if err != nil {
		return err
	}
	// What an earlier creator has left is empty. Its barrier may have failed, after which one that succeeds proves nothing about
	// these names; so they are made anew.
	for _, e := range entries {
		if !e.IsDir() || e.Name() == locksDir {
			continue
		}
		name := filepath.Join(s.root, e.Name())
		inside, err := s.fs.ReadDir(name)
		if err != nil {
			return err
		}
		if len(inside) > 0 {
			return fmt.Errorf("%w: it has no %s but %s is not empty: restore the file or use a new root", ErrLayout, layoutFile, e.Name())
		}
		if !isShardName(e.Name()) {
			continue
		}
		if err := s.fs.Remove(name); err != nil {
			return err
		}
	}
	for shard := range shards {
		if err := s.fs.Mkdir(filepath.Join(s.root, shardName(shard)), 0o777); err != nil {
			return err
		}
	}
	return nil
}

func isShardName(name string) bool {
	n, err := strconv.Atoi(name)
	return err == nil && n >= 0 && name == shardName(n)
}
