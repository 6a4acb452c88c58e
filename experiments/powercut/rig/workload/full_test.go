package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shardlease/experiments/powercut/rig/loopdev"
	"shardlease/pkg/groupcommit"
	"shardlease/pkg/lease"
)

// FS-11, FS-12, FS-13 on real devices: file systems that run out of bytes or of inodes, and have room again later.
func TestAFullDiskLosesNothingAndNeedsNoRestart(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts small file systems")
	}
	tmpfs := func(options string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, mount := range map[string]func(t *testing.T, dir string){
		"tmpfs-bytes":  tmpfs("size=512k"),
		"tmpfs-inodes": tmpfs("size=8m,nr_inodes=64"),
		"ext4":         smallExt4,
	} {
		for _, s := range groupcommit.Strategies() {
			t.Run(name+"/"+s.String(), func(t *testing.T) {
				dir := t.TempDir()
				mount(t, dir)
				t.Cleanup(func() {
					if err := loopdev.Unmount(dir); err != nil {
						t.Error(err)
					}
				})
				fullDisk(t, dir, s)
			})
		}
	}
}

func smallExt4(t *testing.T, dir string) {
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("needs loop devices: ", err)
	}
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 4<<20); err != nil {
		t.Fatal(err)
	}
	fs, err := loopdev.Find("ext4")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(fs.Format(image), loopdev.Mount(image, dir, "ext4", "")); err != nil {
		t.Fatal(err)
	}
}

// fill takes what is left, bytes and inodes, and returns how to give it back.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	hog := filepath.Join(dir, "hog")
	if err := os.Mkdir(hog, 0o700); err != nil {
		t.Fatal(err)
	}
	for size := 64 << 10; size > 0; size /= 4 { // the last files are empty: they take the inodes
		for i := 0; ; i++ {
			err := hogFile(filepath.Join(hog, fmt.Sprintf("%d-%d", size, i)), make([]byte, size))
			if errors.Is(err, syscall.ENOSPC) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return func() {
		if err := os.RemoveAll(hog); err != nil {
			t.Fatal(err)
		}
	}
}

// hogFile syncs, or the file system would put off the allocation.
func hogFile(name string, data []byte) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

func fullDisk(t *testing.T, dir string, s groupcommit.Strategy) {
	ctx := t.Context()
	opts := &lease.Options{Shards: 2, TTL: time.Hour, Strategy: s}
	table, err := lease.Open(filepath.Join(dir, "work"), opts)
	if err != nil {
		t.Fatal(err)
	}
	targets, err := lease.OpenTargets(filepath.Join(dir, "targets"), opts)
	if err != nil {
		t.Fatal(err)
	}
	held := map[lease.ID]lease.Token{}
	for i := range 4 {
		if held[itemID(i)], err = table.Claim(ctx, itemID(i), nil, lease.Holder{Owner: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	given := held[itemID(1)]
	delete(held, itemID(1))
	operations := map[string]func() error{
		"renew":   func() error { _, err := table.HeartbeatMany(ctx, held); return err },
		"claim":   func() error { _, err := table.TakeOver(ctx, itemID(9), nil, lease.Holder{Owner: "a"}); return err },
		"commit":  func() error { return table.BeginCommit(ctx, itemID(0), held[itemID(0)], json.RawMessage(`{}`)) },
		"abandon": func() error { return table.Abandon(ctx, itemID(1), given) },
		"claim group": func() error {
			tok, err := targets.ClaimGroup(ctx, []uint64{1, 2, 3}, nil, lease.Holder{Owner: "a"})
			if err != nil {
				return err
			}
			return targets.ReleaseGroup(ctx, []uint64{1, 2, 3}, tok)
		},
	}
	free := fill(t, dir)
	full := 0
	for name, do := range operations {
		switch err := do(); {
		case errors.Is(err, syscall.ENOSPC):
			full++
		case err != nil:
			t.Errorf("%s on a full disk: %v", name, err)
		}
	}
	if full == 0 {
		t.Error("nothing met the full disk")
	}
	nothingLost(ctx, t, table)
	free()
	for name, do := range operations {
		if err := do(); err != nil {
			t.Errorf("%s once there is room: %v", name, err)
		}
	}
	nothingLost(ctx, t, table)
}

// nothingLost checks that each record is whole, and that those which were claimed are there with their fence.
func nothingLost(ctx context.Context, t *testing.T, table *lease.Table) {
	t.Helper()
	seen := 0
	for rec, err := range table.Records(ctx) {
		if err != nil {
			t.Error(err)
			continue
		}
		for i := range 4 {
			if rec.ID == itemID(i) && rec.Token.Fence == 1 {
				seen++
			}
		}
	}
	if seen != 4 {
		t.Errorf("%d of 4 claimed records are there", seen)
	}
}
