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
	fsys    vfs.FS
	dir     string
	lock    io.Closer
	next    map[Kind]int
	sums    map[Sum]Kind
	suspect map[Kind]error // barriers that failed
}

// Staged is a file that is to be published. Its content was synced and has the given sum.
type Staged struct {
	Path   string
	Kind   Kind
	Sum    Sum
	Source int // number of the queue entry it was made from; -1 if there is none
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
	p := &Peer{fsys: fsys, dir: dir, lock: lock, suspect: map[Kind]error{}}
	err = p.load()
	for _, kind := range kinds {
		if err == nil { // what an earlier process published is not durable for being visible
			err = groupcommit.SyncDir(fsys, p.path(kind))
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open AFL peer: %w", err), lock.Close())
	}
	return p, nil
}

func (p *Peer) path(kind Kind) string { return filepath.Join(p.dir, string(kind)) }

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
		err := eachPublished(p.fsys, p.path(kind), func(number int, sum Sum) {
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

// Publish moves staged files into directories of the peer, each under the next number there, and makes that durable with one barrier for
// each directory, however many files went there. Content that is published already is not published again: its staged file stays
// where it is. done counts the files that were moved, also besides an error: a file that can't be moved keeps no other from being published.
//
// The name is "id:NNNNNN,src:NNNNNN,op:symcc,sha:<sum>". AFL++ reads only the number; the sum makes publication
// repeatable after a crash without reading a single file.
//
// After a failed barrier nobody knows whether the names of that directory survive, and trying the barrier again would not tell. So the
// directory takes nothing more and acknowledges nothing more until the peer is opened anew.
func (p *Peer) Publish(files []Staged) (done map[Kind]int, err error) {
	done = make(map[Kind]int)
	var errs []error
	for _, f := range files {
		if !slices.Contains(kinds, f.Kind) {
			errs = append(errs, fmt.Errorf("unknown directory %q", f.Kind))
			continue
		}
		if where, ok := p.sums[f.Sum]; ok {
			errs = append(errs, p.suspect[where])
			continue
		}
		if err := p.suspect[f.Kind]; err != nil {
			errs = append(errs, err)
			continue
		}
		name := filepath.Join(p.path(f.Kind), fmt.Sprintf("id:%06d,src:%06d,op:symcc,sha:%x", p.next[f.Kind], max(0, f.Source), f.Sum))
		p.next[f.Kind]++ // also after an error: AFL++ may have seen the number
		if err := p.fsys.Rename(f.Path, name); err != nil {
			// A network file system may answer a repeated request with an error although the first one was done.
			if _, lerr := p.fsys.Lstat(name); lerr != nil {
				errs = append(errs, err)
				continue
			}
		}
		p.sums[f.Sum] = f.Kind
		done[f.Kind]++
	}
	// The stage needs no barrier: a staged name that a power cut brings back is removed like any other leftover.
	for _, kind := range kinds {
		if done[kind] == 0 {
			continue
		}
		if err := groupcommit.SyncDir(p.fsys, p.path(kind)); err != nil {
			p.suspect[kind] = &groupcommit.BarrierError{Dir: p.path(kind), Err: err}
			errs = append(errs, p.suspect[kind])
		}
	}
	if err := errors.Join(errs...); err != nil {
		return done, fmt.Errorf("publish in AFL peer: %w", err)
	}
	return done, nil
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
