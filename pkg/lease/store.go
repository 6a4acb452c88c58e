package lease

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
)

// store is what both kinds of table stand on: one root with its layout, record locks, and whole-record reads and writes.
// It keeps no goroutine, no open file but those of a session, and holds nothing in memory that decides ownership.
type store struct {
	root    string
	kind    string
	opts    Options
	fs      *meter // opts.FS
	owner   string // for holders without a name
	writer  *groupcommit.Writer
	session *session // of one-flush renewals; nil with strict ones
	dirs    []string
	locks   []string
	stats   counters

	closing sync.Once
	closed  chan struct{}
}

func openStore(root, kind string, opts *Options) (*store, error) {
	o, err := opts.filled()
	if err != nil {
		return nil, err
	}
	if root == "" {
		return nil, fmt.Errorf("lease: the root directory has no name: %w", fs.ErrInvalid)
	}
	s := &store{root: filepath.Clean(root), kind: kind, opts: o, closed: make(chan struct{})}
	if s.owner, err = s.defaultOwner(); err != nil {
		return nil, err
	}
	s.fs = &meter{FS: o.FS, c: &s.stats}
	if err := s.pin(); err != nil {
		return nil, err
	}
	for shard := range s.opts.Shards {
		s.dirs = append(s.dirs, filepath.Join(s.root, shardName(shard)))
		s.locks = append(s.locks, filepath.Join(s.root, locksDir, shardName(shard)+".lock"))
	}
	if s.writer, err = groupcommit.NewWriter(s.fs, o.Strategy, filepath.Join(s.root, locksDir, strategyScratch)); err != nil {
		return nil, fmt.Errorf("lease: Options.Strategy: %w", err)
	}
	s.stats = counters{} // what opening has cost is not the table's work
	if o.Renewals == OneFlush {
		if err := s.oneFlushPossible(); err != nil {
			return nil, err
		}
		s.session, err = newSession(s)
	}
	return s, err
}

func shardName(shard int) string { return fmt.Sprintf("%03d", shard) }

func (s *store) shard(id ID) int { return id.shard(s.opts.Shards) }

// path is called for every renewal and allocates once.
func (s *store) path(id ID) string {
	var buf [256]byte
	name := append(append(buf[:0], s.dirs[s.shard(id)]...), '/')
	return string(append(hex.AppendEncode(name, id[:]), recordExt...))
}

const (
	recordExt  = ".json"
	recordPerm = 0o666
)

func (s *store) close() error {
	var err error
	s.closing.Do(func() {
		close(s.closed)
		if s.session != nil {
			s.session.turn <- struct{}{} // for good: whoever beats finishes first
			err = s.session.close()
		}
	})
	return err
}

// enter is the first thing each operation does, before it touches a lock or a file.
func (s *store) enter(ctx context.Context) error {
	select {
	case <-s.closed:
		return fmt.Errorf("lease: table %s: %w", s.root, fs.ErrClosed)
	default:
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := s.now()
	return err
}

// now reads the clock. Callers hold the record's lock, except to find out early that the clock is unusable.
func (s *store) now() (time.Time, error) {
	now := s.opts.Now()
	if !inRange(now) {
		return now, fmt.Errorf("%w: it says %v; set the machine's clock", ErrClock, now)
	}
	return time.Unix(0, now.UnixNano()).UTC(), nil // wall clock only: it is compared with what other machines wrote
}

// read is one of three results: the record, an error that matches fs.ErrNotExist or ErrCorrupt, or the I/O error.
// The record aliases the returned buffer, which is buf grown as needed.
func (s *store) read(id ID, buf []byte) (Record, []byte, error) {
	return s.readFrom(s.path(id), id, buf)
}

// readFrom is read for a caller who has the record's path.
func (s *store) readFrom(name string, id ID, buf []byte) (Record, []byte, error) {
	buf, err := s.readFile(name, buf)
	// A network file system may answer from a stale handle or a stale absence. Looking again settles both; to conclude "no record" from
	// the first answer could restart the fence.
	for try := 0; err != nil && try < 3; try++ {
		if errors.Is(err, fs.ErrNotExist) {
			if _, lerr := s.fs.Lstat(name); errors.Is(lerr, fs.ErrNotExist) {
				return Record{}, buf, s.absent(id)
			}
		} else if !errors.Is(err, syscall.ESTALE) {
			break
		}
		buf, err = s.readFile(name, buf)
	}
	if err != nil {
		return Record{}, buf, hideAbsence(fmt.Errorf("lease: read record %s: %w", id, err))
	}
	r, err := decodeRecord(buf, id, s.opts.MaxRecord)
	// A reader without the lock may have opened a file that is the record's spare by now, and is being overwritten. The record itself is
	// whole at any time.
	for try := 0; err != nil && try < 3; try++ {
		again, rerr := s.readFile(name, nil)
		if rerr != nil || bytes.Equal(again, buf) {
			break
		}
		buf = again
		r, err = decodeRecord(buf, id, s.opts.MaxRecord)
	}
	if err == nil && (s.kind == kindTargets) != (r.Targets != nil) {
		err = fmt.Errorf("%w: %s: it is not of a %s table", ErrCorrupt, id, s.kind)
	}
	return r, buf, err
}

// readFile reads at least one byte more than a record may have, so that the decoder sees the excess.
func (s *store) readFile(name string, buf []byte) ([]byte, error) {
	f, err := s.fs.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return buf[:0], err
	}
	defer f.Close() // nothing was written
	buf = buf[:0]
	for len(buf) <= s.opts.MaxRecord+groupcommit.MaxPadding {
		if cap(buf)-len(buf) < 512 {
			buf = append(make([]byte, 0, 2*cap(buf)+2048), buf...)
		}
		n, err := f.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
	return buf, nil
}

// absent is the answer "no record", after making sure that it is not the directory that is missing: each was made before the layout.
func (s *store) absent(id ID) error {
	dir := s.dirs[s.shard(id)]
	_, err := s.fs.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return hideAbsence(fmt.Errorf("%w: shard directory %s can't be found: restore the root or use a new one: %w", ErrLayout, dir, err))
	}
	if err != nil {
		return fmt.Errorf("lease: look for the shard of %s: %w", id, err)
	}
	return fmt.Errorf("lease: no record of %s: %w", id, fs.ErrNotExist)
}

// hideAbsence keeps an error about something else from matching fs.ErrNotExist, which callers take for "no record".
func hideAbsence(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return notAbsent{err}
	}
	return err
}

type notAbsent struct{ error }

func (e notAbsent) Is(target error) bool {
	return target != fs.ErrNotExist && errors.Is(e.error, target)
}
func (e notAbsent) As(target any) bool { return errors.As(e.error, target) }

// encode validates r and appends its file to buf. room is what later transitions may add to a record that fits now.
func (s *store) encode(r *Record, buf []byte, room int) ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("lease: record %s is not written: %w: %w", r.ID, fs.ErrInvalid, err)
	}
	data := appendRecord(buf, r)
	if len(data)+room > s.opts.MaxRecord {
		return nil, fmt.Errorf("lease: record %s would have %d bytes, Options.MaxRecord allows %d less %d for later states: %w",
			r.ID, len(data), s.opts.MaxRecord, room, vfs.ErrTooLarge)
	}
	return data, nil
}

// commitRoom is kept free when callers' bytes enter a record, so that a record which could be claimed or begun can always be
// renewed and completed: completed_ns, and timestamps that get longer.
const commitRoom = 256

// encodeNew is encode for records with bytes from a caller: it also reads the result back, since JSON that is valid on its own may be
// nested too deeply inside a record.
func (s *store) encodeNew(r *Record) ([]byte, error) {
	data, err := s.encode(r, nil, commitRoom)
	if err != nil {
		return nil, err
	}
	if _, err := decodeRecord(data, r.ID, s.opts.MaxRecord); err != nil {
		return nil, fmt.Errorf("lease: payload or manifest of %s can't be stored: %w: %v", r.ID, fs.ErrInvalid, err)
	}
	return data, nil
}

func (s *store) update(id ID, data []byte) groupcommit.Update {
	return groupcommit.Update{Name: s.path(id), Data: data, Perm: recordPerm}
}

// write makes one record durable. An error that matches groupcommit.ErrUnknown means that others may see it already. Caller holds the
// record's lock.
func (s *store) write(id ID, data []byte) error {
	b := s.writer.NewBatch()
	if err := b.Publish([]groupcommit.Update{s.update(id, data)})[0]; err != nil {
		_, ferr := b.Flush() // what may have been renamed should not be left without its barrier
		return fmt.Errorf("lease: write record %s: %w", id, errors.Join(err, ferr))
	}
	if _, err := b.Flush(); err != nil {
		return fmt.Errorf("lease: write record %s: %w", id, err)
	}
	return nil
}

// nextToken follows the highest fence seen.
func (s *store) nextToken(highest uint64) (Token, error) {
	if highest >= math.MaxInt64 {
		return Token{}, fmt.Errorf("%w: its fence %d is the last there is", ErrCorrupt, highest)
	}
	t := Token{Fence: highest + 1}
	return t, s.random(t.Nonce[:])
}
