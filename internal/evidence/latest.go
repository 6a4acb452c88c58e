package evidence

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"shardlease/internal/experiment"
	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
)

// latestFile lies beside runs/ and names the newest sealed runs. It is a file, since a link could not be checksummed.
const latestFile = "latest.json"

// Latest names sealed runs, relative to the folder of latest.json: the newest, whatever it holds, and the newest that
// holds all experiments at smoke scale, and at full scale or above.
type Latest struct {
	Run   string `json:"run"`
	Full  string `json:"full,omitempty"`
	Smoke string `json:"smoke,omitempty"`
}

// SetLatest records a sealed run. runs is the folder that holds it.
func SetLatest(runs, sealed string, id Identity) error {
	dir := filepath.Dir(runs)
	l, err := readLatest(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l.Run = filepath.ToSlash(filepath.Join(filepath.Base(runs), filepath.Base(sealed)))
	switch {
	case !id.Complete:
	case id.Scale == experiment.Smoke:
		l.Smoke = l.Run
	default:
		l.Full = l.Run
	}
	data, err := experiment.EncodeJSON(l)
	if err != nil {
		return err
	}
	return groupcommit.WriteFile(vfs.OS, filepath.Join(dir, latestFile), data, 0o644)
}

func readLatest(dir string) (Latest, error) {
	var l Latest
	err := experiment.ReadJSON(filepath.Join(dir, latestFile), &l)
	return l, err
}

// Newest finds the newest sealed run of any scale; FullRun finds the newest one at full scale, and the committed
// reference run when this checkout has none: a smoke run never stands in for a full one.
func Newest(dir string) (string, error) {
	l, err := readLatest(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return reference(dir)
	}
	if err != nil {
		return "", err
	}
	return existing(filepath.Join(dir, filepath.FromSlash(l.Run)))
}

// FullRun is described at Newest.
func FullRun(dir string) (string, error) {
	l, err := readLatest(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	run := ""
	if l.Full == "" {
		run, err = reference(dir)
	} else {
		run, err = existing(filepath.Join(dir, filepath.FromSlash(l.Full)))
	}
	if err != nil {
		return "", err
	}
	id, err := Info(run)
	if err == nil && id.Scale == experiment.Smoke {
		err = fmt.Errorf("%s is a %s run and can't stand in for a full one: make one with `go tool mage reproduce`", run, id.Scale)
	}
	return run, err
}

func reference(dir string) (string, error) {
	ref := filepath.Join(dir, "reference-run")
	if _, err := os.Stat(filepath.Join(ref, SumsFile)); err != nil {
		return "", fmt.Errorf("%s has no sealed run: make one with `go tool mage reproduce`", dir)
	}
	return ref, nil
}

func existing(run string) (string, error) {
	if _, err := os.Stat(run); err != nil {
		return "", fmt.Errorf("%s names a run that is gone (%w): make one with `go tool mage reproduce`", latestFile, err)
	}
	return run, nil
}

// Info reads the identity of a sealed run.
func Info(run string) (Identity, error) {
	var id Identity
	err := experiment.ReadJSON(filepath.Join(run, runFile), &id)
	return id, err
}
