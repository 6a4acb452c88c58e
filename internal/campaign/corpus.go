package campaign

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/lease"
)

// ErrDigest says that an object's content is not what its name says. It is never repaired or overwritten.
var ErrDigest = errors.New("content does not match its SHA-256 name")

// Corpus is the public, flat directory of immutable objects, each named by the SHA-256 of its content. It belongs to one actor.
//
// Objects become visible before their names are durable. So nobody acts on an object that was only seen: Settle makes it durable
// first. Else a power cut could leave a done record whose object is gone.
type Corpus struct {
	fs      vfs.FS
	dir     string
	limit   int64
	writer  string            // tells the temp files of this actor from those of others
	settled map[lease.ID]bool // known to be durable
	named   map[lease.ID]bool // names that this actor has made since its last barrier
}

// NewCorpus returns the corpus in dir; objects over limit bytes are refused. Only one actor at a time, of all campaigns on dir, has the name writer.
func NewCorpus(fsys vfs.FS, dir string, limit int64, writer string) *Corpus {
	return &Corpus{fs: fsys, dir: dir, limit: limit, writer: writer, settled: map[lease.ID]bool{}, named: map[lease.ID]bool{}}
}

// Trust takes an object for durable because a done record says so.
func (c *Corpus) Trust(id lease.ID) { c.settled[id] = true }

// Path is the name of an object.
func (c *Corpus) Path(id lease.ID) string { return filepath.Join(c.dir, id.String()) }

// Read returns an object's content, or an error that matches fs.ErrNotExist, ErrDigest, vfs.ErrTooLarge or the I/O error.
func (c *Corpus) Read(id lease.ID) ([]byte, error) {
	return readObject(c.fs, c.Path(id), id, c.limit)
}

func readObject(fsys vfs.FS, name string, id lease.ID, limit int64) ([]byte, error) {
	data, err := vfs.ReadFile(fsys, name, limit)
	if err != nil {
		return nil, err
	}
	if lease.SumID(data) != id {
		return nil, fmt.Errorf("%s: %w", name, ErrDigest)
	}
	return data, nil
}

// Verify reads the object and compares its digest.
func (c *Corpus) Verify(id lease.ID) error {
	_, err := c.Read(id)
	return err
}

// Add publishes data under its digest and returns when the name is durable. An object that is there already must have the right
// content.
func (c *Corpus) Add(id lease.ID, data []byte) error {
	err := c.Verify(id)
	if errors.Is(err, fs.ErrNotExist) {
		err = c.put(id, data)
	}
	if err != nil {
		return err
	}
	return c.Settle(id)
}

// Promote makes a staged object visible in the corpus under a second name; Settle has to follow at once. It is idempotent: an object already in the corpus
// stays, and a source that is gone is accepted if the destination is right. added tells whether this call made the object visible.
//
// A link, not a rename: a rename across directories is a departure and an arrival, and no standard orders them before their barriers, so a power
// cut could keep the departure alone and lose the object from both. With a link the stage keeps its name until the record is done,
// and all objects of a commit share one barrier.
func (c *Corpus) Promote(staged string, id lease.ID) (added bool, err error) {
	err = c.Verify(id)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	linkErr := c.fs.Link(staged, c.Path(id))
	if err := c.Verify(id); err != nil {
		return false, errors.Join(err, linkErr)
	}
	if linkErr == nil {
		c.named[id] = true
	}
	return linkErr == nil, nil
}

// Settle makes objects durable, whoever has published them, with one barrier. An object that is not known to be durable, and that this actor has not
// named itself, is replaced by a copy first: if the barrier of its publisher has failed, in this run or an earlier one, the kernel may have
// dropped the name while reads go on showing it, and a later barrier that succeeds proves nothing.
func (c *Corpus) Settle(ids ...lease.ID) error {
	var fresh []lease.ID
	for _, id := range ids {
		if c.settled[id] {
			continue
		}
		if !c.named[id] {
			data, err := c.Read(id)
			if err == nil {
				err = c.put(id, data)
			}
			if err != nil {
				return err
			}
		}
		fresh = append(fresh, id)
	}
	if len(fresh) == 0 {
		return nil
	}
	clear(c.named) // now they are durable or in doubt
	if err := groupcommit.SyncDir(c.fs, c.dir); err != nil {
		return err
	}
	for _, id := range fresh {
		c.settled[id] = true
	}
	return nil
}

// put gives data its name in the corpus, in place of what has it now; a barrier has to follow.
func (c *Corpus) put(id lease.ID, data []byte) error {
	tmp, err := groupcommit.Stage(c.fs, filepath.Join(c.dir, ".publish-"+c.writer), data, 0o666)
	if err != nil {
		return err
	}
	if err := c.fs.Rename(tmp, c.Path(id)); err != nil {
		return err
	}
	c.named[id] = true
	return nil
}

// List returns the ids of all objects, in order. Other names are none of the corpus's business.
func (c *Corpus) List() ([]lease.ID, error) {
	entries, err := c.fs.ReadDir(c.dir)
	if err != nil {
		return nil, err
	}
	var ids []lease.ID
	for _, e := range entries {
		if !IsHex(e.Name(), 64) {
			continue
		}
		id, err := lease.ParseID(e.Name())
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// fileID remembers an input file: a file with the same name, size, time and inode is not read again.
type fileID struct {
	name    string
	size    int64
	modTime int64 // Unix nanoseconds
	inode   uint64
}

// Inputs lists the regular files of the input directory that were not seen before.
type Inputs struct {
	fs   vfs.FS
	dir  string
	seen map[fileID]bool
}

// NewInputs watches dir.
func NewInputs(fsys vfs.FS, dir string) *Inputs {
	return &Inputs{fs: fsys, dir: dir, seen: map[fileID]bool{}}
}

// New returns the names of files that are new or have changed, and remembers them. A file that vanishes meanwhile is no error; an
// unreadable directory is: it must not look empty.
func (in *Inputs) New() ([]string, error) {
	entries, err := in.fs.ReadDir(in.dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.Type() != 0 && !e.Type().IsRegular() {
			continue
		}
		name := filepath.Join(in.dir, e.Name())
		info, err := in.fs.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			continue
		}
		id := fileID{e.Name(), info.Size(), info.ModTime().UnixNano(), inode(info)}
		if !in.seen[id] {
			in.seen[id] = true
			names = append(names, name)
		}
	}
	return names, nil
}
