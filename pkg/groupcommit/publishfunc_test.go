package groupcommit_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"testing"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
	"shardlease/pkg/groupcommit/vfs/tracefs"
)

// Assumption A7: a syncfs reports what has failed since its file was opened. Whoever writes first, that file was open before.
func TestSyncFSIsOfAFileOpenedBeforeAnyOfTheWindowWasWritten(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	trace := tracefs.New(crashfs.New(), "/")
	for _, s := range []groupcommit.Strategy{groupcommit.WholeFS, groupcommit.SpareWholeFS} {
		w, err := groupcommit.NewWriter(trace, s, "/"+s.String())
		if err != nil || w.Strategy() != s {
			t.Fatalf("%v became %v, %v", s, w.Strategy(), err)
		}
		for round := range 50 {
			trace.Reset()
			b := w.NewBatch()
			errs := b.PublishFunc(64, func(_, i int) (groupcommit.Update, error) {
				if i < round%3 {
					return groupcommit.Update{}, fs.ErrInvalid // the first ones have no file
				}
				return groupcommit.Update{Name: fmt.Sprintf("/%v.%d", s, i), Data: []byte("new"), Perm: 0o666}, nil
			})
			_, ferr := b.Flush()
			for i, err := range errs {
				if errors.Is(err, fs.ErrInvalid) != (i < round%3) || i >= round%3 && err != nil || ferr != nil {
					t.Fatalf("round %d, update %d: %v, %v", round, i, err, ferr)
				}
			}
			opened, written, synced := map[string]int64{}, int64(0), ""
			for _, e := range trace.Events() {
				switch {
				case e.Op == vfs.OpOpen && e.Flag&(os.O_RDWR|os.O_WRONLY) != 0:
					opened[e.Name] = e.End
				case (e.Op == vfs.OpWrite || e.Op == vfs.OpWriteAt) && (written == 0 || e.Begin < written):
					written = e.Begin
				case e.Op == vfs.OpSyncFS:
					synced = e.Name
				}
			}
			if synced == "" || written == 0 || opened[synced] > written {
				t.Fatalf("%v, round %d: syncfs of %q, which was opened at %d; the first write began at %d", s, round, synced, opened[synced], written)
			}
		}
	}
}

// An update that can't be made up is left out, wherever it stands, and its error is its result.
func TestPublishFuncLeavesOutWhatCannotBeMadeUp(t *testing.T) {
	errSkip := errors.New("skip")
	for _, s := range groupcommit.Strategies() {
		fsys := crashfs.New()
		w, err := groupcommit.NewWriter(fsys, s, "/scratch")
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{1, 7, 40, 600} {
			b := w.NewBatch()
			calls := make([]int, n)
			errs := b.PublishFunc(n, func(worker, i int) (groupcommit.Update, error) {
				if worker < 0 || worker >= groupcommit.MaxWorkers {
					t.Errorf("worker %d", worker)
				}
				calls[i]++
				if i%3 == 0 {
					return groupcommit.Update{Name: fmt.Sprintf("/skipped%d", i)}, errSkip
				}
				return groupcommit.Update{Name: fmt.Sprintf("/%d", i), Data: fmt.Append(nil, i), Perm: 0o666}, nil
			})
			if _, err := b.Flush(); err != nil {
				t.Fatal(err)
			}
			for i, err := range errs {
				if calls[i] != 1 || (err == errSkip) != (i%3 == 0) || i%3 != 0 && err != nil {
					t.Errorf("%v: update %d of %d: %d calls, %v", s, i, n, calls[i], err)
				}
				if _, err := fsys.Lstat(fmt.Sprintf("/skipped%d", i)); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%v: a skipped update is there: %v", s, err)
				}
			}
		}
	}
}
