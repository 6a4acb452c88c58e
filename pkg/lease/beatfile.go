package lease

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"time"

	"shardlease/pkg/groupcommit/vfs"
)

// A beat file holds the newest snapshot of what one session renews, in a form that can be overwritten in place:
//
//	0      slot 0 \ a beat overwrites the slot with the lower sequence number
//	4096   slot 1 /
//	8192   list area 0 \ a changed list goes into the area
//	+area  list area 1 / that the newest slot does not use
//
// A slot says at which instant which list was renewed; it and the list carry checksums. A write that did not become durable
// leaves the other slot and its list untouched, so a power cut falls back to the beat before, which is the last one that
// was acknowledged.
const (
	beatMagic   = "slbeat1\n"
	slotBytes   = 64
	slotSpacing = 4096 // a page and a sector of its own each
	listsAt     = 2 * slotSpacing
	memberBytes = 48

	firstCapacity = 80             // members of a new file: one page an area
	maxMembers    = 16 << 20       // more is a damaged count
	beatReadTries = 16             // looks at a file whose writer is at work
	maxBeatFile   = int64(2) << 30 // bounds what a reader takes into memory
)

// beatEntry is one lease of a list. at is zero while the lease is renewed with the instant of the slot; a lease that its holder has stopped
// renewing keeps the instant it was last renewed with, until that has lapsed.
type beatEntry struct {
	id    ID
	fence uint64
	at    int64 // nanoseconds since 1970, or 0
}

// slot is the head of one beat.
type slot struct {
	seq      uint64
	instant  int64 // nanoseconds since 1970
	area     uint8
	capacity uint32 // members of one area: fixed for the file
	count    uint32
	listSum  uint32
}

func appendSlot(dst []byte, session sessionID, s slot) []byte {
	start := len(dst)
	dst = append(dst, beatMagic...)
	dst = append(dst, session[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, s.seq)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(s.instant))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(s.area))
	dst = binary.LittleEndian.AppendUint32(dst, s.capacity)
	dst = binary.LittleEndian.AppendUint32(dst, s.count)
	dst = binary.LittleEndian.AppendUint32(dst, s.listSum)
	dst = append(dst, make([]byte, slotBytes-4-(len(dst)-start))...)
	return binary.LittleEndian.AppendUint32(dst, checksum(dst[start:]))
}

func decodeSlot(data []byte, session sessionID) (slot, bool) {
	if len(data) < slotBytes || !bytes.HasPrefix(data, []byte(beatMagic)) {
		return slot{}, false
	}
	data = data[:slotBytes]
	if binary.LittleEndian.Uint32(data[slotBytes-4:]) != checksum(data[:slotBytes-4]) {
		return slot{}, false
	}
	rest := data[len(beatMagic):]
	if !bytes.Equal(rest[:len(session)], session[:]) {
		return slot{}, false
	}
	rest = rest[len(session):]
	s := slot{
		seq:      binary.LittleEndian.Uint64(rest),
		instant:  int64(binary.LittleEndian.Uint64(rest[8:])),
		area:     uint8(binary.LittleEndian.Uint32(rest[16:])),
		capacity: binary.LittleEndian.Uint32(rest[20:]),
		count:    binary.LittleEndian.Uint32(rest[24:]),
		listSum:  binary.LittleEndian.Uint32(rest[28:]),
	}
	return s, s.area <= 1 && s.count <= s.capacity && s.capacity <= maxMembers && s.instant >= 0
}

func appendMembers(dst []byte, list []beatEntry) []byte {
	for _, m := range list {
		dst = append(dst, m.id[:]...)
		dst = binary.LittleEndian.AppendUint64(dst, m.fence)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(m.at))
	}
	return dst
}

func checksum(data []byte) uint32 { return crc32.Checksum(data, castagnoli) }

func areaBytes(capacity uint32) int64 {
	return (int64(capacity)*memberBytes + slotSpacing - 1) / slotSpacing * slotSpacing
}

func (s slot) listAt() int64 { return listsAt + int64(s.area)*areaBytes(s.capacity) }

// appendBeatFile appends a whole new file that holds one beat, in area 0 and slot 0.
func appendBeatFile(dst []byte, session sessionID, seq uint64, instant int64, list []beatEntry, capacity uint32) ([]byte, slot) {
	start := len(dst)
	members := appendMembers(nil, list)
	s := slot{seq: seq, instant: instant, capacity: capacity, count: uint32(len(list)), listSum: checksum(members)}
	dst = append(dst, make([]byte, listsAt+2*areaBytes(capacity))...)
	copy(dst[start:], appendSlot(nil, session, s))
	copy(dst[start+listsAt:], members)
	return dst, s
}

// beats is what a reader has found in one beat file. members alias the bytes read.
type beats struct {
	slot    slot
	members []byte // sorted by ID
}

// last returns the instant with which the lease was last renewed by a beat.
func (b beats) last(id ID, fence uint64) (time.Time, bool) {
	n := len(b.members) / memberBytes
	i, found := 0, false
	for low, high := 0, n; low < high; {
		mid := (low + high) / 2
		switch c := bytes.Compare(b.members[mid*memberBytes:][:len(id)], id[:]); {
		case c == 0:
			i, found, low = mid, true, high
		case c < 0:
			low = mid + 1
		default:
			high = mid
		}
	}
	if !found {
		return time.Time{}, false
	}
	entry := b.members[i*memberBytes+len(id):]
	if binary.LittleEndian.Uint64(entry) != fence {
		return time.Time{}, false
	}
	at := int64(binary.LittleEndian.Uint64(entry[8:]))
	if at == 0 {
		at = b.slot.instant
	}
	return time.Unix(0, at).UTC(), true
}

// errUnreadableBeats is an answer of its own: neither "renewed" nor "not renewed", so nothing may be decided.
var errUnreadableBeats = errors.New("no valid beat")

// readBeats reads the newest beat of the file. The error matches fs.ErrNotExist if there is none.
//
// The newest valid slot counts, if its list fits its checksum. When it does not, either the writer was faster than this reader, which
// shows in the slots at the next look; or nothing moves: then the list of the newest slot never became durable, so that beat was never
// acknowledged, and the one before counts.
func readBeats(fsys vfs.FS, name string, session sessionID) (beats, error) {
	var before []byte
	for range beatReadTries {
		data, err := vfs.ReadFile(fsys, name, maxBeatFile)
		if err != nil {
			return beats{}, err
		}
		if len(data) < listsAt {
			return beats{}, fmt.Errorf("%s: %d bytes: %w", name, len(data), errUnreadableBeats)
		}
		slots := validSlots(data, session)
		if len(slots) == 0 {
			return beats{}, fmt.Errorf("%s: %w", name, errUnreadableBeats)
		}
		if b, ok := slots[0].list(data); ok {
			return b, nil
		}
		heads := slices.Concat(data[:slotBytes], data[slotSpacing:slotSpacing+slotBytes])
		if !bytes.Equal(heads, before) {
			before = heads
			continue
		}
		if len(slots) == 2 {
			if b, ok := slots[1].list(data); ok {
				return b, nil
			}
		}
		return beats{}, fmt.Errorf("%s: no list fits its checksum: %w", name, errUnreadableBeats)
	}
	return beats{}, fmt.Errorf("%s: changed at each of %d looks: %w", name, beatReadTries, errUnreadableBeats)
}

// validSlots returns the valid slots, newest first.
func validSlots(data []byte, session sessionID) []slot {
	var found []slot
	for i := range 2 {
		if s, ok := decodeSlot(data[i*slotSpacing:], session); ok {
			found = append(found, s)
		}
	}
	if len(found) == 2 && found[0].seq < found[1].seq {
		found[0], found[1] = found[1], found[0]
	}
	return found
}

func (s slot) list(data []byte) (beats, bool) {
	from, n := s.listAt(), int64(s.count)*memberBytes
	if from+n > int64(len(data)) {
		return beats{}, false
	}
	list := data[from : from+n]
	return beats{slot: s, members: list}, checksum(list) == s.listSum
}

// A challenge is a notice to a session that somebody is about to change a record that names it. Challenges are appended to a file of
// the session and need no sync: after a power cut there is no session left to read them.
const challengeBytes = 48

func appendChallenge(dst []byte, id ID, fence uint64) []byte {
	start := len(dst)
	dst = append(dst, id[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, fence)
	return binary.LittleEndian.AppendUint64(dst, uint64(checksum(dst[start:])))
}

// readChallenges reads what has been appended since the last call; f is at that place. If not all of it are whole challenges, that is
// an error: then anything may have been challenged.
func readChallenges(f io.Reader, into map[ID]bool) (n int64, err error) {
	data, err := io.ReadAll(f)
	if err != nil {
		return int64(len(data)), err
	}
	for c := range slices.Chunk(data, challengeBytes) {
		if len(c) < challengeBytes || binary.LittleEndian.Uint64(c[40:]) != uint64(checksum(c[:40])) {
			err = errors.New("lease: a challenge is not whole")
			continue
		}
		into[ID(c[:32])] = true
	}
	return int64(len(data)), err
}

// challenge appends a notice. It fails if it can't be sure that the session will see it.
func challenge(fsys vfs.FS, name string, id ID, fence uint64) error {
	f, err := fsys.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	n, err := f.Write(appendChallenge(nil, id, fence))
	if err == nil && n != challengeBytes {
		err = io.ErrShortWrite
	}
	return errors.Join(err, f.Close())
}
