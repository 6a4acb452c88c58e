package groupcommit_test

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"syscall"
	"testing"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
	"shardlease/pkg/groupcommit/vfs/tracefs"
)

// breakages are what disks answer to each operation; 0 is a short write.
var breakages = map[vfs.Op][]syscall.Errno{
	vfs.OpOpen:            {syscall.EIO, syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.ESTALE, syscall.EINTR},
	vfs.OpWrite:           {0, syscall.EIO, syscall.ENOSPC, syscall.EDQUOT},
	vfs.OpSync:            {syscall.EIO, syscall.ENOSPC, syscall.EDQUOT},
	vfs.OpClose:           {syscall.EIO, syscall.EDQUOT},
	vfs.OpRename:          {syscall.EIO, syscall.ENOSPC, syscall.EROFS, syscall.ESTALE},
	vfs.OpRenameNoReplace: {syscall.EIO, syscall.EROFS},
	vfs.OpExchange:        {syscall.EIO, syscall.EROFS},
	vfs.OpLink:            {syscall.EIO, syscall.ENOSPC},
	vfs.OpRemove:          {syscall.EIO, syscall.EROFS},
	vfs.OpMkdir:           {syscall.EIO, syscall.ENOSPC, syscall.EROFS},
	vfs.OpSyncDir:         {syscall.EIO, syscall.ENOSPC, syscall.EROFS, syscall.ESTALE, syscall.EINVAL, syscall.ENOTSUP},
	vfs.OpLstat:           {syscall.EIO, syscall.ESTALE},
	vfs.OpReadDir:         {syscall.EIO, syscall.ESTALE},
}

// repeatable are the scenarios that can be run again after a failure; those that move their only source can't.
var repeatable = map[string]bool{
	"mkdirall": true, "mkdirall-existing": true, "removeall": true, "writefile": true, "writefile-leftover": true,
	"batch-one-shard": true, "batch-two-shards": true,
}

// Invariants G5 and G6, FS-3, FS-4, FS-12, FS-16: each primitive and the batch under each error of each of its operations. The error surfaces
// as itself; only a directory sync that the file system does not have is ErrNotDurable; what failed to sync is neither synced again nor
// used; names hold old or new contents; and it works again once the disk does.
func TestEveryPrimitiveOnABrokenDisk(t *testing.T) {
	for _, s := range scenarios {
		dir := setup(t, s.files)
		sound := tracefs.New(vfs.OS, dir)
		if err := s.run(sound, dir); err != nil {
			t.Fatal(err)
		}
		for i, e := range sound.Events() {
			for _, errno := range breakages[e.Op] {
				t.Run(fmt.Sprintf("%s/%d-%s-%v", s.name, i+1, e.Op, errno), func(t *testing.T) { breakOnce(t, s, i+1, errno) })
			}
		}
	}
}

func breakOnce(t *testing.T, s scenario, nth int, errno syscall.Errno) {
	dir := setup(t, s.files)
	trace := tracefs.New(vfs.OS, dir)
	faults := faultfs.New(trace)
	var failed vfs.Call
	from := 0
	rule := faultfs.Rule{Nth: nth, Err: errno, Hook: func(c *vfs.Call) { failed, from = *c, len(trace.Events()) }}
	want := error(errno)
	if errno == 0 {
		rule.Err, rule.Short, want = nil, 1, io.ErrShortWrite
	}
	faults.Inject(rule)
	err := s.run(faults, dir)
	faults.Clear()
	wantIs(t, err, want)
	unsupported := failed.Op == vfs.OpSyncDir && (errno == syscall.EINVAL || errno == syscall.ENOTSUP)
	if errors.Is(err, groupcommit.ErrNotDurable) != unsupported {
		t.Errorf("not durable here is %t, want %t: %v", !unsupported, unsupported, err)
	}
	doubtful := failed.Op == vfs.OpSyncDir || failed.Op == vfs.OpExchange // a swap leaves both names there, done or not
	if doubtful != errors.Is(err, groupcommit.ErrUnknown) {
		t.Errorf("after a failed %s: %v", failed.Op, err)
	}
	for _, e := range trace.Events()[from:] {
		if (failed.Op == vfs.OpSync || failed.Op == vfs.OpSyncDir) && e.Op == failed.Op && e.Name == failed.Name {
			t.Errorf("the failed %s of %s was tried again", e.Op, filepath.Base(e.Name))
		}
		if failed.Op == vfs.OpSync && e.Name == failed.Name && (e.Op == vfs.OpRename || e.Op == vfs.OpRead) {
			t.Errorf("after its failed sync came a %s of %s", e.Op, filepath.Base(e.Name))
		}
	}
	leftover := s.name == "writefile-leftover" && nth <= 3
	wholeContents(t, dir, !leftover)
	if repeatable[s.name] {
		if err := s.run(faults, dir); err != nil {
			t.Errorf("the disk is well again: %v", err)
		}
	}
}
