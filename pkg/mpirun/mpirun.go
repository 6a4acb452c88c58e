package mpirun

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"
)

// Job is one launch. The zero value of each option is the safe one.
type Job struct {
	Program string   // a path, or a name looked up in PATH
	Args    []string // of the program
	Env     []string // KEY=VALUE, added to this process's environment
	Dir     string   // working directory of the ranks; "" means this process's
	Ranks   int      // 1 or more

	HostFile      string   // Open MPI host file; "" means this machine
	AllowRoot     bool     // Open MPI refuses to run as root unless asked; recorded in Result
	Oversubscribe bool     // more ranks than slots; recorded in Result
	ExtraArgs     []string // passed to mpirun as they are; an --mca NAME here replaces ours

	// TempDir holds Open MPI's session files and shared-memory segments of this
	// machine's ranks. Run makes a directory of the job's own in it and removes that
	// with everything in it, and with it those that killed jobs of the same user have
	// left. "" means /dev/shm, or os.TempDir where there is none.
	// With a HostFile it is given to Open MPI as it is, "" leaving Open MPI its
	// defaults; it must then exist on every machine.
	TempDir string

	Timeout time.Duration // of the whole job, after which it is stopped; 0 means none
	Grace   time.Duration // between asking the job to stop and killing it; 0 means DefaultGrace

	// Stdout and Stderr get what the ranks and mpirun print, whole lines at a time,
	// each line of a rank tagged: "[3 stdout] text" (see Untag). nil discards. Both are drained to the
	// end, since mpirun crashes when it can't print. They may be the same writer;
	// writes never overlap.
	Stdout, Stderr io.Writer
}

// DefaultGrace leaves 1.5 s for an orderly end and 2.5 s for mpirun's own kill.
const DefaultGrace = 4 * time.Second

// Result is what is known about a job that ended, however it ended.
type Result struct {
	Argv           []string // of mpirun
	Env            []string // added to the environment of mpirun
	Version        string   // of Open MPI
	Start          time.Time
	Wall           time.Duration
	ExitCode       int            // of mpirun; 128 + signal when it was killed; -1 if it could not be ended
	Root           bool           // ran as root, because AllowRoot was set
	Oversubscribed bool           // had more ranks than this machine has processors, because Oversubscribe was set
	StoppedBy      syscall.Signal // the last signal Run had to send to end the job; 0 when it ended by itself
	Killed         int            // processes of the job that were still there after mpirun, and had to be killed
}

// ExitError says that mpirun ended with a code other than zero. The package
// documentation lists what the codes mean.
type ExitError struct {
	Code   int
	Stderr []byte // last 4 KiB, from the beginning of a line if there is one
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("mpirun: job ended with exit code %d%s", e.Code, explain(e.Code))
}

// explain names what Open MPI's exit codes do not say by themselves.
func explain(code int) string {
	switch {
	case code == 110:
		return " (mpirun's own time limit)"
	case code == 132:
		return " (the program could not be started)"
	case code > 128 && code < 128+65:
		return fmt.Sprintf(" (a process was ended by signal %d, %v)", code-128, syscall.Signal(code-128))
	}
	return ""
}

var (
	// ErrNotFound is returned by Find when there is no mpirun in PATH.
	ErrNotFound = errors.New("mpirun: Open MPI not found: install it (Debian: apt-get install openmpi-bin) or add its mpirun to PATH")
	// ErrUnsupported is returned by Find when mpirun belongs to something else than Open MPI 4 or newer.
	ErrUnsupported = errors.New("mpirun: not a supported Open MPI")
	// ErrSurvivors is returned when mpirun ended with exit code 0 and processes of the
	// job were still at work: what they had done by then is unknown.
	ErrSurvivors = errors.New("mpirun: processes of the job outlived mpirun and were killed")
	// ErrJob is returned when a Job can't be started as it is; the text says what to change.
	ErrJob = errors.New("mpirun: bad job")
)

const (
	worldSizeVariable = "MPIRUN_WORLD_SIZE" // package mpi refuses a world of another size
	jobVariable       = "MPIRUN_JOB_"       // followed by the job's number: marks every process of the job
)

// ChildEnv returns environ without what Open MPI, PMIx and this package set for a
// rank (OMPI_*, PMIX_*, PRTE_*, MPIRUN_WORLD_SIZE). Give it to every program that a
// rank starts: an mpirun among them would refuse to run, and an MPI program would
// take itself for the rank.
func ChildEnv(environ []string) []string {
	var kept []string
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if name == worldSizeVariable || strings.HasPrefix(name, "OMPI_") ||
			strings.HasPrefix(name, "PMIX_") || strings.HasPrefix(name, "PRTE_") {
			continue
		}
		kept = append(kept, v)
	}
	return kept
}
