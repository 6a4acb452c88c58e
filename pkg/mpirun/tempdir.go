package mpirun

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// bytesPerRank is what a rank's shared-memory segment and its share of the session
// files may take (measured: 4 MiB and a little more under Open MPI 4.1.4). When the
// file system is full, the rank would die of SIGBUS without a word.
const bytesPerRank = 5 << 20

// jobDir is a job's own directory. It is locked from its creation to its removal, so
// that one which is not locked belongs to a job whose Run was killed. The zero value
// is the directory of a job with a HostFile: none.
type jobDir struct {
	path string
	lock *os.File // the directory itself
}

// makeDir makes the directory of the job with that name; none when other machines take
// part, which would not have it. First it removes what dead jobs have left.
func makeDir(j Job, name string) (d jobDir, err error) {
	if j.HostFile != "" {
		return jobDir{}, nil
	}
	parent := j.TempDir
	if parent == "" {
		parent = os.TempDir()
		if unix.Access("/dev/shm", unix.W_OK) == nil {
			parent = "/dev/shm"
		}
	}
	prefix, err := dirPrefix()
	if err != nil {
		return jobDir{}, fmt.Errorf("mpirun: %w", err)
	}
	removeDead(parent, prefix)
	var fs unix.Statfs_t
	if err := unix.Statfs(parent, &fs); err != nil {
		return jobDir{}, fmt.Errorf("%w: TempDir: %w", ErrJob, &os.PathError{Op: "statfs", Path: parent, Err: err})
	}
	free, need := fs.Bavail*uint64(fs.Bsize), uint64(j.Ranks)*bytesPerRank
	if free < need {
		return jobDir{}, fmt.Errorf("%w: TempDir %s has %d MiB free, %d ranks need %d MiB: free some or choose another TempDir",
			ErrJob, parent, free>>20, j.Ranks, need>>20)
	}
	if d, err = createDir(filepath.Join(parent, prefix+name)); err != nil {
		return jobDir{}, fmt.Errorf("%w: TempDir: %w", ErrJob, err)
	}
	return d, nil
}

// dirPrefix begins the names of job directories. It names the boot, since a lock that
// is free says nothing on a file system that other machines mount too.
func dirPrefix() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	boot, _, _ := strings.Cut(string(id), "-")
	return "mpirun-" + boot + "-", nil
}

// createDir makes path appear locked: it would be another job's to remove otherwise.
func createDir(path string) (d jobDir, err error) {
	making := path + ".new"
	if err := os.Mkdir(making, 0o700); err != nil {
		return jobDir{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(making))
		}
	}()
	lock, err := os.Open(making)
	if err != nil {
		return jobDir{}, err
	}
	_ = flock(lock) // it is new: an error means that there are no locks here, so that nobody can take it for dead
	if err := os.Rename(making, path); err != nil {
		return jobDir{}, errors.Join(err, lock.Close())
	}
	return jobDir{path, lock}, nil
}

// flock is free again when this process is dead; what it starts does not inherit it.
func flock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

func (d jobDir) remove() error {
	if d.lock == nil {
		return nil
	}
	return errors.Join(os.RemoveAll(d.path), d.lock.Close())
}

// removeDead removes the directories of this user's jobs that are over: not locked, and
// no process carries the job's variable. What can't be removed is no reason not to start
// a job, and stays for the next one.
func removeDead(parent, prefix string) {
	left, err := filepath.Glob(filepath.Join(parent, prefix+"*"))
	if err != nil {
		return
	}
	for _, path := range left {
		name := strings.TrimPrefix(filepath.Base(path), prefix)
		if len(name) == len(rand.Text()) {
			removeIfDead(path, processes{session: -1, variable: jobVariable + name + "="})
		}
	}
}

func removeIfDead(path string, p processes) {
	dir, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	d := jobDir{path, dir}
	info, err := dir.Stat()
	if err == nil && int(info.Sys().(*syscall.Stat_t).Uid) == os.Geteuid() && flock(dir) == nil && len(p.list()) == 0 {
		_ = d.remove()
		return
	}
	_ = dir.Close() // only read
}
