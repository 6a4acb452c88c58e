package groupcommit_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/tracefs"
)

// holderEnv makes the test binary a process that renews the record "rec" in a directory until it uses its spare, and kills itself between
// the exchange and the barrier of the fourth renewal. strategyEnv is its strategy.
const (
	holderEnv   = "GROUPCOMMIT_TEST_HOLDER"
	strategyEnv = "GROUPCOMMIT_TEST_STRATEGY"
)

func dieBeforeTheBarrier(dir string) {
	barriers := 0
	fsys := vfs.Intercept(vfs.OS, func(c *vfs.Call, do func() error) error {
		if c.Op == vfs.OpSyncDir {
			if barriers++; barriers == 4 {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {} // until it is delivered
			}
		}
		return do()
	})
	var s groupcommit.Strategy
	err := s.UnmarshalText([]byte(os.Getenv(strategyEnv)))
	if err == nil {
		err = renewRecord(fsys, dir, s, "one", "two", "three", "four")
	}
	panic(err) // it should not have come so far
}

func renewRecord(fsys vfs.FS, dir string, s groupcommit.Strategy, texts ...string) error {
	w, err := groupcommit.NewWriter(fsys, s, filepath.Join(dir, "scratch"))
	for _, text := range texts {
		b := w.NewBatch()
		errs := b.Publish([]groupcommit.Update{
			{Name: filepath.Join(dir, "rec"), Data: []byte(text), Perm: 0o666},
			{Name: filepath.Join(dir, "other"), Data: []byte(text), Perm: 0o666},
		})
		_, ferr := b.Flush()
		err = errors.Join(err, errors.Join(errs...), ferr)
	}
	return err
}

// The next holder after one that was killed with SIGKILL between exchange and barrier never writes into the file that the
// killed one has retired, which may be the live record of the disk.
func TestTheNextHolderAfterAKilledOneLeavesItsSpareAlone(t *testing.T) {
	eachStrategy(t, func(t *testing.T, s groupcommit.Strategy) {
		dir := t.TempDir()
		holder := exec.Command(os.Args[0])
		holder.Env = append(os.Environ(), holderEnv+"="+dir, strategyEnv+"="+s.String())
		out, err := holder.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("the holder ended with %v: %s", err, out)
		}
		text := func(name string) string { return strings.TrimRight(content(filepath.Join(dir, name)), " \t\n") }
		want(t, "live record", text("rec"), "four")
		var retired *os.File
		if spares(s) {
			want(t, "spare", text("rec.tmp"), "three")
			if retired, err = os.Open(filepath.Join(dir, "rec.tmp")); err != nil {
				t.Fatal(err)
			}
			defer retired.Close()
		}
		trace := tracefs.New(vfs.OS, dir)
		want(t, "next holder", renewRecord(trace, dir, s, "five", "six", "seven", "eight"), nil)
		want(t, "live record", text("rec"), "eight")
		if retired != nil {
			data, err := io.ReadAll(retired)
			want(t, "read", err, nil)
			want(t, "the retired file", strings.TrimRight(string(data), " \t\n"), "three")
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) > 5 { // two records, their spares, scratch.lock
			t.Errorf("%v, %v", entries, err)
		}
	})
}
