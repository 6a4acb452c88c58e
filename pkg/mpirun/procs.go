package mpirun

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// processes finds the processes of one job on this machine. Ranks have process
// groups of their own under Open MPI, so a group is not enough: a process belongs
// to the job if it is in mpirun's session or carries the job's variable, which the
// tools that ranks start inherit even into sessions of their own.
type processes struct {
	session  int    // mpirun's pid; not reused before mpirun is reaped
	variable string // NAME=, unique to the job
}

// list returns the pids of the job, zombies excepted: nothing is left of those but a number.
func (p processes) list() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && p.contains(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// contains answers no for a process that is gone or that may not be looked at.
func (p processes) contains(pid int) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return false
	}
	// pid (name) state ppid pgrp session ...; the name may contain anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 4 || fields[0] == "Z" || fields[0] == "X" {
		return false
	}
	if fields[3] == strconv.Itoa(p.session) {
		return true
	}
	environ, err := os.ReadFile(filepath.Join(dir, "environ"))
	if err != nil {
		return false
	}
	return bytes.HasPrefix(environ, []byte(p.variable)) || bytes.Contains(environ, []byte("\x00"+p.variable))
}

// linger waits until no process of the job is left, but not longer than limit.
func (p processes) linger(limit time.Duration) {
	for deadline := time.Now().Add(limit); len(p.list()) > 0 && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
}

// kill ends every process of the job and returns how many it found. It looks again
// until none is left, since a process may start another before it dies.
func (p processes) kill(limit time.Duration) (killed int, err error) {
	deadline := time.Now().Add(limit)
	var seen []int
	for {
		pids := p.list()
		if len(pids) == 0 {
			return len(seen), nil
		}
		for _, pid := range pids {
			if !slices.Contains(seen, pid) {
				seen = append(seen, pid)
			}
			p.killOne(pid)
		}
		if time.Now().After(deadline) {
			return len(seen), fmt.Errorf("mpirun: processes %v of the job did not die in %v", pids, limit)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// killOne holds the process by its pidfd before it looks again, so that a reused
// number never hits another process.
func (p processes) killOne(pid int) {
	proc, err := os.FindProcess(pid)
	if err != nil {
		return
	}
	defer proc.Release()
	if p.contains(pid) {
		proc.Signal(syscall.SIGKILL) // an error means that it is gone
	}
}
