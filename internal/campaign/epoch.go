package campaign

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
)

const (
	epochPrefix   = ".standalone-work-"
	retiredPrefix = ".retired-standalone-work-"
	stateSchema   = "symcc-standalone-work-state-v1"
)

// Epoch is the durable state of one campaign: lease table, staging directory and state.json, all in one hidden directory of the output directory.
type Epoch struct {
	fs     vfs.FS
	out    string
	ID     string // 64 lower-case hexadecimal digits
	Shards int
	lock   io.Closer
}

type epochState struct {
	Epoch      string `json:"epoch"`
	Schema     string `json:"schema"`
	ShardCount int    `json:"shard_count"`
}

// ErrEpoch says that an epoch directory can't be used with this configuration.
var ErrEpoch = errors.New("work epoch can't be used")

// Dir is the epoch's directory, which is the root of its lease table.
func (e *Epoch) Dir() string { return filepath.Join(e.out, epochPrefix+e.ID) }

// Staging is the root of the staging directories.
func (e *Epoch) Staging() string { return filepath.Join(e.Dir(), "staging") }

// OpenEpoch creates the epoch or opens it again. State that says another epoch or shard count is refused: the same item would have two
// records. Only rank 0 calls it, with exclusive true: it holds the epoch's campaign lock until Close, so that two campaigns can't run on one epoch
// and take each other's leases away. The other masters only check.
func OpenEpoch(fsys vfs.FS, out, id string, shards int, exclusive bool) (*Epoch, error) {
	e := &Epoch{fs: fsys, out: out, ID: id, Shards: shards}
	if err := groupcommit.MkdirAll(fsys, e.Staging(), 0o777); err != nil {
		return nil, err
	}
	if exclusive {
		lock, err := fsys.TryLock(filepath.Join(e.Dir(), "campaign.lock"), 0)
		if errors.Is(err, vfs.ErrLocked) {
			return nil, fmt.Errorf("%w: another campaign is running on epoch %s in %s; wait until it has ended", ErrEpoch, id, out)
		}
		if err != nil {
			return nil, err
		}
		e.lock = lock
		if err := e.createState(); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	if err := e.checkState(); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// Close releases the campaign lock.
func (e *Epoch) Close() error {
	if e.lock == nil {
		return nil
	}
	lock := e.lock
	e.lock = nil
	return lock.Close()
}

func (e *Epoch) statePath() string { return filepath.Join(e.Dir(), "state.json") }

func (e *Epoch) state() []byte {
	return append(mustMarshal(epochState{Epoch: e.ID, Schema: stateSchema, ShardCount: e.Shards}), '\n')
}

// createState publishes state.json once, by a link, which never replaces an earlier one. A link that is already there may be one whose barrier
// failed, so the directory is synced in either case.
func (e *Epoch) createState() error {
	_, err := e.fs.Lstat(e.statePath())
	if err == nil {
		return groupcommit.SyncDir(e.fs, e.Dir())
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	tmp, err := groupcommit.Stage(e.fs, e.statePath(), e.state(), 0o666) // the campaign lock makes the temp name ours
	if err != nil {
		return err
	}
	if err := groupcommit.Link(e.fs, tmp, e.statePath()); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return groupcommit.Remove(e.fs, tmp)
}

func (e *Epoch) checkState() error {
	data, err := vfs.ReadFile(e.fs, e.statePath(), controlLimit)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrEpoch, err)
	}
	if string(data) == string(e.state()) {
		return nil
	}
	var found epochState
	if err := json.Unmarshal(data, &found); err != nil {
		return fmt.Errorf("%w: %s is damaged (%v); start a new epoch, or restore the file", ErrEpoch, e.statePath(), err)
	}
	return fmt.Errorf("%w: %s says epoch %s with %d shards, but this campaign has epoch %s with %d shards; set SYMCC_STANDALONE_WORK_LEASE_SHARDS=%d, or start a new epoch",
		ErrEpoch, e.statePath(), found.Epoch, found.ShardCount, e.ID, e.Shards, found.ShardCount)
}

// Retire ends the epoch: renamed to a retired name without replacing anything, durably, and then removed. A crash in between leaves a retired directory
// that no campaign opens again and that CollectRetired removes. All ranks have stopped using it.
func (e *Epoch) Retire(nonce string) error {
	retired := filepath.Join(e.out, retiredPrefix+e.ID+"-"+nonce)
	if err := groupcommit.RenameNoReplace(e.fs, e.Dir(), retired); err != nil {
		return fmt.Errorf("retire the work epoch: %w", err)
	}
	if err := e.Close(); err != nil {
		return err
	}
	if err := groupcommit.RemoveAll(e.fs, retired); err != nil {
		return fmt.Errorf("remove the retired work epoch (it is finished; delete %s by hand): %w", retired, err)
	}
	return nil
}

// CollectRetired removes what a campaign that died while retiring its epoch has left.
func CollectRetired(fsys vfs.FS, out string) error {
	entries, err := fsys.ReadDir(out)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		rest, ok := strings.CutPrefix(entry.Name(), retiredPrefix)
		if !ok || len(rest) != 64+1+32 || !IsHex(rest[:64], 64) || !IsHex(rest[65:], 32) || !entry.IsDir() {
			continue
		}
		if err := groupcommit.RemoveAll(fsys, filepath.Join(out, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}
