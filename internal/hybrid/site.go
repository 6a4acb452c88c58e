package hybrid

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"shardlease/internal/campaign"
	"shardlease/internal/hybrid/afl"
	"shardlease/pkg/groupcommit"
	"shardlease/pkg/lease"
)

// maxOutput bounds one output of a solver: AFL++ takes nothing longer.
const maxOutput = afl.MaxInput

// MaxOutputs bounds the files that one run of a solver may write; a run that writes more is a failed one.
const MaxOutputs = 4096

// site is everything a coordinator has opened.
type site struct {
	inst      *afl.Instance
	peer      *afl.Peer
	publisher *publisher
	own       *ownership
	log       *EventLog // nil if there is none
	closers   []func() error
}

// open attaches to AFL and opens the peer, the tables and the event log, or undoes what it has done.
func open(ctx context.Context, o *Options, env *Env) (s *site, err error) {
	s = &site{own: &ownership{owner: o.MasterID, held: campaign.NewHoldings()}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	attach := env.Attach
	if attach == nil {
		attach = afl.Attach
	}
	if s.inst, err = attach(ctx, o.Out, o.Instance); err != nil {
		return s, err
	}
	if _, err = exec.LookPath(o.Solver[0]); err != nil {
		return s, fmt.Errorf("%w: %s (it comes after --): %w", errSolver, o.Solver[0], err)
	}
	if s.peer, err = afl.OpenPeer(env.FS, o.Out, o.Name); err != nil {
		return s, err
	}
	s.closers = append(s.closers, s.peer.Close)
	s.publisher = &publisher{fsys: env.FS, out: o.Out, peer: s.peer, name: o.Name, limit: maxOutput, published: map[afl.Kind]int{}}
	if o.SaveAll != "" {
		if err = groupcommit.MkdirAll(env.FS, o.SaveAll, 0o777); err != nil {
			return s, fmt.Errorf("--save-all: %w", err)
		}
	}
	if err = s.openLog(o, env); err != nil {
		return s, err
	}
	return s, s.openTables(o, env)
}

func (s *site) openLog(o *Options, env *Env) error {
	if o.EventLog == "" {
		return nil
	}
	f, err := os.OpenFile(o.EventLog, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return fmt.Errorf("event log: %w", err)
	}
	s.log = NewEventLog(f, o.MasterID, env.Now)
	s.closers = append(s.closers, f.Close)
	return nil
}

func (s *site) openTables(o *Options, env *Env) error {
	if !o.Leases {
		return nil
	}
	opts := &lease.Options{Shards: o.Shards, TTL: o.LeaseTTL, LockTimeout: o.LockTimeout, FS: env.FS, Now: env.Now}
	if err := groupcommit.MkdirAll(env.FS, filepath.Dir(o.LeaseDir), 0o777); err != nil {
		return fmt.Errorf("work lease table: %w", err)
	}
	work, err := lease.Open(o.LeaseDir, opts)
	if err != nil {
		return fmt.Errorf("work lease table: %w", layoutHint(err, "SYMCC_MULTI_MASTER_LEASE_DIR"))
	}
	s.closers = append(s.closers, work.Close)
	s.own.work = work
	var targets TargetLeases
	if o.TargetLeases {
		opts.TTL = o.TargetTTL
		table, err := lease.OpenTargets(o.TargetDir, opts)
		if err != nil {
			return fmt.Errorf("target lease table: %w", layoutHint(err, "SYMCC_MULTI_MASTER_TARGET_LEASE_DIR"))
		}
		s.closers = append(s.closers, table.Close)
		s.own.targets, targets = table, table
	}
	s.own.entry = newEntry(work, targets, s.log)
	return nil
}

func layoutHint(err error, dir string) error {
	if errors.Is(err, lease.ErrLayout) {
		return fmt.Errorf("%w (all coordinators of one root must use the same SYMCC_MULTI_MASTER_LEASE_SHARDS; or name another root with %s)", err, dir)
	}
	return err
}

// close closes in reverse order of opening.
func (s *site) close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.closers = nil
	return errors.Join(errs...)
}

// errSolver is why a solver program can't be used.
var errSolver = errors.New("solver program not found")

// startCode is the exit code of a coordinator that could not start.
func startCode(err error) int {
	is := func(targets ...error) bool {
		for _, target := range targets {
			if errors.Is(err, target) {
				return true
			}
		}
		return false
	}
	switch {
	case is(afl.ErrNoInstance, afl.ErrNotRunning, afl.ErrIncomplete, afl.ErrNoShowmap, afl.ErrNoTarget, errSolver):
		return campaign.ExitNoInput
	case is(afl.ErrPeerBusy, lease.ErrLayout):
		return campaign.ExitUsage
	case is(groupcommit.ErrNotDurable):
		return campaign.ExitNotDurable
	case is(fs.ErrPermission, fs.ErrNotExist, syscall.ENOSPC, syscall.EROFS, syscall.ENOTDIR, syscall.EISDIR):
		return campaign.ExitCantCreate
	}
	return campaign.ExitIncomplete
}
