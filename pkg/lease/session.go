package lease

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
)

// renewalsDir holds two files a session, renewal.go says what they are for.
const (
	renewalsDir   = "renewals"
	beatExt       = ".beat"
	challengesExt = ".challenges"
)

// sessionID names one open table that renews with beats. The zero ID is no session.
type sessionID [16]byte

func (id sessionID) String() string { return hex.EncodeToString(id[:]) }

func (s *store) beatName(id sessionID) string {
	return filepath.Join(s.root, renewalsDir, id.String()+beatExt)
}

func (s *store) challengesName(id sessionID) string {
	return filepath.Join(s.root, renewalsDir, id.String()+challengesExt)
}

// told is what a session has promised to its holder about one lease.
type told struct {
	tok        Token
	at         time.Time     // the instant of the last renewal; for a lease in the current set, see session.instant
	written    time.Time     // what the record itself says
	ttl        time.Duration // of the record
	committing bool          // does not lapse
	current    bool          // in the set that the newest beat renews
}

func (t told) aliveAt(now time.Time, maxSkew time.Duration) bool {
	age := now.Sub(t.at)
	return t.committing || age < t.ttl && age >= -maxSkew
}

// session is an open table's own beat file and what it has promised with it.
type session struct {
	s    *store
	id   sessionID
	lock io.Closer // of the challenges file: held while the session lives

	// turn is held, as a channel so that ctx ends the waiting, by the one HeartbeatMany that beats.
	turn chan struct{}

	// Of the holder of turn.
	beat       vfs.File // nil: there is none, or it was given up after a failed flush
	challenges vfs.File // read up to seen
	seen       int64
	slot       slot // the newest
	next       int  // slot to overwrite
	listed     []beatEntry

	mu      sync.Mutex
	told    map[ID]told
	instant time.Time   // of the newest beat: what all current leases were told, in one place, so that a beat is cheap for any number
	current []ID        // the current leases by (shard, ID); replaced, never changed in place
	own     map[ID]bool // changed by this table itself since the last look: challenges that need no file
	roster  roster
	edits   uint64 // of told, other than by a beat
}

// roster is what a beat of the same set needs to know of it, without a look at any single promise: none was made later than the beat. So
// such a beat costs one look-up a lease, in the caller's own map. The members are in the order in which that map was ranged over, so
// that the look-ups of a later call walk through its memory: with 100 000 leases that is five times as fast as in any other order.
type roster struct {
	members  []member
	shortest time.Duration // TTL among them; 0 if none can lapse
	edits    uint64        // session.edits when it was made; another number means that it says nothing any more
}

type member struct {
	id  ID
	tok Token
}

// repeats reports whether held is the set of the newest beat, and can be renewed by a beat at now as a whole. Caller holds mu.
func (ss *session) repeats(held map[ID]Token, now time.Time) bool {
	r := &ss.roster
	if r.edits != ss.edits || len(r.members) == 0 || len(held) != len(r.members) {
		return false
	}
	if !(told{at: ss.instant, ttl: r.shortest, committing: r.shortest == 0}).aliveAt(now, ss.s.opts.MaxSkew) {
		return false // the slow way finds out which
	}
	for i := range r.members {
		if m := &r.members[i]; held[m.id] != m.tok {
			return false
		}
	}
	return true
}

// newSession makes the session's files durable: a record that names a session without files would have nobody to challenge.
func newSession(s *store) (*session, error) {
	ss := &session{s: s, turn: make(chan struct{}, 1), told: map[ID]told{}, own: map[ID]bool{}}
	fail := func(err error) (*session, error) {
		return nil, errors.Join(fmt.Errorf("lease: begin a session of one-flush renewals in %s: %w", s.root, err), ss.close())
	}
	if err := s.random(ss.id[:]); err != nil {
		return fail(err)
	}
	if err := groupcommit.MkdirAll(s.fs, filepath.Join(s.root, renewalsDir), 0o777); err != nil {
		return fail(err)
	}
	// The challenges come first: a session that could beat but not be challenged would be wrong, the reverse is merely idle.
	name := s.challengesName(ss.id)
	f, err := s.fs.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return fail(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fail(err)
	}
	if ss.lock, err = s.fs.TryLock(name, 0); err != nil {
		return fail(err)
	}
	if ss.challenges, err = s.fs.OpenFile(name, os.O_RDONLY, 0); err != nil {
		return fail(err)
	}
	if err := ss.newFile(0, nil); err != nil { // its barrier covers the challenges too
		return fail(err)
	}
	return ss, nil
}

// close lets go of the files. The leases of the session live on until they lapse by their last beat.
func (ss *session) close() error {
	if ss == nil {
		return nil
	}
	var errs []error
	for _, c := range []io.Closer{ss.beat, ss.challenges, ss.lock} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	ss.beat, ss.challenges, ss.lock = nil, nil, nil
	return errors.Join(errs...)
}

// newFile replaces the beat file by one that holds a single beat: at the start, when a list outgrows its area, and after a
// failed flush, which no file survives. It is durable on return.
func (ss *session) newFile(instant int64, list []beatEntry) error {
	if ss.beat != nil {
		ss.beat.Close() // nothing of it is needed any more, and what it holds is durable or was given up
		ss.beat = nil
	}
	capacity := uint32(firstCapacity)
	for int(capacity) < len(list) {
		capacity *= 2
	}
	name := ss.s.beatName(ss.id)
	data, head := appendBeatFile(nil, ss.id, ss.slot.seq+1, instant, list, capacity)
	if err := groupcommit.WriteFile(ss.s.fs, name, data, 0o666); err != nil {
		return err
	}
	f, err := ss.s.fs.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	ss.beat, ss.slot, ss.next, ss.listed = f, head, 1, list
	return nil
}

// write makes one beat durable: an unchanged list costs one small write and one flush. After a failure the file is given up, for
// what a failed flush leaves on the disk is unknown for good; the error says so, and the next beat begins a new file.
func (ss *session) write(instant int64, list []beatEntry) error {
	if ss.beat == nil || len(list) > int(ss.slot.capacity) {
		return ss.newFile(instant, list)
	}
	s := ss.slot
	s.seq++
	s.instant = instant
	err := ss.writeList(&s, list)
	if err == nil {
		_, err = ss.beat.WriteAt(appendSlot(nil, ss.id, s), int64(ss.next)*slotSpacing)
	}
	if err == nil {
		err = ss.beat.Datasync()
	}
	if err != nil {
		ss.beat.Close()
		ss.beat = nil
		ss.slot = s // the new file's sequence number must be above that of a slot which may have reached the disk
		return fmt.Errorf("lease: beat of session %s: %w", ss.id, err)
	}
	ss.slot, ss.next, ss.listed = s, 1-ss.next, list
	return nil
}

// writeList puts a changed list into the area that the newest slot does not use.
func (ss *session) writeList(s *slot, list []beatEntry) error {
	if len(list) == len(ss.listed) && (len(list) == 0 || &list[0] == &ss.listed[0] || slices.Equal(list, ss.listed)) {
		return nil
	}
	data := appendMembers(make([]byte, 0, len(list)*memberBytes), list)
	s.area, s.count, s.listSum = 1-s.area, uint32(len(list)), checksum(data)
	if len(data) == 0 {
		return nil
	}
	_, err := ss.beat.WriteAt(data, s.listAt())
	return err
}

// challenged looks which leases somebody has changed or is about to change. An error means that it may be any.
func (ss *session) challenged() (map[ID]bool, error) {
	ss.mu.Lock()
	ids := ss.own
	if len(ids) > 0 {
		ss.own = map[ID]bool{}
	}
	ss.mu.Unlock()
	info, err := ss.challenges.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == ss.seen {
		return ids, nil
	}
	found := map[ID]bool{}
	n, err := readChallenges(ss.challenges, found)
	ss.seen += n
	maps.Copy(found, ids)
	return found, err
}

// remember notes a promise that a strict write has made. A promise never shrinks.
func (ss *session) remember(id ID, t told) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.edits++
	if old, ok := ss.promise(id); ok && old.tok == t.tok {
		t.current = old.current
		if old.at.After(t.at) {
			t.at = old.at
		}
	}
	ss.told[id] = t
}

// forget drops the promise of a lease that was lost.
func (ss *session) forget(id ID, tok Token) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.told[id].tok == tok {
		ss.edits++
		delete(ss.told, id)
	}
}

// promise returns what the holder was last told. Caller holds mu.
func (ss *session) promise(id ID) (told, bool) {
	t, ok := ss.told[id]
	if t.current && ss.instant.After(t.at) {
		t.at = ss.instant
	}
	return t, ok
}

// renewedAt is what readers of the beat file would find.
func (ss *session) renewedAt(id ID, fence uint64) (time.Time, bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	t, ok := ss.promise(id)
	return t.at, ok && t.tok.Fence == fence
}

// changing says that this table is about to change the record itself. It is called before the change is published.
func (ss *session) changing(id ID) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.own[id] = true
}

// take waits for the turn to beat.
func (ss *session) take(ctx context.Context) error {
	select {
	case ss.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case ss.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-ss.s.closed:
		return fs.ErrClosed
	}
}

func (ss *session) giveBack() { <-ss.turn }

// SweepSessions removes the files of sessions that have ended and that no record names any more, and returns how many there were. It
// reads all records. A root that is retired as a whole needs no sweep.
func (t *Table) SweepSessions(ctx context.Context) (removed int, err error) {
	names, err := t.s.fs.ReadDir(filepath.Join(t.s.root, renewalsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("lease: list sessions: %w", err)
	}
	// A session is locked from before its first claim until its end, so one that can be locked here will name no further record.
	ended := map[sessionID]io.Closer{}
	defer func() {
		for _, l := range ended {
			l.Close() // the kernel releases the lock even if this fails
		}
	}()
	for _, e := range names {
		text, ok := strings.CutSuffix(e.Name(), challengesExt)
		id := sessionID{}
		if n, err := hex.Decode(id[:], []byte(text)); !ok || len(text) != 2*len(id) || err != nil || n != len(id) {
			continue
		}
		l, err := t.s.fs.TryLock(t.s.challengesName(id), 0)
		if errors.Is(err, vfs.ErrLocked) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("lease: session %s: %w", id, err)
		}
		ended[id] = l
	}
	for r, err := range t.Records(ctx) {
		if err != nil {
			return 0, err // it may be the one that names a session
		}
		if l, ok := ended[r.session]; ok {
			l.Close()
			delete(ended, r.session)
		}
	}
	for id := range ended {
		// The challenges go last: a half-removed session can't beat, but still be challenged.
		for _, name := range []string{t.s.beatName(id), t.s.challengesName(id)} {
			if err := groupcommit.Remove(t.s.fs, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return removed, fmt.Errorf("lease: remove session %s: %w", id, err)
			}
		}
		removed++
	}
	return removed, nil
}

// Magic numbers of file systems on which a write by one client is not at once visible to another (statfs(2)).
var networkFileSystems = map[int64]string{
	0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB", 0x01021997: "9p", 0x00c36400: "Ceph",
	0x0bd00bd0: "Lustre", 0x65735546: "FUSE", 0x5346414f: "AFS", 0x47504653: "GPFS", 0x19830326: "BeeGFS",
}

// oneFlushPossible refuses one-flush renewals where the handshake with claimants can't be relied on.
func (s *store) oneFlushPossible() error {
	if s.kind != kindWork {
		return fmt.Errorf("lease: Options.Renewals OneFlush is for work tables, target groups are renewed strictly: %w", fs.ErrInvalid)
	}
	var st unix.Statfs_t
	if s.opts.FS != vfs.OS || unix.Statfs(s.root, &st) != nil {
		return nil // somebody's own file system, who knows what it does
	}
	if name, ok := networkFileSystems[int64(uint32(st.Type))]; ok {
		return fmt.Errorf("lease: Options.Renewals OneFlush needs a local file system, and %s is on %s: use Strict: %w", s.root, name, errors.ErrUnsupported)
	}
	return nil
}
