package mpi

import (
	"errors"
	"fmt"
)

// Wildcards of Recv and TryRecv.
const (
	AnySource = -1
	AnyTag    = -1
)

// Options configures Run. The zero value accepts any world.
type Options struct {
	// WorldSize is the number of ranks the program expects; 0 accepts any number.
	// Another size makes Run fail with ErrWorldSize before its function is called.
	WorldSize int
}

// Message is one received message. Data belongs to the receiver.
type Message struct {
	From, Tag int
	Data      []byte
}

// Error is what the MPI library answered. The standard fixes the names of the
// error classes but not their numbers: Class is the number of this library.
type Error struct {
	Op    string // the MPI function, such as "MPI_Isend"
	Class int
	Text  string // MPI_Error_string, on one line
}

func (e *Error) Error() string {
	return fmt.Sprintf("mpi: %s: %s (class %d)", e.Op, e.Text, e.Class)
}

var (
	// ErrNotBuilt is returned by everything in a program built without MPI.
	ErrNotBuilt = errors.New("mpi: this program was built without MPI: " +
		"build it with -tags mpi and CGO_ENABLED=1, a C compiler and Open MPI's headers (Debian: apt-get install libopenmpi-dev openmpi-bin)")
	// ErrWorldSize is returned by Run when the job has another number of ranks than expected.
	ErrWorldSize = errors.New("mpi: wrong world size")
	// ErrEnded is returned by the methods of a Comm after Run has returned, and by a second Run.
	ErrEnded = errors.New("mpi: MPI has ended in this process")
	// ErrNotSent is returned by Send when its context ended first: the message never left.
	ErrNotSent = errors.New("mpi: message not sent")
	// ErrUnknown is returned by Run when messages that Send accepted were still on their
	// way when all ranks had ended: whether they were received is unknown.
	ErrUnknown = errors.New("mpi: unknown whether sent messages were received")
	// ErrNotFinalized is returned by Run when it left MPI without MPI_Finalize. The
	// process must exit now, with a code other than zero: mpirun then ends the job.
	ErrNotFinalized = errors.New("mpi: left without MPI_Finalize")
)
