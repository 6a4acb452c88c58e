package groupcommit

import (
	"errors"
	"fmt"
)

var (
	// ErrCrossDirectory is returned by Batch for a source and a destination with different parents. Nothing was done.
	ErrCrossDirectory = errors.New("groupcommit: not a same-directory replacement: source and destination are in different directories")
	// ErrUnknown is matched by errors after which a change is or may be visible, but may not survive a power cut.
	ErrUnknown = errors.New("groupcommit: changed or maybe changed, and durability is unknown")
	// ErrNotDurable is matched when the file system can't sync directories, so that nothing can be made durable there.
	ErrNotDurable = errors.New("groupcommit: this file system does not support directory sync")
	// ErrSuspect is matched when a batch is asked to change a name in a directory whose barrier failed in that batch.
	// Nothing was done.
	ErrSuspect = errors.New("groupcommit: an earlier barrier of this directory failed")
)

// BarrierError says that names changed in Dir may or may not survive. It matches ErrUnknown and the cause.
type BarrierError struct {
	Dir string
	Err error
}

func (e *BarrierError) Error() string {
	return fmt.Sprintf("groupcommit: barrier of directory %s failed, its last changes may or may not survive: %v", e.Dir, e.Err)
}

// Unwrap makes errors.Is match ErrUnknown and the cause.
func (e *BarrierError) Unwrap() []error { return []error{ErrUnknown, e.Err} }

// unknown marks an error of an operation that may have been done all the same.
func unknown(err error) error { return fmt.Errorf("%w: %w", ErrUnknown, err) }
