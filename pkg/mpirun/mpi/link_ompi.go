//go:build mpi && cgo

package mpi

// The build cache does not see what pkg-config answers; a file of its own keeps a
// second implementation's flags from reusing these objects.

// #cgo pkg-config: ompi-c
import "C"
