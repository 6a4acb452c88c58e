package mpirun

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// bytesPerRank is what a rank's shared-memory segment and its share of the session
// files may take (measured: 4 MiB and a little more under Open MPI 4.1.4). When the
// file system is full, the rank would die of SIGBUS without a word.
const bytesPerRank = 5 << 20

// makeDir makes the job's own directory; "" when other machines take part, which
// would not have it.
func makeDir(j Job) (string, error) {
	if j.HostFile != "" {
		return "", nil
	}
	parent := j.TempDir
	if parent == "" {
		parent = os.TempDir()
		if unix.Access("/dev/shm", unix.W_OK) == nil {
			parent = "/dev/shm"
		}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(parent, &fs); err != nil {
		return "", fmt.Errorf("%w: TempDir: %w", ErrJob, &os.PathError{Op: "statfs", Path: parent, Err: err})
	}
	free, need := fs.Bavail*uint64(fs.Bsize), uint64(j.Ranks)*bytesPerRank
	if free < need {
		return "", fmt.Errorf("%w: TempDir %s has %d MiB free, %d ranks need %d MiB: free some or choose another TempDir",
			ErrJob, parent, free>>20, j.Ranks, need>>20)
	}
	dir, err := os.MkdirTemp(parent, "mpirun-")
	if err != nil {
		return "", fmt.Errorf("%w: TempDir: %w", ErrJob, err)
	}
	return dir, nil
}
