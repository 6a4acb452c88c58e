package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/lease"
)

// ownMakers are this project's ways, the report's among them. Each content strategy renews in batches.
func ownMakers() []maker {
	list := []maker{
		{"scalar", func(c config) (system, error) { return newTable(c, lease.Options{}, scalar) }},
		{"batch", func(c config) (system, error) { return newTable(c, lease.Options{}, batch) }},
		{"one-flush", newOneFlush},
		{"one-flush-again", newOneFlush}, // the A/A control
	}
	for _, s := range append(groupcommit.Strategies(), groupcommit.Auto) {
		if s != groupcommit.Serial { // that is "batch"
			list = append(list, maker{"strict-" + s.String(), strict(s)})
		}
	}
	// The A/A control of the strict ways, whose files lie in other places of the disk.
	return append(list, maker{"strict-spare-wholefs-again", strict(groupcommit.SpareWholeFS)})
}

func strict(s groupcommit.Strategy) func(config) (system, error) {
	return func(c config) (system, error) { return newTable(c, lease.Options{Strategy: s}, batch) }
}

func newOneFlush(c config) (system, error) {
	return newTable(c, lease.Options{Renewals: lease.OneFlush}, batch)
}

type table struct {
	t    *lease.Table
	held map[lease.ID]lease.Token
	ids  []lease.ID
	pass func(t *table) error
}

func newTable(c config, opts lease.Options, pass func(*table) error) (system, error) {
	opts.Shards, opts.TTL = c.shards, c.ttl
	var claiming atomic.Bool
	opts.FS = intercepted(&claiming, c.latency)
	t, err := lease.Open(filepath.Join(c.dir, "leases"), &opts)
	if err != nil {
		return nil, err
	}
	claiming.Store(true) // claims are not measured; without their syncs ten thousand of them take no minutes
	s, err := claimAll(c, t, pass)
	if err != nil {
		return nil, err
	}
	claiming.Store(false)
	return s, settle(c.dir)
}

// settle writes back what the set-up has left, or the first timed flushes would pay for it.
func settle(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(d.Fd())), d.Close())
}

func claimAll(c config, t *lease.Table, pass func(*table) error) (system, error) {
	s := &table{t: t, held: map[lease.ID]lease.Token{}, ids: c.ids, pass: pass}
	for _, id := range c.ids {
		tok, err := t.Claim(context.Background(), id, c.payload, lease.Holder{Owner: "bench"})
		if err != nil {
			return nil, err
		}
		s.held[id] = tok
	}
	return s, nil
}

// renew ignores now: the table reads the clock under the lock.
func (s *table) renew(time.Time) error { return s.pass(s) }
func (s *table) Close() error          { return s.t.Close() }

func scalar(s *table) error {
	for _, id := range s.ids {
		if err := s.t.Heartbeat(context.Background(), id, s.held[id]); err != nil {
			return err
		}
	}
	return nil
}

func batch(s *table) error {
	b, err := s.t.HeartbeatMany(context.Background(), s.held)
	if err == nil && len(b.Renewed) != len(s.ids) {
		err = fmt.Errorf("renewed %d of %d", len(b.Renewed), len(s.ids))
	}
	return err
}

// limitMakers are not durable or not leases: they show what the disk and the directory operations cost alone.
func limitMakers() []maker {
	return []maker{
		{"limit-fdatasync", newBare},
		{"limit-no-sync", newSyncless},
	}
}

func newSyncless(c config) (system, error) {
	t, err := lease.Open(filepath.Join(c.dir, "leases"), &lease.Options{Shards: c.shards, TTL: c.ttl, FS: intercepted(nil, 0)})
	if err != nil {
		return nil, err
	}
	return claimAll(c, t, batch)
}

// bare overwrites as many bytes as the renewals need at least, a number and a time each, and flushes once.
type bare struct {
	f       vfs.File
	data    []byte
	latency time.Duration
}

func newBare(c config) (system, error) {
	name := filepath.Join(c.dir, "file")
	data := make([]byte, max(1, len(c.ids))*64)
	if err := groupcommit.WriteFile(vfs.OS, name, data, 0o600); err != nil {
		return nil, err
	}
	f, err := vfs.OS.OpenFile(name, os.O_WRONLY, 0)
	return &bare{f, data, c.latency}, err
}

func (s *bare) renew(now time.Time) error {
	for i := range s.data {
		s.data[i] = byte(now.UnixNano() >> (i % 8 * 8))
	}
	if _, err := s.f.WriteAt(s.data, 0); err != nil {
		return err
	}
	time.Sleep(s.latency)
	return s.f.Datasync()
}

func (s *bare) Close() error { return s.f.Close() }

// intercepted is the real file system, with every sync left out while syncless is true (nil means always) and otherwise longer by latency.
func intercepted(syncless *atomic.Bool, latency time.Duration) vfs.FS {
	return vfs.Intercept(vfs.OS, func(c *vfs.Call, do func() error) error {
		switch c.Op {
		case vfs.OpSync, vfs.OpDatasync, vfs.OpSyncDir, vfs.OpSyncFS:
			if syncless == nil || syncless.Load() {
				return nil
			}
			if latency > 0 {
				time.Sleep(latency)
			}
		}
		return do()
	})
}
