package sim

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"shardlease/internal/campaign"
	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs/crashfs"
	"shardlease/pkg/lease"
)

// Result is what became of one campaign. Violation is "" if all invariants held.
type Result struct {
	Seed       uint64  `json:"seed"`
	Violation  string  `json:"violation"`
	SimulatedS float64 `json:"simulated_s"`
	Items      int     `json:"items"` // with a done record at the end
	Executions int     `json:"executions"`
	Bound      int     `json:"bound"` // of Executions
	Counts
}

// Counts is what happened in a campaign.
type Counts struct {
	Jobs        int `json:"jobs"`
	Disorderly  int `json:"disorderly"` // jobs that were cut off
	Kills       int `json:"kills"`
	PowerCuts   int `json:"power_cuts"`
	Interrupts  int `json:"interrupts"`
	Pauses      int `json:"pauses"`
	Jumps       int `json:"jumps"`
	Hangs       int `json:"hangs"`        // of a file-system operation, and heartbeats that were late for whatever reason
	AtRisk      int `json:"at_risk"`      // leases that there were at pauses, jumps and hangs
	Suspended   int `json:"suspended"`    // file-system operations during which others went on
	Errors      int `json:"errors"`       // of the disk, and locks not acquired in time
	AfterFailed int `json:"after_failed"` // barriers that succeeded in a directory in which one had failed before
	Lost        int `json:"lost"`         // messages
	Repeated    int `json:"repeated"`     // messages
	Stale       int `json:"stale"`        // results that BeginCommit refused
	TakenOver   int `json:"taken_over"`   // claims of an item that had been claimed before
	Operations  int `json:"operations"`   // of file systems
}

// Add adds o to c.
func (c *Counts) Add(o Counts) {
	c.Jobs += o.Jobs
	c.Disorderly += o.Disorderly
	c.Kills += o.Kills
	c.PowerCuts += o.PowerCuts
	c.Interrupts += o.Interrupts
	c.Pauses += o.Pauses
	c.Jumps += o.Jumps
	c.Hangs += o.Hangs
	c.AtRisk += o.AtRisk
	c.Suspended += o.Suspended
	c.Errors += o.Errors
	c.AfterFailed += o.AfterFailed
	c.Lost += o.Lost
	c.Repeated += o.Repeated
	c.Stale += o.Stale
	c.TakenOver += o.TakenOver
	c.Operations += o.Operations
}

const (
	inputDir  = "/in"
	outputDir = "/out"
	epochID   = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// start of simulated time.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world is a campaign and everything that outlives its jobs.
type world struct {
	plan    Plan
	rng     *rand.Rand
	disk    *crashfs.FS
	now     time.Time
	offset  time.Duration // of all wall clocks, by jumps
	inputs  int
	epoch   string
	history io.Writer
	workers int // of the job that had most
	Result

	// What happened, for the invariants.
	contents   map[lease.ID]string // of all objects that there may be
	runs       map[lease.ID]int    // executions
	executions int
	acked      map[lease.ID]*promise
	retired    *snapshot // the records when the epoch was retired
}

// promise is what some master was told about an item and must stay true.
type promise struct {
	fence    uint64 // granted by Claim
	manifest string // made durable by BeginCommit under commit
	commit   uint64
	done     bool // by Complete
}

// Run runs the campaign of a seed from its first job to its end. history, unless nil, gets a line for each event; the same seed gives
// the same text.
func Run(seed uint64, history io.Writer) Result {
	w := &world{plan: NewPlan(seed), rng: rand.New(rand.NewPCG(seed, 0x3071d)), disk: crashfs.New(), now: start, history: history,
		contents: map[lease.ID]string{}, runs: map[lease.ID]int{}, acked: map[lease.ID]*promise{}}
	w.Seed = seed
	if !w.plan.NewEpoch {
		w.epoch = epochID
	}
	w.note("seed %d, plan %+v", seed, w.plan)
	w.disk.SetClock(func() time.Time { return w.now })
	if err := groupcommit.MkdirAll(w.disk, inputDir, 0o777); err != nil {
		panic(err) // nothing fails yet
	}
	for range w.plan.Seeds {
		w.addInput()
	}
	for n := 1; !w.over(); n++ {
		healed := n > w.plan.FaultyJobs
		newJob(w, n, healed).run()
		if healed {
			break
		}
		w.now = w.now.Add(duration(w.rng.Float64() * 3 * w.plan.TTL.Seconds()))
	}
	w.checkEnd()
	w.SimulatedS = w.now.Sub(start).Seconds()
	w.Executions = w.executions
	w.note("end: %+v", w.Result)
	return w.Result
}

// over tells that the campaign is complete or an invariant is violated.
func (w *world) over() bool { return w.Violation != "" || w.retired != nil && w.epochs() == nil }

func (w *world) addInput() {
	w.inputs++
	text := fmt.Sprintf("seed %d", w.inputs)
	w.contents[lease.SumID([]byte(text))] = text
	if err := groupcommit.WriteFile(w.disk, fmt.Sprintf("%s/%d", inputDir, w.inputs), []byte(text), 0o666); err != nil {
		panic(err) // the disk itself is well
	}
}

// epochs lists the epoch directories on the disk.
func (w *world) epochs() (ids []string) {
	entries, err := w.disk.ReadDir(outputDir)
	if err != nil {
		return nil // not made yet
	}
	for _, e := range entries {
		if id, ok := strings.CutPrefix(e.Name(), ".standalone-work-"); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

func (w *world) note(format string, args ...any) {
	if w.history != nil {
		fmt.Fprintf(w.history, "%12.6f  ops %6d  %s\n", w.now.Sub(start).Seconds(), w.Operations, fmt.Sprintf(format, args...))
	}
}

// violate notes the first violation.
func (w *world) violate(invariant int, format string, args ...any) {
	text := fmt.Sprintf("S%d: %s", invariant, fmt.Sprintf(format, args...))
	w.note("VIOLATION %s", text)
	if w.Violation == "" {
		w.Violation = text
	}
}

// children are what every execution of an object writes, whatever else it writes.
func (w *world) children(text string) (list []string) {
	depth := strings.Count(text, "/")
	if depth >= w.plan.Depth || strings.HasPrefix(text, "mark") || strings.HasPrefix(text, "shared") {
		return nil
	}
	list = append(list, text+"/a")
	if lease.SumID([]byte(text))[0]%2 == 0 {
		list = append(list, "shared child")
	}
	return list
}

// target stands for the target program. Besides its children each object has one that tells the executions apart, so that it can be seen whose
// result was published; these marks have none.
func (w *world) target(rng *rand.Rand, job campaign.Job) (e campaign.Execution, took time.Duration) {
	w.executions++
	w.runs[job.ID]++
	text := string(job.Input)
	outputs := w.children(text)
	if !strings.HasPrefix(text, "mark") {
		outputs = append(outputs, markOf(job.ID, w.executions))
	}
	for i, o := range outputs {
		w.contents[lease.SumID([]byte(o))] = o
		e.Outputs = append(e.Outputs, campaign.Output{Name: fmt.Sprint(i), Data: []byte(o)})
	}
	return e, min(duration(rng.ExpFloat64()*w.plan.Execution.Seconds()), 2500*time.Millisecond)
}

func markOf(id lease.ID, execution int) string {
	return fmt.Sprintf("mark of execution %d of %s", execution, id)
}
