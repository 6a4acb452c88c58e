package crashfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
)

// A file that was synced, in a directory that was not.
func ExampleFS_States() {
	f := crashfs.New()
	h, err := f.OpenFile("/note", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = h.Write([]byte("hello"))
	if err := errors.Join(err, h.Sync(), h.Close()); err != nil {
		fmt.Println(err)
		return
	}
	states := f.States(crashfs.Strict, 1000, 1)
	fmt.Println(states.Count, "states, all of them:", states.Exhaustive)
	for crashed := range states.All() {
		data, err := vfs.ReadFile(crashed, "/note", 100)
		fmt.Printf("%s: %q, missing: %t\n", crashed.Cut(), data, errors.Is(err, fs.ErrNotExist))
	}
	// Output:
	// 2 states, all of them: true
	// /: lost create note: "", missing: true
	// /: kept create note: "hello", missing: false
}

// A writer that forgets the directory barrier is caught at its first promise.
func ExampleSweep_Run() {
	promised := false
	sweep := crashfs.Sweep{Limit: 1000}
	err := sweep.Run(crashfs.New(), func(fsys vfs.FS, acked func(string)) {
		h, err := fsys.OpenFile("/note", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err == nil {
			promised = errors.Join(h.Sync(), h.Close()) == nil
			acked("the note")
		}
	}, func(crashed *crashfs.FS) error {
		if _, err := crashed.Lstat("/note"); promised && err != nil {
			return err
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// power cut after acknowledging the note, strict policy, state 0 of 2, seed 0 (/: lost create note): lstat /note: no such file or directory
}
