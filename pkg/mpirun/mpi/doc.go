// Package mpi is a thin binding of the MPI C library: ranks, tagged messages,
// communicators, the MPI barrier and Abort. It does not promise delivery: MPI
// gives no receipts, and a message to a rank that dies is lost without an error.
//
// # Building
//
// The binding is compiled with the build tag mpi. It needs cgo, a C compiler,
// pkg-config and the headers of Open MPI 4 or newer (Debian: openmpi-bin and
// libopenmpi-dev):
//
//	go build -tags mpi ./cmd/...
//
// Without the tag, or with CGO_ENABLED=0, the package compiles and [Run] returns
// [ErrNotBuilt]; [Enabled] tells the two builds apart. Go's build cache does not
// know what pkg-config answered: after another MPI library was installed, use a
// fresh GOCACHE or go build -a.
//
// # How it runs
//
// MPI is initialised once per process, by one goroutine that is locked to its
// thread for ever and makes every MPI call (MPI_THREAD_FUNNELED). Methods of
// [Comm] speak to it over channels, so they may be called from any goroutine and
// a context can end each wait. A request wakes that goroutine at once. For what
// other ranks send, it polls, twice per wake-up since Open MPI makes progress
// only after it has looked; an idle rank backs off to one poll in 5 ms and costs
// about 1 % of a processor, so that waiting ranks leave the machine to working
// ones. The price is a latency of up to 5 ms for a message to a rank that was
// idle.
//
// # Starting
//
// Ranks are started by mpirun, see package mpirun. A rank asks the kernel to be
// killed when mpirun dies; its children are not covered: start each tool with
// SysProcAttr.Pdeathsig (from a goroutine locked to its thread that waits for the
// tool, since the signal is tied to the starting thread) and with the environment
// mpirun.ChildEnv returns.
//
// A program started without mpirun is a singleton: rank 0 of a world of one. So is
// each of the ranks when mpirun belongs to another MPI implementation. A program
// that needs its peers sets [Options].WorldSize; under package mpirun the expected
// size also comes with the environment, and another size is refused.
//
// # Ending
//
// Run returns when every rank has returned from its function, or a short time
// after its context ended or its function failed. In the latter case MPI may not
// be finalised ([ErrNotFinalized]); the process then exits with a code other
// than zero, mpirun ends the other ranks within about a second and exits with that
// code. Ranks that want to end in order with an exit code of their own return nil
// and exit after Run.
//
// # Limits
//
// A message has at most 2^31-1 bytes; tags go from 0 to 32767 in portable
// programs. Communicators live until MPI is finalised. MPI_Init ends the process
// when it fails; nothing can be done about that here.
package mpi
