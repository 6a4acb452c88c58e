// Package diagrams draws the two drawings of the documentation from the code itself: group commit from recorded traces of the
// library's file-system calls, and the life of a lease from the transition table that the library obeys. So they can't drift: a test
// draws them again and compares.
package diagrams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/lease"
)

// Names of the files in diagrams/.
const (
	TraceFile       = "group-commit.trace.json"
	GroupCommitFile = "group-commit.svg"
	StatesFile      = "lease-states.svg"
)

// Draw records the traces anew and writes all files into dir.
func Draw(ctx context.Context, dir string) error {
	work, err := os.MkdirTemp("", "diagrams-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	traces, err := Record(ctx, work)
	if err != nil {
		return err
	}
	encoded, err := json.MarshalIndent(traces, "", "\t")
	if err != nil {
		return err
	}
	group, err := GroupCommit(traces)
	if err != nil {
		return err
	}
	states, err := States(lease.Transitions)
	if err != nil {
		return err
	}
	return errors.Join(
		groupcommit.WriteFile(vfs.OS, filepath.Join(dir, TraceFile), append(encoded, '\n'), 0o644),
		groupcommit.WriteFile(vfs.OS, filepath.Join(dir, GroupCommitFile), group, 0o644),
		groupcommit.WriteFile(vfs.OS, filepath.Join(dir, StatesFile), states, 0o644),
	)
}

// ReadTraces reads the committed traces.
func ReadTraces(dir string) ([]Trace, error) {
	data, err := os.ReadFile(filepath.Join(dir, TraceFile))
	if err != nil {
		return nil, err
	}
	var traces []Trace
	if err := json.Unmarshal(data, &traces); err != nil {
		return nil, fmt.Errorf("%s: %w", TraceFile, err)
	}
	return traces, nil
}
