package groupcommit_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
)

// Three records in two directories: three file syncs, three renames, two barriers.
func Example() {
	root, err := os.MkdirTemp("", "groupcommit")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(root)
	for _, dir := range []string{"00", "01"} {
		if err := groupcommit.MkdirAll(vfs.OS, filepath.Join(root, dir), 0o777); err != nil {
			log.Fatal(err)
		}
	}

	b := groupcommit.NewBatch(vfs.OS)
	names := []string{"00/alpha.json", "01/beta.json", "00/gamma.json"}
	updates := make([]groupcommit.Update, len(names))
	for i, name := range names {
		updates[i] = groupcommit.Update{Name: filepath.Join(root, name), Data: []byte("{}\n"), Perm: 0o666}
	}
	for i, err := range b.Publish(updates) { // each name on its own: the others go on after an error
		if err != nil {
			fmt.Println(names[i], "is as it was:", err)
		}
	}
	done, err := b.Flush()
	switch {
	case errors.Is(err, groupcommit.ErrUnknown):
		fmt.Println("read again and write anew:", done.Unknown)
	case err == nil:
		fmt.Println("durable with", len(done.Durable), "barriers")
	}
	// Output: durable with 2 barriers
}

// Where a record was staged elsewhere, it moves between directories on its own: the destination's barrier comes first.
func ExampleReplace() {
	root, err := os.MkdirTemp("", "groupcommit")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(root)
	staged, public := filepath.Join(root, "stage", "result"), filepath.Join(root, "public", "result")
	for _, name := range []string{staged, public} {
		if err := groupcommit.MkdirAll(vfs.OS, filepath.Dir(name), 0o777); err != nil {
			log.Fatal(err)
		}
	}
	if err := groupcommit.WriteFile(vfs.OS, staged, []byte("done\n"), 0o666); err != nil {
		log.Fatal(err)
	}
	err = groupcommit.NewBatch(vfs.OS).Replace(staged, public)
	fmt.Println(errors.Is(err, groupcommit.ErrCrossDirectory))
	fmt.Println(groupcommit.Replace(vfs.OS, staged, public))
	// Output:
	// true
	// <nil>
}
