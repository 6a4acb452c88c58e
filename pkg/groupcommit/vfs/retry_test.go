package vfs

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// FS-17, LK-13.
func TestInterruptedCallIsRepeated(t *testing.T) {
	results := []error{unix.EINTR, unix.EINTR, unix.EIO, nil}
	calls := 0
	err := retry(func() error { calls++; return results[calls-1] })
	if err != unix.EIO || calls != 3 {
		t.Errorf("got %v after %d calls, want EIO after 3", err, calls)
	}
}

// FS-22: a kernel or file system without the flag must not look like any other failure, nor any other like that.
func TestRefusedRenameFlagsAreUnsupported(t *testing.T) {
	for errno, want := range map[unix.Errno]bool{
		unix.EINVAL: true, unix.ENOSYS: true, unix.ENOTSUP: true, unix.EIO: false, unix.EEXIST: false, unix.EXDEV: false,
	} {
		err := renameFlags("exchange", "a", "b", errno)
		if got := errors.Is(err, errors.ErrUnsupported); got != want || !errors.Is(err, errno) {
			t.Errorf("%v: unsupported %v, want %v", err, got, want)
		}
	}
}
