package sim

import (
	"math"
	"math/rand/v2"
	"time"
)

// Plan is what a seed makes of a campaign. Each campaign draws its own mix of faults, most of them absent from most campaigns: a mix of
// everything at once would hide what a few faults alone bring out.
type Plan struct {
	Masters      int  // 1 to 3
	Elastic      bool // each job draws the number of its masters and workers anew
	Seeds        int
	Depth        int // of the tree of children under each seed
	Shards       int
	TTL          time.Duration
	Execution    time.Duration // mean
	MaxDelay     time.Duration // of a message; messages of different pairs of ranks overtake each other
	Skew         time.Duration // of the clocks of two hosts
	NewEpoch     bool          // the first job draws its epoch; otherwise the epoch is given from the start
	LateInputs   int
	FaultyJobs   int // jobs before the one that is left alone
	Disturbances     // of each faulty job
}

// Disturbances are chances of one job, from 0 to 1, rates for each second of it, or rates for each of its file-system operations.
type Disturbances struct {
	Kill      float64 // chance: a rank dies, somewhere between two file-system operations; the launcher kills the others
	PowerCut  float64 // chance: everything dies and the disk keeps what a power cut leaves
	Interrupt float64 // chance: the job is asked to stop
	Wall      float64 // chance: it has a wall timeout
	Pauses    float64 // a second: a rank stands still, up to three times the TTL
	Jumps     float64 // a second: all clocks are set forward or back
	Fast      float64 // an execution: all clocks are fast for a while around its end
	Slow      float64 // an operation: it takes a while, and others go on meanwhile
	Hangs     float64 // an operation: it takes longer than a lease lives
	Errors    float64 // an operation: EIO or ENOSPC; ten times as often a sync that fails and forgets
	Full      float64 // chance: the disk is full from some moment on
	Loss      float64 // a control message
	Copies    float64 // a control message arrives twice
}

// NewPlan draws a plan. The same seed gives the same one.
func NewPlan(seed uint64) Plan {
	rng := rand.New(rand.NewPCG(seed, 0x91a7))
	maybe := func(chance, least, most float64) float64 {
		p, value := rng.Float64(), logUniform(rng, least, most)
		if p >= chance {
			return 0
		}
		return value
	}
	return Plan{
		Masters: []int{1, 2, 2, 3}[rng.IntN(4)], Elastic: rng.IntN(4) == 0,
		Seeds: 1 + rng.IntN(4), Depth: rng.IntN(3), Shards: 1 + rng.IntN(4), TTL: time.Second,
		Execution:  duration(logUniform(rng, 0.05, 1.5)),
		MaxDelay:   duration(logUniform(rng, 0.0005, 0.2)),
		Skew:       duration(maybe(0.3, 0.01, 0.25)),
		NewEpoch:   rng.IntN(2) == 0,
		LateInputs: rng.IntN(2) * rng.IntN(3),
		FaultyJobs: 1 + rng.IntN(4),
		Disturbances: Disturbances{
			Kill: maybe(0.5, 0.3, 1), PowerCut: maybe(0.5, 0.3, 1), Interrupt: maybe(0.25, 0.3, 1), Wall: maybe(0.15, 0.2, 1),
			Pauses: maybe(0.4, 0.1, 1), Jumps: maybe(0.2, 0.05, 0.5), Fast: maybe(0.15, 0.02, 0.5),
			Slow: maybe(0.5, 0.001, 0.05), Hangs: maybe(0.2, 0.00005, 0.001),
			Errors: maybe(0.35, 0.0001, 0.002), Full: maybe(0.15, 0.2, 1),
			Loss: maybe(0.1, 0.002, 0.05), Copies: maybe(0.25, 0.01, 0.5),
		},
	}
}

func logUniform(rng *rand.Rand, least, most float64) float64 {
	return math.Exp(math.Log(least) + rng.Float64()*(math.Log(most)-math.Log(least)))
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
