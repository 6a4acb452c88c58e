//go:build !mpi || !cgo

package mpi

import "context"

// Enabled reports whether this program was built with MPI.
const Enabled = false

// Comm is a group of ranks. Without MPI there is none.
type Comm struct{}

// Run returns ErrNotBuilt.
func Run(context.Context, Options, func(context.Context, *Comm) error) error { return ErrNotBuilt }

// Rank returns -1.
func (c *Comm) Rank() int { return -1 }

// Size returns 0.
func (c *Comm) Size() int { return 0 }

// Send returns ErrNotBuilt.
func (c *Comm) Send(context.Context, int, int, []byte) error { return ErrNotBuilt }

// Recv returns ErrNotBuilt.
func (c *Comm) Recv(context.Context, int, int) (Message, error) { return Message{}, ErrNotBuilt }

// TryRecv returns ErrNotBuilt.
func (c *Comm) TryRecv(int, int) (Message, bool, error) { return Message{}, false, ErrNotBuilt }

// Split returns ErrNotBuilt.
func (c *Comm) Split(context.Context, int, int) (*Comm, error) { return nil, ErrNotBuilt }

// Barrier returns ErrNotBuilt.
func (c *Comm) Barrier(context.Context) error { return ErrNotBuilt }

// Abort panics: a program without MPI has no job to end.
func (c *Comm) Abort(int) { panic(ErrNotBuilt) }
