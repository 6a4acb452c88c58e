package tracefs_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/tracefs"
)

// script runs steps like "write a/x", "sync a", "rename a/x b/y" on a fresh traced directory with a and b in it.
func script(t *testing.T, steps ...string) *tracefs.Trace {
	t.Helper()
	base := t.TempDir()
	for _, d := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(base, d), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	trace := tracefs.New(vfs.OS, base)
	for _, step := range steps {
		f := strings.Fields(step)
		name := filepath.Join(base, f[1])
		var err error
		switch f[0] {
		case "write", "write-sync":
			err = write(trace, name, f[0] == "write-sync")
		case "syncdir":
			err = trace.SyncDir(name)
		case "syncfs":
			err = syncFS(trace, name)
		case "rename":
			err = trace.Rename(name, filepath.Join(base, f[2]))
		case "exchange":
			err = trace.Exchange(name, filepath.Join(base, f[2]))
		case "remove":
			err = trace.Remove(name)
		case "link":
			err = trace.Link(name, filepath.Join(base, f[2]))
		case "mark":
			trace.Mark(f[1])
		default:
			t.Fatalf("unknown step %q", step)
		}
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
	}
	return trace
}

func syncFS(fsys vfs.FS, name string) error {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.SyncFS(), f.Close())
}

func write(fsys vfs.FS, name string, sync bool) error {
	f, err := fsys.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte("content"))
	if sync {
		err = errors.Join(err, f.Sync())
	}
	return errors.Join(err, f.Close())
}

func TestCheckAcceptsDurableOrders(t *testing.T) {
	for name, steps := range map[string][]string{
		"same directory":       {"write-sync a/t", "rename a/t a/x", "syncdir a", "mark ack"},
		"one barrier for two":  {"write-sync a/t", "rename a/t a/x", "write-sync a/u", "rename a/u a/y", "syncdir a", "mark ack"},
		"one temp name reused": {"write-sync a/t", "rename a/t a/x", "write-sync a/t", "rename a/t a/y", "syncdir a", "mark ack"},
		"whole file system":    {"write a/t", "write a/u", "syncfs a", "rename a/t a/x", "rename a/u a/y", "syncdir a", "mark ack"},
		"across directories":   {"write-sync a/t", "rename a/t b/x", "syncdir b", "syncdir a", "mark ack"},
		"link":                 {"write-sync a/t", "link a/t b/x", "syncdir b", "mark ack"},
		"exchange":             {"write-sync a/t", "write-sync a/x", "exchange a/t a/x", "syncdir a", "mark ack"},
		"spare used again":     {"write-sync a/t", "write-sync a/x", "exchange a/t a/x", "syncdir a", "write-sync a/t", "exchange a/t a/x", "syncdir a", "mark ack"},
		"spare replaced":       {"write-sync a/t", "write-sync a/x", "exchange a/t a/x", "remove a/t", "write-sync a/t", "rename a/t a/x", "syncdir a", "mark ack"},
		"change after the ack": {"mark ack", "write-sync a/t", "rename a/t a/x"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := script(t, steps...).Check("ack"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCheckCatchesPlantedBugs(t *testing.T) {
	for name, c := range map[string]struct {
		steps []string
		says  string
	}{
		"no file sync":                   {[]string{"write a/t", "rename a/t a/x", "syncdir a", "mark ack"}, "content of"},
		"write after the sync":           {[]string{"write-sync a/t", "write a/t", "rename a/t a/x", "syncdir a", "mark ack"}, "content of"},
		"file sync after the rename":     {[]string{"write a/t", "rename a/t a/x", "write-sync a/x", "syncdir a", "mark ack"}, "content of"},
		"second use of a temp name":      {[]string{"write-sync a/t", "rename a/t a/x", "write a/t", "rename a/t a/y", "syncdir a", "mark ack"}, "content of"},
		"whole file system too early":    {[]string{"syncfs a", "write a/t", "rename a/t a/x", "syncdir a", "mark ack"}, "content of"},
		"spare not synced":               {[]string{"write-sync a/x", "write a/t", "exchange a/t a/x", "syncdir a", "mark ack"}, "content of"},
		"spare used before the barrier":  {[]string{"write-sync a/t", "write-sync a/x", "exchange a/t a/x", "write-sync a/t", "syncdir a", "mark ack"}, "under the other name"},
		"no directory sync":              {[]string{"write-sync a/t", "rename a/t a/x", "mark ack"}, "no sync of"},
		"another directory":              {[]string{"write-sync a/t", "rename a/t a/x", "syncdir b", "mark ack"}, "no sync of"},
		"directory sync before rename":   {[]string{"write-sync a/t", "syncdir a", "rename a/t a/x", "mark ack"}, "no sync of"},
		"directory sync after the ack":   {[]string{"write-sync a/t", "rename a/t a/x", "mark ack", "syncdir a"}, "no sync of"},
		"barrier between two renames":    {[]string{"write-sync a/t", "rename a/t a/x", "syncdir a", "write-sync a/u", "rename a/u a/y", "mark ack"}, "no sync of"},
		"source before destination":      {[]string{"write-sync a/t", "rename a/t b/x", "syncdir a", "syncdir b", "mark ack"}, "between that of"},
		"link without directory sync":    {[]string{"write-sync a/t", "link a/t b/x", "syncdir a", "mark ack"}, "no sync of"},
		"the second of two acks":         {[]string{"mark ack", "write-sync a/t", "rename a/t a/x", "mark ack"}, "no sync of"},
		"nothing was ever acknowledged":  {[]string{"write-sync a/t", "rename a/t a/x", "syncdir a"}, "nothing marked"},
		"no file sync, not acknowledged": {[]string{"mark ack", "write a/t", "rename a/t a/x"}, "content of"},
	} {
		t.Run(name, func(t *testing.T) {
			err := script(t, c.steps...).Check("ack")
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error with %q", err, c.says)
			}
		})
	}
}

// A barrier that started before the rename ended covers nothing, wherever it ends.
func TestCheckWantsBarriersThatStartAfterTheRename(t *testing.T) {
	base := t.TempDir()
	started, renamed := make(chan struct{}), make(chan struct{})
	slow := vfs.Intercept(vfs.OS, func(c *vfs.Call, do func() error) error {
		if c.Op == vfs.OpSyncDir {
			close(started)
			<-renamed
		}
		return do()
	})
	trace := tracefs.New(slow, base)
	if err := write(trace, base+"/t", true); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := trace.SyncDir(base); err != nil {
			t.Error(err)
		}
	})
	<-started
	if err := trace.Rename(base+"/t", base+"/x"); err != nil {
		t.Error(err)
	}
	close(renamed)
	wg.Wait()
	trace.Mark("ack")
	if err := trace.Check("ack"); err == nil {
		t.Error("accepted a barrier that started before the rename")
	}
}

func TestCountsAndTextLeaveOutFailuresAndPaths(t *testing.T) {
	trace := script(t, "write-sync a/t", "rename a/t a/x", "syncdir a", "syncfs .", "mark ack")
	if err := trace.SyncDir("absent"); err == nil {
		t.Fatal("synced an absent directory")
	}
	c := trace.Counts()
	if c.FileSyncs != 1 || c.DirSyncs != 1 || c.FSSyncs != 1 || len(c.Renames) != 1 {
		t.Errorf("counts %+v", c)
	}
	want := `open a/t wronly create
write a/t 7
sync a/t
close a/t
rename a/t -> a/x
syncdir a
open . rdonly
syncfs .
close .
mark ack
syncdir absent = no such file or directory
`
	if got := trace.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	trace.Reset()
	if n := len(trace.Events()); n != 0 {
		t.Errorf("%d events after Reset", n)
	}
}

func TestTraceIsSafeForConcurrentUse(t *testing.T) {
	base := t.TempDir()
	trace := tracefs.New(vfs.OS, base)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				_, _ = trace.Lstat(base)
				trace.Mark("m")
				_ = trace.Events()
			}
		})
	}
	wg.Wait()
	if n := len(trace.Events()); n != 800 {
		t.Errorf("%d events, want 800", n)
	}
}
