package campaign

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
	"shardlease/pkg/lease"
)

// dying is a view of the disk through which nothing happens from the k-th operation on; if that is a sync, the disk has failed it.
func dying(disk *crashfs.FS, k int) (view vfs.FS, died func() bool) {
	n := 0
	return disk.WithFaults(func(c *vfs.Call) error {
		if n++; n >= k {
			return syscall.EIO
		}
		return nil
	}), func() bool { return n >= k }
}

// stageSurvives opens the epoch as the next campaign does, writes a stage, and tells whether power cuts leave it in an epoch that can be opened.
func stageSurvives(disk *crashfs.FS) error {
	e, err := OpenEpoch(disk, "/out", hashA, 4, true)
	if err != nil {
		return err
	}
	output := Output{"x", []byte("x")}
	if _, err := NewStages(disk, e.Staging(), 100).Write(3, stage, []Output{output}); err != nil {
		return err
	}
	for seed := range uint64(20) {
		after := disk.Crash(crashfs.Policy(seed%2), seed)
		again, err := OpenEpoch(after, "/out", hashA, 4, true)
		if err != nil {
			return fmt.Errorf("power cut %d: %w", seed, err)
		}
		if err := NewStages(after, again.Staging(), 100).Check(3, stage, []string{lease.SumID(output.Data).String()}); err != nil {
			return fmt.Errorf("power cut %d: %w", seed, err)
		}
	}
	return nil
}

// F323, G6: whatever a campaign was doing to make its epoch when it died, or when a barrier failed and it died of that, the next one that opens
// the epoch on the healthy disk loses nothing: neither the folder's own name, nor that of the staging folder, nor the state.
func TestAnEpochThatAnEarlierCampaignLeftInDoubtIsMadeDurable(t *testing.T) {
	points := 0
	for k := 1; ; k++ {
		disk := disk(t, "/out")
		view, died := dying(disk, k)
		_, _ = OpenEpoch(view, "/out", hashA, 4, true) // has failed, or has died after its last change
		if !died() {
			break
		}
		points++
		if err := stageSurvives(disk.Clone()); err != nil { // without the dead campaign's lock
			t.Errorf("died at operation %d: %v", k, err)
		}
	}
	if points < 20 {
		t.Errorf("only %d points", points)
	}
}

// The same for the folder of a rank in the staging folder: its name was in doubt when its worker died.
func TestTheStagesOfARankThatDiedAreNotLostInTheNextCampaign(t *testing.T) {
	points := 0
	for k := 1; ; k++ {
		disk := disk(t, "/out")
		e, err := OpenEpoch(disk, "/out", hashA, 4, true)
		if err != nil {
			t.Fatal(err)
		}
		view, died := dying(disk, k)
		other := "00000000000000000000000000000001"
		_, _ = NewStages(view, e.Staging(), 100).Write(3, other, []Output{{"y", []byte("y")}})
		if !died() {
			break
		}
		points++
		if err := stageSurvives(disk.Clone()); err != nil {
			t.Errorf("died at operation %d: %v", k, err)
		}
	}
	if points < 10 {
		t.Errorf("only %d points", points)
	}
}

// Stages that a begun commit will publish survive the next campaign's start.
func TestOpeningAnEpochKeepsItsStages(t *testing.T) {
	disk := disk(t, "/out")
	if err := stageSurvives(disk); err != nil {
		t.Fatal(err)
	}
	disk = disk.Clone()
	e, err := OpenEpoch(disk, "/out", hashA, 4, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := NewStages(disk, e.Staging(), 100).Check(3, stage, []string{lease.SumID([]byte("x")).String()}); err != nil {
		t.Error(err)
	}
	if _, err := OpenEpoch(disk, "/out", hashB, 4, false); !errors.Is(err, ErrEpoch) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("another master, of an epoch that rank 0 has not made: %v", err)
	}
}
