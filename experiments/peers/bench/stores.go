package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/bbolt"
	_ "modernc.org/sqlite"

	"shardlease/pkg/lease"
)

// bolt renews all leases in one transaction, which bbolt makes durable with its file's syncs.
type bolt struct {
	db  *bbolt.DB
	ids []lease.ID
}

var leasesBucket = []byte("leases")

func newBolt(c config) (system, error) {
	db, err := bbolt.Open(filepath.Join(c.dir, "leases.bolt"), 0o600, nil)
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket(leasesBucket)
		if err != nil {
			return err
		}
		for _, id := range c.ids {
			data, err := json.Marshal(newValue(id, c, time.Now()))
			if err != nil {
				return err
			}
			if err := b.Put(id[:], data); err != nil {
				return err
			}
		}
		return nil
	})
	return &bolt{db, c.ids}, err
}

func (s *bolt) renew(now time.Time) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(leasesBucket)
		for _, id := range s.ids {
			data, err := renewed(b.Get(id[:]), id, now)
			if err != nil {
				return err
			}
			if err := b.Put(id[:], data); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *bolt) Close() error { return s.db.Close() }

// pebbleStore renews all leases in one batch with a synced log.
type pebbleStore struct {
	db  *pebble.DB
	ids []lease.ID
}

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...)) // pebble calls it when it can't go on
}

func newPebble(c config) (system, error) {
	db, err := pebble.Open(filepath.Join(c.dir, "pebble"), &pebble.Options{Logger: quiet{}})
	if err != nil {
		return nil, err
	}
	b := db.NewBatch()
	for _, id := range c.ids {
		data, err := json.Marshal(newValue(id, c, time.Now()))
		if err != nil {
			return nil, err
		}
		if err := b.Set(id[:], data, nil); err != nil {
			return nil, err
		}
	}
	return &pebbleStore{db, c.ids}, b.Commit(pebble.Sync)
}

func (s *pebbleStore) renew(now time.Time) error {
	b := s.db.NewBatch()
	defer b.Close()
	for _, id := range s.ids {
		stored, closer, err := s.db.Get(id[:])
		if err != nil {
			return err
		}
		data, err := renewed(stored, id, now)
		if err := errors.Join(err, closer.Close()); err != nil {
			return err
		}
		if err := b.Set(id[:], data, nil); err != nil {
			return err
		}
	}
	return b.Commit(pebble.Sync)
}

func (s *pebbleStore) Close() error { return s.db.Close() }

// sqlite renews all leases in one transaction, WAL with synchronous=FULL: the log is synced at each commit.
type sqlite struct {
	db     *sql.DB
	update *sql.Stmt
	ids    []lease.ID
}

func newSQLite(c config) (system, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(c.dir, "leases.sqlite")+"?_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	_, err = db.Exec(`CREATE TABLE leases (id BLOB PRIMARY KEY, status TEXT NOT NULL, fence INTEGER NOT NULL, nonce BLOB NOT NULL,
		owner TEXT NOT NULL, attempts INTEGER NOT NULL, payload TEXT, updated_ns INTEGER NOT NULL, ttl_ns INTEGER NOT NULL) WITHOUT ROWID`)
	if err != nil {
		return nil, err
	}
	tx, err := db.Begin()
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() // nothing to do after the commit
	for _, id := range c.ids {
		v := newValue(id, c, time.Now())
		if _, err := tx.Exec(`INSERT INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			id[:], v.Status, v.Fence, v.Nonce[:], v.Owner, v.Attempts, string(v.Payload), v.Updated, v.TTL); err != nil {
			return nil, err
		}
	}
	if err := tx.Commit(); err != nil {
		return nil, err
	}
	update, err := db.Prepare(`UPDATE leases SET updated_ns = ?1 WHERE id = ?2 AND status = 'leased' AND fence = 1 AND nonce = ?3
		AND ?1 - updated_ns < ttl_ns`)
	return &sqlite{db, update, c.ids}, err
}

func (s *sqlite) renew(now time.Time) error {
	tx, err := s.db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback() // nothing to do after the commit
	update := tx.Stmt(s.update)
	for _, id := range s.ids {
		res, err := update.Exec(now.UnixNano(), id[:], id[16:])
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n != 1 {
			return errors.Join(errLost, err)
		}
	}
	return tx.Commit()
}

func (s *sqlite) Close() error { return errors.Join(s.update.Close(), s.db.Close()) }
