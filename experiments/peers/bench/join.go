package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/bbolt"

	"shardlease/pkg/lease"
)

// errHeld is a claim's answer while somebody else's lease has not ended.
var errHeld = errors.New("held by another")

// joiners claim one lease in a store that another process has made, and may have open.
var joiners = map[string]func(config, lease.ID) error{
	"batch":      func(c config, id lease.ID) error { return joinTable(c, id, lease.Options{}) },
	"one-flush":  func(c config, id lease.ID) error { return joinTable(c, id, lease.Options{Renewals: lease.OneFlush}) },
	"bbolt":      joinBolt,
	"sqlite":     joinSQLite,
	"pebble":     joinPebble,
	"postgresql": joinPostgres,
}

func joinTable(c config, id lease.ID, opts lease.Options) error {
	opts.Shards, opts.TTL = c.shards, c.ttl
	t, err := lease.Open(filepath.Join(c.dir, "leases"), &opts)
	if err != nil {
		return err
	}
	_, err = t.Claim(context.Background(), id, c.payload, lease.Holder{Owner: "second"})
	if errors.Is(err, lease.ErrHeld) {
		err = errHeld
	}
	return errors.Join(err, t.Close())
}

// claimed is the value of a lease after a second process has claimed it; stored is empty if there was none.
func (c config) claimed(stored []byte, id lease.ID) ([]byte, error) {
	v := newValue(id, c, time.Now())
	if len(stored) > 0 {
		var old value
		if err := json.Unmarshal(stored, &old); err != nil {
			return nil, err
		}
		if v.Updated-old.Updated < old.TTL {
			return nil, errHeld
		}
		v.Fence = old.Fence + 1
	}
	return json.Marshal(v)
}

func joinBolt(c config, id lease.ID) error {
	db, err := bbolt.Open(filepath.Join(c.dir, "leases.bolt"), 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(leasesBucket)
		data, err := c.claimed(b.Get(id[:]), id)
		if err != nil {
			return err
		}
		return b.Put(id[:], data)
	})
	return errors.Join(err, db.Close())
}

func joinPebble(c config, id lease.ID) error {
	db, err := pebble.Open(filepath.Join(c.dir, "pebble"), &pebble.Options{Logger: quiet{}})
	if err != nil {
		return err
	}
	stored, closer, err := db.Get(id[:])
	if err == nil {
		stored = append([]byte(nil), stored...)
		err = closer.Close()
	} else if errors.Is(err, pebble.ErrNotFound) {
		stored, err = nil, nil
	}
	var data []byte
	if err == nil {
		data, err = c.claimed(stored, id)
	}
	if err == nil {
		err = db.Set(id[:], data, pebble.Sync)
	}
	return errors.Join(err, db.Close())
}

// sqlClaim inserts the lease, or takes one over that has ended.
const sqlClaim = `INSERT INTO leases (id, status, fence, nonce, owner, attempts, payload, updated_ns, ttl_ns)
	VALUES ($1, 'leased', 1, $2, 'second', 1, '{}', $3, $4)
	ON CONFLICT (id) DO UPDATE SET fence = leases.fence + 1, nonce = excluded.nonce, owner = excluded.owner, updated_ns = excluded.updated_ns
	WHERE excluded.updated_ns - leases.updated_ns >= leases.ttl_ns`

func joinSQLite(c config, id lease.ID) error {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(c.dir, "leases.sqlite")+"?mode=rw&_pragma=busy_timeout(1000)&_pragma=synchronous(FULL)")
	if err != nil {
		return err
	}
	defer db.Close()
	res, err := db.Exec(sqlClaim, id[:], id[:16], time.Now().UnixNano(), int64(c.ttl))
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, errHeld)
	}
	return nil
}

func joinPostgres(c config, id lease.ID) error {
	s := &postgres{}
	if err := s.connect(filepath.Join(c.dir, "data")); err != nil {
		return err
	}
	ctx := context.Background()
	defer s.conn.Close(ctx)
	tag, err := s.conn.Exec(ctx, sqlClaim, id[:], id[:16], time.Now().UnixNano(), int64(c.ttl))
	if err == nil && tag.RowsAffected() == 0 {
		err = errHeld
	}
	return err
}

// postgresClient is a holder that is a client of a server which runs.
func postgresClient(c config) (system, error) {
	s := &postgres{n: len(c.ids)}
	if err := s.connect(filepath.Join(c.dir, "data")); err != nil {
		return nil, fmt.Errorf("join the server: %w", err)
	}
	return s, nil
}
