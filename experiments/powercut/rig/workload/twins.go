package workload

import (
	"fmt"
	"io/fs"
	"strings"

	"shardlease/pkg/groupcommit/vfs"
)

// Twins are versions of the product that are broken on purpose; a rig that lets one pass proves nothing.
var Twins = map[string]string{
	"nodir":  "directory syncs do nothing",
	"nofile": "file syncs do nothing",
}

// Twin returns the file system under the named twin; "" is the real one.
func Twin(name string) (vfs.FS, error) {
	switch name {
	case "":
		return vfs.OS, nil
	case "nodir":
		return noDirSync{vfs.OS}, nil
	case "nofile":
		return noFileSync{vfs.OS}, nil
	}
	var known []string
	for n := range Twins {
		known = append(known, n)
	}
	return nil, fmt.Errorf("unknown twin %q; known are %s", name, strings.Join(known, ", "))
}

type noDirSync struct{ vfs.FS }

func (noDirSync) SyncDir(string) error { return nil }

type noFileSync struct{ vfs.FS }

func (f noFileSync) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	file, err := f.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return unsynced{file}, nil
}

func (noFileSync) SyncFS(string) error { return nil }

type unsynced struct{ vfs.File }

func (unsynced) Sync() error     { return nil }
func (unsynced) Datasync() error { return nil }
