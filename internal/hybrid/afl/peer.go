package afl

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
)

// Kind is the directory of a peer that a file belongs in.
type Kind string

const (
	Queue   Kind = "queue"   // AFL++ imports these
	Crashes Kind = "crashes" // the target crashed
	Hangs   Kind = "hangs"   // the target ran into the time limit
)

var kinds = []Kind{Queue, Crashes, Hangs}

// ErrPeerBusy is returned by OpenPeer when another process writes under the same name.
var ErrPeerBusy = errors.New("another process already feeds AFL under this name")

// Peer is a directory beside AFL++'s instances, <out>/<name>, from which they import. One process writes it at a time.
// Its methods must not be called concurrently.
type Peer struct {
	fsys vfs.FS
	dir  string
	lock io.Closer
	next map[Kind]int
	sums map[Sum]Kind
}

// OpenPeer creates or reopens the peer and takes its lock, which ends with the process at the latest.
func OpenPeer(fsys vfs.FS, out, name string) (*Peer, error) {
	dir := filepath.Join(out, name)
	for _, kind := range kinds {
		if err := groupcommit.MkdirAll(fsys, filepath.Join(dir, string(kind)), 0o777); err != nil {
			return nil, fmt.Errorf("create AFL peer: %w", err)
		}
	}
	lock, err := fsys.TryLock(filepath.Join(dir, ".lock"), 0)
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("%w: %s (choose another name, or end the other process)", ErrPeerBusy, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("lock AFL peer: %w", err)
	}
	p := &Peer{fsys: fsys, dir: dir, lock: lock}
	if err := p.load(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return p, nil
}

// Dir is the peer's directory.
func (p *Peer) Dir() string { return p.dir }

// Close gives the name free.
func (p *Peer) Close() error { return p.lock.Close() }

// Has says whether the content was published, and where.
func (p *Peer) Has(sum Sum) (Kind, bool) {
	kind, ok := p.sums[sum]
	return kind, ok
}

// load reads what is published from the names alone.
func (p *Peer) load() error {
	next, sums := make(map[Kind]int), make(map[Sum]Kind)
	for _, kind := range kinds {
		err := eachPublished(p.fsys, filepath.Join(p.dir, string(kind)), func(number int, sum Sum) {
			next[kind] = max(next[kind], number+1)
			sums[sum] = kind
		})
		if err != nil {
			return fmt.Errorf("read AFL peer: %w", err)
		}
	}
	p.next, p.sums = next, sums
	return nil
}

// PublishedBy returns the contents that any process has published under <out>/<name>, read from the names. A peer that
// does not exist has published nothing.
func PublishedBy(fsys vfs.FS, out, name string) (map[Sum]Kind, error) {
	p := &Peer{fsys: fsys, dir: filepath.Join(out, name)}
	if _, err := fsys.Lstat(p.dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	err := p.load()
	return p.sums, err
}

// Publish moves a staged file, whose content was synced and has the given sum, into a directory of the peer, under the
// next number there, and makes that durable. src is the number of the input it was made from, or -1. Content that is
// published already is not published again: the staged file then stays where it is.
//
// The name is "id:NNNNNN,src:NNNNNN,op:symcc,sha:<sum>". AFL++ reads only the number; the sum makes publication
// repeatable after a crash without reading a single file.
func (p *Peer) Publish(kind Kind, staged string, sum Sum, src int) (path string, err error) {
	if _, ok := p.sums[sum]; ok {
		return "", nil
	}
	if !slices.Contains(kinds, kind) {
		return "", fmt.Errorf("publish in AFL peer: unknown directory %q", kind)
	}
	path = filepath.Join(p.dir, string(kind), fmt.Sprintf("id:%06d,src:%06d,op:symcc,sha:%x", p.next[kind], max(0, src), sum))
	if err := groupcommit.Replace(p.fsys, staged, path); err != nil {
		// Whether the name is there is unknown now: look again, and never reuse a number that AFL++ may have seen.
		used := p.next[kind] + 1
		err = errors.Join(fmt.Errorf("publish in AFL peer: %w", err), p.load())
		p.next[kind] = max(p.next[kind], used)
		return "", err
	}
	p.next[kind]++
	p.sums[sum] = kind
	return path, nil
}

// eachPublished calls f for each file of a peer's directory that Publish named.
func eachPublished(fsys vfs.FS, dir string, f func(number int, sum Sum)) error {
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if number, sum, ok := parsePublished(entry.Name()); ok {
			f(number, sum)
		}
	}
	return nil
}

func parsePublished(name string) (number int, sum Sum, ok bool) {
	fields := strings.Split(name, ",")
	id, isID := strings.CutPrefix(fields[0], "id:")
	number, err := strconv.Atoi(id)
	if !isID || err != nil || number < 0 {
		return 0, Sum{}, false
	}
	for _, field := range fields[1:] {
		if text, found := strings.CutPrefix(field, "sha:"); found {
			decoded, err := hex.DecodeString(text)
			return number, sum, err == nil && copy(sum[:], decoded) == len(sum) && len(decoded) == len(sum)
		}
	}
	return 0, Sum{}, false
}
