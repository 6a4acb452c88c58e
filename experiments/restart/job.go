package restart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"shardlease/pkg/lease"
	"shardlease/pkg/mpirun"
)

// Faults of a job.
const (
	none        = "nothing"
	killWorker  = "kill a worker"
	killMaster  = "kill a master"
	killRoot    = "kill rank 0"
	killMPIRun  = "kill mpirun"
	pauseMaster = "stop a master for 3 TTL"
	pauseWorker = "stop a worker for 3 TTL"
	fillDisk    = "fill the disk"
)

// unreadable is the status of a record that can't be trusted.
const unreadable = "unreadable"

const (
	markerVariable = "SHARDLEASE_RESTART"
	jobLimit       = 90 * time.Second
)

// job runs mpirun once and does the fault to it after some executions have begun.
func (c *campaign) job(ctx context.Context, fault string) (Job, error) {
	j := Job{Fault: fault, Records: []Record{}}
	stats := filepath.Join(c.work, "stats.json")
	if err := os.Remove(stats); err != nil && !errors.Is(err, os.ErrNotExist) {
		return j, err
	}
	after := c.starts() + 1 // a later job may not have much more to do
	if len(c.Jobs) == 0 {
		after += c.rng.IntN(c.Workers + 2)
	}
	over, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		defer stop()
		var err error
		j.Start, j.End, j.ExitCode, err = c.launch(ctx, stats)
		done <- err
	}()
	ferr := c.disturb(over, fault, after, &j)
	if err := errors.Join(<-done, ferr, c.disk.empty()); err != nil {
		return j, err
	}
	if err := ctx.Err(); err != nil {
		return j, err
	}
	wait(ctx, 5*time.Second, func() bool { return len(c.processes("")) == 0 })
	left := c.processes("")
	j.Left = len(left)
	for _, pid := range left {
		_ = syscall.Kill(pid, syscall.SIGKILL) // recorded; the claim will fail
	}
	return j, errors.Join(c.readStats(stats, &j), c.readRecords(ctx, &j))
}

// launch is the job without its fault. A job that fails is a result like any other.
func (c *campaign) launch(ctx context.Context, stats string) (start, end time.Time, code int, err error) {
	log, err := os.OpenFile(filepath.Join(c.work, outputFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return start, end, 0, err
	}
	defer log.Close()
	w := io.MultiWriter(log, c.env.Log)
	result, err := c.launcher.Run(ctx, mpirun.Job{
		Program: filepath.Join(c.env.Bin, "shardlease"),
		Args: []string{"standalone", "-i", filepath.Join(c.work, "in"), "-o", c.out, "-t", "10", "--max-idle", fmt.Sprint(c.MaxIdle),
			"--workers-per-master", strconv.Itoa(c.PerMaster), "--ranks", strconv.Itoa(c.params.Processes), "--stats-json", stats,
			"--execution-log", filepath.Join(c.work, executionsFile), "--", filepath.Join(c.env.Bin, "restart-target"), c.Sleep},
		Env: []string{"SYMCC_STANDALONE_WORK_EPOCH=" + c.epoch, "SYMCC_STANDALONE_WORK_LEASE_TTL=" + strconv.Itoa(c.TTL), "SYMCC_STANDALONE_WORK_LEASE_SHARDS=4",
			fmt.Sprintf("SYMCC_SHUTDOWN_GRACE_SEC=%d", c.Grace), fmt.Sprintf("SYMCC_FINALIZE_GRACE_SEC=%d", c.Grace), c.mark, "TMPDIR=" + filepath.Join(c.work, "tmp")},
		Ranks: c.params.Processes, AllowRoot: os.Geteuid() == 0, Oversubscribe: true, Timeout: jobLimit, Stdout: w, Stderr: w,
	})
	var exit *mpirun.ExitError
	if err != nil && (result == nil || !errors.As(err, &exit)) {
		return start, end, 0, err
	}
	return result.Start.UTC(), time.Now().UTC(), result.ExitCode, nil
}

// disturb waits until the log shows that many executions, then does the fault. A job that ends before is left as it is.
func (c *campaign) disturb(ctx context.Context, fault string, after int, j *Job) error {
	if fault == none || !wait(ctx, jobLimit, func() bool { return c.starts() >= after }) {
		return nil
	}
	signal := func(which string, sig syscall.Signal) bool {
		var pids []int
		// A rank that is just starting a target is there twice, until the new process has its own environment.
		found := wait(ctx, 2*time.Second, func() bool { pids = c.processes(which); return len(pids) == 1 })
		return found && syscall.Kill(pids[0], sig) == nil
	}
	j.FaultAt = time.Now().UTC()
	worker := fmt.Sprintf("OMPI_COMM_WORLD_RANK=%d", c.params.Processes-1-c.rng.IntN(c.Workers))
	switch fault {
	case killWorker:
		j.Done = signal(worker, syscall.SIGKILL)
	case killMaster:
		j.Done = signal("OMPI_COMM_WORLD_RANK=1", syscall.SIGKILL)
	case killRoot:
		j.Done = signal("OMPI_COMM_WORLD_RANK=0", syscall.SIGKILL)
	case killMPIRun:
		j.Done = signal(mpirunItself, syscall.SIGKILL)
	case pauseMaster, pauseWorker:
		victim := worker
		if fault == pauseMaster {
			victim = "OMPI_COMM_WORLD_RANK=1"
		}
		if j.Done = signal(victim, syscall.SIGSTOP); j.Done {
			wait(ctx, 3*time.Duration(c.TTL)*time.Second, func() bool { return false })
			signal(victim, syscall.SIGCONT)
		}
	case fillDisk:
		if err := c.disk.fill(); err != nil {
			return err
		}
		j.Done = true
		wait(ctx, jobLimit, func() bool { return false }) // the job's end
	default:
		return fmt.Errorf("unknown fault %q in experiment.yaml", fault)
	}
	return nil
}

// starts counts the executions in the log.
func (c *campaign) starts() int {
	data, err := os.ReadFile(filepath.Join(c.work, executionsFile))
	if err != nil {
		return 0 // not begun
	}
	return strings.Count(string(data), `"event":"start"`)
}

// mpirunItself finds the launcher among the processes of a campaign.
const mpirunItself = "mpirun"

// processes lists the living processes of the campaign: all, the rank whose environment has a variable, or mpirun.
func (c *campaign) processes(which string) (pids []int) {
	names, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		panic(err) // the pattern is good
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil || len(data) == 0 {
			continue // it has just gone, or is not ours
		}
		env := strings.Split(string(data), "\x00")
		comm, err := os.ReadFile(filepath.Join(filepath.Dir(name), "comm"))
		if err != nil || !slices.Contains(env, c.mark) {
			continue
		}
		isMPIRun := slices.ContainsFunc([]string{"mpirun", "orterun", "prterun"}, func(name string) bool { return strings.HasPrefix(string(comm), name) })
		if which == "" || which == mpirunItself && isMPIRun || slices.Contains(env, which) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			if err != nil {
				continue // not a process
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

func (c *campaign) readStats(name string, j *Job) error {
	data, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil // rank 0 did not live to write it
	}
	if err != nil {
		return err
	}
	var s struct {
		Final *Final `json:"final"`
		Total struct {
			Stale    int `json:"stale_results"`
			Rejected int `json:"invalid_worker_results"`
			Lost     int `json:"lost_leases"`
		} `json:"total"`
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	j.Reported, j.Final, j.Stale, j.Rejected, j.LostLeases = true, s.Final, s.Total.Stale, s.Total.Rejected, s.Total.Lost
	return nil
}

// readRecords reads what the job has left.
func (c *campaign) readRecords(ctx context.Context, j *Job) error {
	root := filepath.Join(c.out, ".standalone-work-"+c.epoch)
	if _, err := os.Stat(filepath.Join(root, "layout.json")); err != nil {
		return nil // retired, or not begun
	}
	table, err := lease.Open(root, nil)
	if err != nil {
		return err
	}
	defer table.Close() // only read
	data, err := os.ReadFile(filepath.Join(c.work, executionsFile))
	if err != nil {
		return err
	}
	executions, err := parse(data)
	if err != nil {
		return err
	}
	for r, err := range table.Records(ctx) {
		if errors.Is(err, lease.ErrCorrupt) {
			j.Records = append(j.Records, Record{ID: r.ID.String(), Status: unreadable})
			continue
		}
		if err != nil {
			return err
		}
		rec := Record{ID: r.ID.String(), Status: string(r.Status), Fence: r.Token.Fence, AgeS: j.End.Sub(r.Updated).Seconds()}
		for _, e := range executions {
			if e.Event == "start" && e.ID == rec.ID && e.Fence == rec.Fence {
				since := r.Updated.Sub(e.Time).Seconds()
				rec.SinceStartS = &since
			}
		}
		j.Records = append(j.Records, rec)
	}
	return nil
}
