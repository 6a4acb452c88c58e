package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"shardlease/internal/campaign"
	"shardlease/pkg/groupcommit/vfs"
)

const probeLong = `Tries in a new directory below DIR what campaigns and leases need: file and directory sync, renames within and across directories and
without replacing, hard links, and locks that exclude two processes and go with a process that is killed. DIR must exist.

A probe can't see whether a disk lies about syncs, or whether locks exclude processes on different machines.

Exit codes: 0 suitable, 67 not suitable, 73 the directory can't be used.`

// probeHolder is the hidden command of the processes that hold and try the lock.
const probeHolder = "probe-lock"

type probeVerdict struct {
	Dir      string           `json:"dir"`
	Suitable bool             `json:"suitable"`
	Checks   []campaign.Check `json:"checks"`
}

func probeCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{Use: "probe DIR", Short: "Find out whether a directory's file system is fit for leases", Long: probeLong, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return probe(c.OutOrStdout(), args[0], asJSON) }}
	c.Flags().BoolVar(&asJSON, "json", false, "print the verdict as JSON")
	return c
}

func probe(w io.Writer, dir string, asJSON bool) error {
	if _, err := os.ReadDir(dir); err != nil {
		return exitf(campaign.ExitCantCreate, "%v", err)
	}
	work := filepath.Join(dir, ".shardlease-probe-"+strconv.Itoa(os.Getpid()))
	checks := campaign.Probe(vfs.OS, work, time.Now)
	if len(checks) > 1 { // the directory can be made
		checks = append(checks, lockCheck(work))
	}
	v := probeVerdict{Dir: dir, Checks: checks}
	err := campaign.Unsuitable(checks)
	v.Suitable = err == nil
	if asJSON {
		if err := json.NewEncoder(w).Encode(v); err != nil {
			return err
		}
	} else {
		for _, c := range checks {
			state := "ok"
			if !c.OK {
				state = "FAILED " + c.Error
			}
			if !c.Required {
				state += " (not required)"
			}
			fmt.Fprintf(w, "%-30s %8.3f ms  %s\n", c.Name, c.TimeMS, state)
		}
		fmt.Fprintf(w, "suitable: %t\n", v.Suitable)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, campaign.ErrUnsuitable):
		return exitf(campaign.ExitNotDurable, "%v", err)
	}
	return exitf(campaign.ExitCantCreate, "%v", err)
}

// lockCheck has one process hold a lock and others try it, before and after the holder is killed.
func lockCheck(work string) campaign.Check {
	begin := time.Now()
	err := lockBetweenProcesses(work)
	c := campaign.Check{Name: "lock between processes", Required: true, OK: err == nil}
	if err != nil {
		c.Error = campaign.OneLine(err.Error())
	}
	c.TimeMS = float64(time.Since(begin).Microseconds()) / 1000
	return c
}

func lockBetweenProcesses(work string) (err error) {
	if err := os.Mkdir(work, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	name := filepath.Join(work, "lock")
	self, err := os.Executable()
	if err != nil {
		return err
	}
	holder := exec.Command(self, probeHolder, name, "hold")
	out, err := holder.StdoutPipe()
	if err != nil {
		return err
	}
	if _, err := holder.StdinPipe(); err != nil { // the holder ends when we do
		return err
	}
	if err := holder.Start(); err != nil {
		return err
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	if err == nil {
		err = expectTry(self, name, "held", "two processes hold one lock")
	}
	err = errors.Join(err, holder.Process.Kill())
	_ = holder.Wait() // killed: its status says so
	if err != nil {
		return err
	}
	return expectTry(self, name, "free", "the lock of a killed process is not released")
}

func expectTry(self, name, want, otherwise string) error {
	out, err := exec.Command(self, probeHolder, name, "try").Output()
	if err == nil && string(out) != want+"\n" {
		err = errors.New(otherwise)
	}
	return err
}

// probeLockCommand is started by probe, not by people.
func probeLockCommand() *cobra.Command {
	return &cobra.Command{Use: probeHolder + " FILE hold|try", Hidden: true, Args: cobra.ExactArgs(2), RunE: func(c *cobra.Command, args []string) error {
		w := c.OutOrStdout()
		lock, err := vfs.OS.TryLock(args[0], 1)
		if errors.Is(err, vfs.ErrLocked) {
			fmt.Fprintln(w, "held")
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(w, "free")
		if args[1] == "hold" {
			_, _ = io.Copy(io.Discard, os.Stdin) // until the parent has gone
		}
		return lock.Close()
	}}
}
