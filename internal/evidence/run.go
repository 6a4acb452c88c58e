// Package evidence keeps runs: a folder is written beside its final name, described, checksummed, and sealed by a rename.
// Afterwards it is only read.
package evidence

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"shardlease/internal/experiment"
	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
)

const (
	runFile       = "run.json"
	partialSuffix = ".partial"
)

// Identity is what makes two runs the same run for -resume, and what names the folder.
type Identity struct {
	Name       string           `json:"name"`
	Commit     string           `json:"commit"` // "unknown" outside a git checkout
	Dirty      bool             `json:"dirty"`
	DiffSHA256 string           `json:"diff_sha256"` // of the uncommitted changes; empty when clean
	Scale      experiment.Scale `json:"scale"`
	Parts      []string         `json:"parts"`    // experiments, in order
	Complete   bool             `json:"complete"` // whether they are all there are
	Rounds     int              `json:"rounds"`   // override; 0 when the experiments' own numbers hold
	Seed       uint64           `json:"seed"`
	Start      time.Time        `json:"start"`
}

func (id Identity) sameWork(o Identity) bool {
	return id.Commit == o.Commit && id.Dirty == o.Dirty && id.DiffSHA256 == o.DiffSHA256 && id.Scale == o.Scale && id.Rounds == o.Rounds &&
		slices.Equal(id.Parts, o.Parts)
}

var runName = regexp.MustCompile(`^\d{8}T\d{6}Z-[0-9a-z]{7}(-dirty)?(-smoke)?$`)

func (id Identity) name(at time.Time) string {
	commit := (id.Commit + "0000000")[:7]
	name := at.UTC().Format("20060102T150405Z") + "-" + commit
	if id.Dirty {
		name += "-dirty"
	}
	if id.Scale == experiment.Smoke {
		name += "-smoke"
	}
	return name
}

// Run is a run folder being written. Its methods are not safe for concurrent use.
type Run struct {
	Identity
	Dir   string // ends in .partial
	Steps []Step
	root  string
}

// Create starts a new run folder below root, which is created when absent. id.Name is set from the start time.
func Create(root string, id Identity) (*Run, error) {
	if err := groupcommit.MkdirAll(vfs.OS, root, 0o755); err != nil {
		return nil, fmt.Errorf("evidence folder %s: %w", root, err)
	}
	id.Start = id.Start.UTC().Truncate(time.Second)
	for ; ; id.Start = id.Start.Add(time.Second) { // two runs within one second get different names
		id.Name = id.name(id.Start)
		if _, err := os.Lstat(filepath.Join(root, id.Name)); err == nil {
			continue
		}
		dir := filepath.Join(root, id.Name+partialSuffix)
		err := os.Mkdir(dir, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("evidence folder %s: %w", root, err)
		}
		r := &Run{Identity: id, Dir: dir, root: root}
		return r, r.WriteJSON(runFile, id)
	}
}

// ErrNothingToResume is returned by Resume when no unfinished run fits.
var ErrNothingToResume = errors.New("there is no unfinished run of this commit, scale and number of rounds; start one without -resume")

// Resume opens the newest unfinished run that did the same work.
func Resume(root string, id Identity) (*Run, error) {
	names, err := list(root, partialSuffix)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Backward(names) {
		r := &Run{Dir: filepath.Join(root, name), root: root}
		if err := experiment.ReadJSON(filepath.Join(r.Dir, runFile), &r.Identity); err != nil || !r.sameWork(id) {
			continue // killed before it had begun, or other work
		}
		err := experiment.ReadJSON(filepath.Join(r.Dir, stepsFile), &r.Steps)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return r, nil
	}
	return nil, fmt.Errorf("%s: %w", root, ErrNothingToResume)
}

// list gives the run folders with the suffix, oldest first.
func list(root, suffix string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		base, ok := strings.CutSuffix(e.Name(), suffix)
		if ok && e.IsDir() && runName.MatchString(base) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Write publishes one file of the run durably. name has slashes.
func (r *Run) Write(name string, data []byte) error {
	if !safePath(name) {
		return fmt.Errorf("%q is no safe name for a file of evidence", name)
	}
	full := filepath.Join(r.Dir, filepath.FromSlash(name))
	if err := groupcommit.MkdirAll(vfs.OS, filepath.Dir(full), 0o755); err != nil {
		return err
	}
	return groupcommit.WriteFile(vfs.OS, full, data, 0o644)
}

// WriteJSON is Write of the one form of JSON used in evidence.
func (r *Run) WriteJSON(name string, v any) error {
	data, err := experiment.EncodeJSON(v)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return r.Write(name, data)
}

// Fresh empties and creates the folder of a step, so that a repeated step never mixes with what an interrupted one left.
func (r *Run) Fresh(name string) (string, error) {
	dir := filepath.Join(r.Dir, name)
	if err := groupcommit.RemoveAll(vfs.OS, dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return dir, groupcommit.MkdirAll(vfs.OS, dir, 0o755)
}

// Seal writes SumsFile over everything in the folder, makes all of it durable, and renames it to its final name, which
// it returns. A run is sealed once; nothing is replaced.
func (r *Run) Seal() (string, error) {
	list, err := sums(r.Dir, SumsFile)
	if err != nil {
		return "", fmt.Errorf("cannot seal: %w", err)
	}
	if err := syncTree(r.Dir); err != nil {
		return "", fmt.Errorf("cannot seal: %w", err)
	}
	if err := r.Write(SumsFile, formatSums(list)); err != nil {
		return "", fmt.Errorf("cannot seal: %w", err)
	}
	final := strings.TrimSuffix(r.Dir, partialSuffix)
	if err := groupcommit.RenameNoReplace(vfs.OS, r.Dir, final); err != nil {
		return "", fmt.Errorf("cannot seal: %w", err)
	}
	return final, nil
}

// syncTree makes the content and the names of a whole tree durable: experiments write raw files with ordinary calls.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return groupcommit.SyncDir(vfs.OS, name)
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}
