package campaign

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// Options are the command line and the environment of a standalone campaign, checked. All ranks of a campaign have the same.
type Options struct {
	InputDir         string // seeds, scanned again every second
	OutputDir        string // public corpus and epoch state; "" means a temporary directory, removed after a complete run
	FailedDir        string // "" or where inputs are kept whose target was killed by a signal or timed out
	Timeout          time.Duration
	MaxIdle          time.Duration
	WallTimeout      time.Duration // 0 means none
	WorkersPerMaster int
	Simulate         bool
	Target           []string

	LeaseTTL         time.Duration
	LockAgeHint      time.Duration // accepted for compatibility; locks are never judged by age
	LockTimeout      time.Duration
	ScanInterval     time.Duration
	Shards           int
	Epoch            string // "" means a new one
	ResultMaxObjects int
	ResultMaxBytes   int64
	InputMaxBytes    int64
	ShutdownGrace    time.Duration
	FinalizeGrace    time.Duration

	StatsJSON    string // "" or the file for the statistics
	ExecutionLog string // "" or the file that gets one line at the start and one at the end of each execution
}

// HeartbeatInterval is max(0.1 s, min(30 s, TTL/3)).
func (o *Options) HeartbeatInterval() time.Duration {
	return max(100*time.Millisecond, min(30*time.Second, o.LeaseTTL/3))
}

// StatusInterval is how often masters tell each other whether they are idle: max(0.05 s, min(0.25 s, scan/2)).
func (o *Options) StatusInterval() time.Duration {
	return max(50*time.Millisecond, min(250*time.Millisecond, o.ScanInterval/2))
}

// statusFresh is how long a peer's word is believed.
func (o *Options) statusFresh() time.Duration { return max(time.Second, 10*o.StatusInterval()) }

// fingerprint is what must be equal on all ranks for the campaign to be sound. Ranks started with other settings are refused.
func (o *Options) fingerprint() string {
	return fmt.Sprintf("input=%s timeout=%s max-idle=%s wall=%s workers-per-master=%d simulate=%t ttl=%s lock=%s scan=%s shards=%d objects=%d bytes=%d input-bytes=%d grace=%s target=%q",
		o.InputDir, o.Timeout, o.MaxIdle, o.WallTimeout, o.WorkersPerMaster, o.Simulate, o.LeaseTTL, o.LockTimeout, o.ScanInterval, o.Shards,
		o.ResultMaxObjects, o.ResultMaxBytes, o.InputMaxBytes, o.ShutdownGrace, o.Target)
}

// ErrBudget marks a refused result or input budget, which has an exit code of its own.
var ErrBudget = errors.New("budget out of range")

// Flags are the values of the command line. Times are seconds.
type Flags struct {
	InputDir, OutputDir, FailedDir string
	Timeout, MaxIdle, WallTimeout  float64
	WorkersPerMaster               int
	Simulate                       bool
	StatsJSON, ExecutionLog        string
	Target                         []string
}

// DefaultFlags are the defaults of the command line.
func DefaultFlags() Flags { return Flags{Timeout: 90, MaxIdle: 60, WorkersPerMaster: 90} }

// maxSeconds bounds the times of the command line: ten years.
const maxSeconds = 10 * 365 * 86400.0

// NewOptions checks the flags and the environment. The reference replaces environment values that it can't read or that are not finite by
// defaults and moves the others into their range; here each is refused, since a campaign that silently runs with another TTL than the one
// its user wrote is worse than one that doesn't start. Empty means unset. Errors name the value, its range and what to change; several are joined.
func NewOptions(f Flags, getenv func(string) string) (*Options, error) {
	o := &Options{InputDir: f.InputDir, FailedDir: f.FailedDir, WorkersPerMaster: f.WorkersPerMaster,
		Simulate: f.Simulate, StatsJSON: f.StatsJSON, ExecutionLog: f.ExecutionLog, Target: f.Target}
	p := NewSettings(getenv)
	o.Timeout = p.Flag("--timeout", f.Timeout, 0.001, maxSeconds)
	o.MaxIdle = p.Flag("--max-idle", f.MaxIdle, 0, maxSeconds)
	o.WallTimeout = p.Flag("--wall-timeout", f.WallTimeout, 0, maxSeconds)
	if f.WorkersPerMaster < 1 {
		p.Fail("--workers-per-master is %d; it must be at least 1", f.WorkersPerMaster)
	}
	if f.InputDir == "" {
		p.Fail("no input directory: give the folder with the seeds with -i DIR")
	}
	if len(f.Target) == 0 || f.Target[0] == "" {
		p.Fail("no target: put the program and its arguments after --")
	}
	if f.OutputDir != "" {
		abs, err := filepath.Abs(f.OutputDir)
		if err != nil {
			p.Fail("output directory %s: %v", f.OutputDir, err)
		}
		o.OutputDir = abs
		if in, err := filepath.Abs(f.InputDir); err == nil && in == abs && f.InputDir != "" {
			p.Fail("-i and -o are both %s: seeds and results need a directory each", abs)
		}
	}
	o.environment(p)
	return o, p.Err()
}

// environment reads the variables, which are the reference's.
func (o *Options) environment(p *Settings) {
	long := min(86400, max(120, 4*o.Timeout.Seconds()))
	o.LeaseTTL = p.Seconds("SYMCC_STANDALONE_WORK_LEASE_TTL", long, 1, 86400)
	o.LockAgeHint = p.Seconds("SYMCC_STANDALONE_WORK_LOCK_TTL", 30, 1, 3600)
	o.ScanInterval = p.Seconds("SYMCC_STANDALONE_WORK_SCAN_INTERVAL", 0.25, 0.01, 30)
	o.ShutdownGrace = p.Seconds("SYMCC_SHUTDOWN_GRACE_SEC", min(3600, long), 0, 3600)
	o.FinalizeGrace = p.Seconds("SYMCC_FINALIZE_GRACE_SEC", 30, 0, 3600)
	lock := min(30, max(1, o.ShutdownGrace.Seconds()/4))
	o.LockTimeout = p.Seconds("SYMCC_STANDALONE_WORK_LOCK_ACQUIRE_TIMEOUT", lock, 0.001, 3600)
	o.Shards = int(p.Integer("SYMCC_STANDALONE_WORK_LEASE_SHARDS", 64, 1, 4096))
	o.ResultMaxObjects = int(p.budget("SYMCC_STANDALONE_RESULT_MAX_OBJECTS", 4096, 1, 1_000_000))
	o.InputMaxBytes = p.budget("SYMCC_STANDALONE_INPUT_MAX_BYTES", 256<<20, 1, 1<<40)
	// A child becomes an input in its turn, so the default of the result budget follows a smaller input budget.
	o.ResultMaxBytes = p.budget("SYMCC_STANDALONE_RESULT_MAX_BYTES", min(256<<20, o.InputMaxBytes), 1, 1<<40)
	if o.ResultMaxBytes > o.InputMaxBytes {
		p.Fail("%w: SYMCC_STANDALONE_RESULT_MAX_BYTES is %d, more than SYMCC_STANDALONE_INPUT_MAX_BYTES, %d: children must be acceptable as inputs",
			ErrBudget, o.ResultMaxBytes, o.InputMaxBytes)
	}
	if epoch := p.Text("SYMCC_STANDALONE_WORK_EPOCH", ""); epoch != "" && !IsHex(epoch, 64) {
		p.Fail("SYMCC_STANDALONE_WORK_EPOCH is %q; it must have exactly 64 lower-case hexadecimal digits: copy it from the \"Work epoch\" line, or unset it for a new epoch", epoch)
	} else {
		o.Epoch = epoch
	}
	if o.LeaseTTL < 3*o.HeartbeatInterval() {
		p.Fail("SYMCC_STANDALONE_WORK_LEASE_TTL is %s, less than 3 heartbeat intervals of %s: the lease would expire between two heartbeats; raise it", o.LeaseTTL, o.HeartbeatInterval())
	}
}
