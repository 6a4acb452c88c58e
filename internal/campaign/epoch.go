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
	renamedPrefix = ".renamed-standalone-work-"
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
//
// Nothing that rank 0 finds is taken for durable because it can be seen. Whoever made it may have died before its barrier, or because of one that failed,
// and after that a barrier that succeeds proves nothing. So whatever the campaign will rely on is made anew.
func OpenEpoch(fsys vfs.FS, out, id string, shards int, exclusive bool) (*Epoch, error) {
	e := &Epoch{fs: fsys, out: out, ID: id, Shards: shards}
	err := error(nil)
	if exclusive {
		err = e.establish()
	}
	if err == nil {
		err = e.checkState()
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// establish takes the campaign lock and makes the epoch durable. state.json is written last and vouches for the names of the directory and its
// staging directory.
func (e *Epoch) establish() error {
	if err := groupcommit.MkdirAll(e.fs, e.Dir(), 0o777); err != nil {
		return err
	}
	lock, err := e.fs.TryLock(filepath.Join(e.Dir(), "campaign.lock"), 0)
	if errors.Is(err, vfs.ErrLocked) {
		return fmt.Errorf("%w: another campaign is running on epoch %s in %s; wait until it has ended", ErrEpoch, e.ID, e.out)
	}
	if err != nil {
		return err
	}
	e.lock = lock
	err = e.checkState()
	if errors.Is(err, fs.ErrNotExist) {
		err = e.renew()
	}
	if err != nil {
		return err
	}
	if err := groupcommit.WriteFile(e.fs, e.statePath(), e.state(), 0o666); err != nil { // the campaign lock makes the temp name ours
		return err
	}
	return e.dropEmptyStages()
}

// renew gives the directory and its staging directory their names anew, before anything relies on them. The directory is renamed away and back, rather
// than made again, because the campaign lock is in it. A crash in between leaves an epoch that holds nothing; the next one of the same name removes it.
func (e *Epoch) renew() error {
	if err := e.fs.Remove(e.Staging()); err != nil && !errors.Is(err, fs.ErrNotExist) && !isNotEmpty(err) {
		return err
	}
	aside := filepath.Join(e.out, renamedPrefix+e.ID)
	if err := groupcommit.RemoveAll(e.fs, aside); err != nil {
		return err
	}
	if err := e.fs.Rename(e.Dir(), aside); err != nil {
		return err
	}
	if err := groupcommit.Replace(e.fs, aside, e.Dir()); err != nil {
		return err
	}
	return groupcommit.MkdirAll(e.fs, e.Staging(), 0o777)
}

// dropEmptyStages removes the empty directories of workers, who make them anew. One that holds a stage was durable before that was made.
func (e *Epoch) dropEmptyStages() error {
	entries, err := e.fs.ReadDir(e.Staging())
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		if err := e.fs.Remove(filepath.Join(e.Staging(), entry.Name())); err != nil && !isNotEmpty(err) {
			return err
		}
	}
	return nil
}

// isNotEmpty tells that a directory was not removed because there is something in it.
func isNotEmpty(err error) bool { return errors.Is(err, fs.ErrExist) } // which ENOTEMPTY matches, as POSIX allows EEXIST for it

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
