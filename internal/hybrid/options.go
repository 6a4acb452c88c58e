package hybrid

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"shardlease/internal/campaign"
)

// Options are the command line and the environment of a hybrid campaign, checked. All ranks of a campaign have the same.
type Options struct {
	Out      string // AFL++'s -o directory, absolute
	Instance string // the instance to attach to
	Name     string // ours, as a peer of AFL++
	Solver   []string
	SaveAll  string // "" or where every output of the solver is kept

	Timeout     time.Duration // of one run of the solver program
	MaxIdle     time.Duration // stop when there was nothing to do for so long; 0 means never
	WallTimeout time.Duration // 0 means none

	Leases        bool
	TargetLeases  bool
	LeaseDir      string
	TargetDir     string
	Shards        int
	LeaseTTL      time.Duration
	TargetTTL     time.Duration
	LockTimeout   time.Duration
	MasterID      string
	ShutdownGrace time.Duration
	FinalizeGrace time.Duration

	StatsJSON, ExecutionLog, EventLog string // "" or a file
}

// Flags are the values of the command line. Times are seconds.
type Flags struct {
	Out, Instance, Name            string
	SaveAll                        string
	Timeout, MaxIdle, WallTimeout  float64
	StatsJSON, ExecutionLog, Event string
	Solver                         []string
}

// DefaultFlags are the defaults of the command line.
func DefaultFlags() Flags { return Flags{Timeout: 90} }

const maxSeconds = 10 * 365 * 86400.0

// NewOptions checks the flags and the environment. Errors name the value, its range and what to change; several are joined.
func NewOptions(f Flags, getenv func(string) string) (*Options, error) {
	o := &Options{Instance: f.Instance, Name: f.Name, Solver: f.Solver, SaveAll: f.SaveAll,
		StatsJSON: f.StatsJSON, ExecutionLog: f.ExecutionLog, EventLog: f.Event}
	p := campaign.NewSettings(getenv)
	o.Timeout = p.Flag("--timeout", f.Timeout, 0.001, maxSeconds)
	o.MaxIdle = p.Flag("--max-idle", f.MaxIdle, 0, maxSeconds)
	o.WallTimeout = p.Flag("--wall-timeout", f.WallTimeout, 0, maxSeconds)
	if f.Out == "" {
		p.Fail("no AFL output directory: give the one that afl-fuzz was started with, with -o DIR")
	} else if abs, err := filepath.Abs(f.Out); err != nil {
		p.Fail("AFL output directory %s: %v", f.Out, err)
	} else {
		o.Out = abs
	}
	for flag, name := range map[string]string{"-a": f.Instance, "-n": f.Name} {
		if err := checkName(name); err != nil {
			p.Fail("%s: %v", flag, err)
		}
	}
	if f.Name == f.Instance && f.Name != "" {
		p.Fail("-n and -a are both %q: we need a name of our own beside the AFL instance", f.Name)
	}
	if len(f.Solver) == 0 || f.Solver[0] == "" {
		p.Fail("no solver program: put the SymCC-built program and its arguments after --")
	}
	o.environment(p)
	return o, p.Err()
}

// environment reads the variables, which are the reference's.
func (o *Options) environment(p *campaign.Settings) {
	long := min(86400, max(120, 4*o.Timeout.Seconds()))
	own := filepath.Join(o.Out, o.Name)
	o.Leases = p.Switch("SYMCC_MULTI_MASTER_LEASES", false)
	o.TargetLeases = p.Switch("SYMCC_MULTI_MASTER_TARGET_LEASES", true) && o.Leases
	o.LeaseDir = p.Text("SYMCC_MULTI_MASTER_LEASE_DIR", filepath.Join(own, ".work_lease_table"))
	o.TargetDir = p.Text("SYMCC_MULTI_MASTER_TARGET_LEASE_DIR", filepath.Join(own, ".target_lease_table"))
	o.Shards = int(p.Integer("SYMCC_MULTI_MASTER_LEASE_SHARDS", 256, 1, 4096))
	o.LeaseTTL = p.Seconds("SYMCC_WORK_LEASE_TTL", long, 1, 86400)
	o.TargetTTL = p.Seconds("SYMCC_MULTI_MASTER_TARGET_LEASE_TTL", long, 1, 86400)
	p.Seconds("SYMCC_MULTI_MASTER_LOCK_TTL", 30, 1, 3600) // an age hint of the reference; locks here are never judged by age
	o.LockTimeout = p.Seconds("SYMCC_MULTI_MASTER_LOCK_ACQUIRE_TIMEOUT", 60, 0.001, 3600)
	o.ShutdownGrace = p.Seconds("SYMCC_SHUTDOWN_GRACE_SEC", min(3600, long), 0, 3600)
	o.FinalizeGrace = p.Seconds("SYMCC_FINALIZE_GRACE_SEC", 30, 0, 3600)
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	o.MasterID = p.Text("SYMCC_MASTER_ID", fmt.Sprintf("%s:%d", host, os.Getpid()))
	if o.Leases && filepath.Clean(o.LeaseDir) == filepath.Clean(o.TargetDir) {
		p.Fail("SYMCC_MULTI_MASTER_LEASE_DIR and SYMCC_MULTI_MASTER_TARGET_LEASE_DIR are both %s: work and target leases need a directory each", o.LeaseDir)
	}
}

// HeartbeatInterval is max(0.1 s, min(30 s, shortest TTL/3)).
func (o *Options) HeartbeatInterval() time.Duration {
	ttl := o.LeaseTTL
	if o.TargetLeases {
		ttl = min(ttl, o.TargetTTL)
	}
	return max(100*time.Millisecond, min(30*time.Second, ttl/3))
}

// fingerprint is what must be equal on all ranks.
func (o *Options) fingerprint() string {
	return fmt.Sprintf("out=%s instance=%s name=%s solver=%q timeout=%s", o.Out, o.Instance, o.Name, o.Solver, o.Timeout)
}
