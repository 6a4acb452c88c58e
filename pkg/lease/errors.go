package lease

import (
	"errors"
	"os"
)

// Outcomes of Claim and TakeOver.
var (
	// ErrHeld is returned when somebody else holds a lease that has not lapsed.
	ErrHeld = errors.New("lease: held by another")
	// ErrCommitting is returned when the record is being committed. It is never taken over by time: whoever finds it completes it.
	ErrCommitting = errors.New("lease: being committed")
	// ErrDone is returned when the item is finished, for ever.
	ErrDone = errors.New("lease: already done")
)

// Outcomes for a holder.
var (
	// ErrLost is returned when the record was read and the token no longer holds it: no record, another token, a finished or abandoned
	// state, or a lapsed lease. An I/O error never means lost.
	ErrLost = errors.New("lease: no longer held")
	// ErrManifest is returned by BeginCommit when the record is already being committed with a different manifest.
	ErrManifest = errors.New("lease: a different manifest is already being committed")
	// ErrNotCommitting is returned by Complete when the holder has not called BeginCommit.
	ErrNotCommitting = errors.New("lease: commit has not begun")
)

// What is wrong with the files or the machine.
var (
	// ErrCorrupt is returned for a record that can't be trusted: damaged, of an unknown version, or under a foreign name. It is never
	// overwritten; Records lists it.
	ErrCorrupt = errors.New("lease: record is corrupt")
	// ErrLayout is returned when the root was created with another layout, or lacks parts of its own.
	ErrLayout = errors.New("lease: root was created with another layout")
	// ErrClock is returned when Options.Now is before 1970 or after 2262, where a record's time can't be written.
	ErrClock = errors.New("lease: clock is out of range")
	// ErrLocked is returned when a record's lock was not acquired in time. It also matches os.ErrDeadlineExceeded.
	ErrLocked error = lockedError{}
)

type lockedError struct{}

func (lockedError) Error() string { return "lease: record lock not acquired in time" }
func (lockedError) Timeout() bool { return true }
func (lockedError) Unwrap() error { return os.ErrDeadlineExceeded }
