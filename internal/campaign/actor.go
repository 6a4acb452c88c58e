package campaign

import (
	"context"
	"time"

	"shardlease/pkg/lease"
)

// Message travels between ranks. Messages of one sender to one receiver arrive in the order they were sent.
type Message struct {
	From, To, Tag int
	Data          []byte
}

// Event is what an actor is stepped with: Tick, Message, Beat, Execution, Failure or Interrupt.
type Event interface{ event() }

// Tick says that time has passed.
type Tick struct{}

// Interrupt asks for an orderly end with what is done so far.
type Interrupt struct{ Signal string }

// Failure says that an action could not be carried out: a message was not accepted.
type Failure struct{ Err error }

func (Tick) event()      {}
func (Failure) event()   {}
func (Interrupt) event() {}
func (Message) event()   {}
func (Beat) event()      {}
func (Execution) event() {}

// Actor is a master or a worker as a state machine: it never waits, starts no goroutine and reads no clock. Whoever steps it (Run, or a
// simulation) carries out the returned actions. Steps of one actor are not concurrent.
type Actor interface {
	// Step handles one event at the time now, which never goes back. File-system work happens within the step.
	Step(ctx context.Context, now time.Time, ev Event) Actions
	// Outcome is valid after a step that returned Done.
	Outcome() Outcome
}

// Actions is what a step wants done.
type Actions struct {
	Send []Message
	Exec *Job  // start this execution and step with its Execution when it has ended
	Lane *Lane // start this heartbeat lane: step it when it is due and step the actor with each Beat that has news
	Done bool  // the actor has ended
	// Wake is when to step with a Tick if nothing else happens. The zero time means never.
	Wake time.Time
}

// Job is one execution of the target.
type Job struct {
	ID    lease.ID
	Fence uint64
	Input []byte
}

// Execution is the end of a Job.
type Execution struct {
	Job
	Outputs  []Output
	Retcode  int // exit status; minus the signal if killed by one
	TimedOut bool
	Start    time.Time
	Elapsed  time.Duration
	// Problem is "" or one of the protocol errors; Detail is its cause.
	Problem, Detail string
}

// Output is one file that the target wrote.
type Output struct {
	Name string
	Data []byte
}

// Executor runs targets. Run returns when no process of the target is left.
type Executor interface {
	Run(ctx context.Context, job Job) Execution
}

// Transport carries messages. All methods may be called concurrently.
type Transport interface {
	Rank() int
	Size() int
	// Send returns when the message is accepted; there are no receipts.
	Send(ctx context.Context, m Message) error
	// Recv waits for the next message from any rank.
	Recv(ctx context.Context) (Message, error)
	// Abort ends all ranks at once, this process included; the job ends with code.
	Abort(code int)
}

// Exit codes of a standalone campaign. 64, 67, 68, 70, 71 and 72 mean what they mean in the reference; the others are ours.
const (
	ExitOK          = 0
	ExitUsage       = 64 // bad option, environment variable or epoch
	ExitNoInput     = 66 // the input directory or the target can't be used
	ExitNotDurable  = 67 // the output directory's file system lacks an operation that durability needs
	ExitBudget      = 68 // bad result or input budget
	ExitUnavailable = 69 // built without MPI, mpirun missing, wrong number of ranks
	ExitIncomplete  = 70 // control failure, rejected results or a shutdown that was not clean
	ExitStats       = 71 // a master's final statistics did not arrive in time
	ExitRetire      = 72 // all work is done, but the epoch directory could not be retired
	ExitCantCreate  = 73 // the output directory can't be created or written
	ExitUnfinished  = 75 // stopped by wall timeout or signal with unfinished work; the epoch is kept: run it again
)

// Outcome is how an actor ended.
type Outcome struct {
	Code int
	// Orderly says that all ranks know of the end, so that MPI can be finalised before the process exits with Code.
	// Otherwise the job has to be aborted.
	Orderly bool
	Reason  string // one sentence if Code is not 0
}
