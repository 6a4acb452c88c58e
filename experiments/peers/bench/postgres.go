package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// postgres is a server of its own, on a unix socket, with its data on the file system under test. It renews all leases with one
// UPDATE and synchronous_commit=on.
type postgres struct {
	server *exec.Cmd
	conn   *pgx.Conn
	n      int
}

// credentials of the user as whom the server runs, since it refuses root; nil when this process is not root.
func credentials() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
	}
	return nil, fmt.Errorf("no user to run PostgreSQL as: %w", errAbsent)
}

func newPostgres(c config) (_ system, err error) {
	if _, err := os.Stat(filepath.Join(c.pgBin, "postgres")); err != nil {
		return nil, fmt.Errorf("PostgreSQL (Debian package postgresql-15): %w: %w", errAbsent, err)
	}
	cred, err := credentials()
	if err != nil {
		return nil, err
	}
	if cred != nil {
		if err := os.Chown(c.dir, int(cred.Uid), int(cred.Gid)); err != nil {
			return nil, err
		}
	}
	data := filepath.Join(c.dir, "data")
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(c.pgBin, name), args...)
		cmd.Dir = c.dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred, Pdeathsig: syscall.SIGINT}
		return cmd
	}
	if out, err := command("initdb", "-D", data, "-U", "bench", "-A", "trust", "--no-locale", "-E", "UTF8").CombinedOutput(); errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("the user that PostgreSQL runs as can't enter %s: %w: %w", c.dir, errAbsent, err)
	} else if err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	s := &postgres{n: len(c.ids)}
	// The socket's path must be short; the directory is the server's own.
	s.server = command("postgres", "-D", data, "-k", data, "-c", "listen_addresses=", "-c", "fsync=on", "-c", "synchronous_commit=on",
		"-c", "max_connections=8", "-c", "shared_buffers=64MB")
	s.server.Stderr = &strings.Builder{}
	if err := s.server.Start(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.connect(data); err != nil {
		return nil, fmt.Errorf("%w: %s", err, s.server.Stderr)
	}
	return s, s.fill(c)
}

func (s *postgres) connect(socket string) error {
	var err error
	for range 200 {
		s.conn, err = pgx.Connect(context.Background(), "host="+socket+" user=bench dbname=postgres sslmode=disable")
		if err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("the server doesn't answer: %w", err)
}

func (s *postgres) fill(c config) error {
	ctx := context.Background()
	_, err := s.conn.Exec(ctx, `CREATE TABLE leases (id bytea PRIMARY KEY, status text NOT NULL, fence bigint NOT NULL, nonce bytea NOT NULL,
		owner text NOT NULL, attempts int NOT NULL, payload json, updated_ns bigint NOT NULL, ttl_ns bigint NOT NULL) WITH (fillfactor = 50)`)
	if err != nil {
		return err
	}
	_, err = s.conn.CopyFrom(ctx, pgx.Identifier{"leases"},
		[]string{"id", "status", "fence", "nonce", "owner", "attempts", "payload", "updated_ns", "ttl_ns"},
		pgx.CopyFromSlice(len(c.ids), func(i int) ([]any, error) {
			id := c.ids[i]
			v := newValue(id, c, time.Now())
			return []any{id[:], v.Status, int64(v.Fence), v.Nonce[:], v.Owner, v.Attempts, string(v.Payload), v.Updated, v.TTL}, nil
		}))
	return err
}

func (s *postgres) renew(now time.Time) error {
	tag, err := s.conn.Exec(context.Background(),
		`UPDATE leases SET updated_ns = $1 WHERE status = 'leased' AND fence = 1 AND $1 - updated_ns < ttl_ns`, now.UnixNano())
	if err == nil && tag.RowsAffected() != int64(s.n) {
		err = errLost
	}
	return err
}

// Close ends the server with a fast shutdown.
func (s *postgres) Close() error {
	var err error
	if s.conn != nil {
		err = s.conn.Close(context.Background())
	}
	if s.server != nil && s.server.Process != nil {
		err = errors.Join(err, s.server.Process.Signal(syscall.SIGINT))
		s.server.Wait() // its exit code says nothing that matters here
	}
	return err
}
