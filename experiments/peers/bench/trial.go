package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A trial tries what timings don't show: what a second process can do while a first one holds a lease, and after that was killed. The
// first process is this program with -hold, the second one with -join.

// trialTTL is long next to the start of a process.
const trialTTL = 5 * time.Second

// tried is the outcome for one system. Why holds the errors of what was not possible.
type tried struct {
	System string `json:"tried"`
	Joins  bool   `json:"joins"` // a second process claims another lease meanwhile
	Keeps  bool   `json:"keeps"` // once the holder is killed, its lease is still refused to others until it ends
	Passes bool   `json:"passes"`
	Why    string `json:"why,omitempty"`
}

var trialSystems = []string{"batch", "one-flush", "bbolt", "sqlite", "pebble", "postgresql"}

// runTrials tries all systems at the same time: nothing is timed.
func runTrials(c config) error {
	out := make([]any, len(trialSystems))
	errs := make([]error, len(trialSystems))
	var wg sync.WaitGroup
	for i, name := range trialSystems {
		wg.Go(func() {
			own := c
			own.dir = filepath.Join(c.dir, name)
			out[i], errs[i] = try(own, name)
			if errors.Is(errs[i], errAbsent) {
				out[i], errs[i] = skipped{name, errs[i].Error()}, nil
			}
		})
	}
	wg.Wait()
	enc := json.NewEncoder(os.Stdout)
	for _, o := range out {
		errs = append(errs, enc.Encode(o))
	}
	return errors.Join(errs...)
}

func try(c config, name string) (tried, error) {
	t := tried{System: name}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return t, err
	}
	if name == "postgresql" { // its server is neither of the two processes
		one := c
		one.ids = c.ids[:1]
		server, err := newPostgres(one)
		if err != nil {
			return t, err
		}
		defer server.Close()
	}
	holder, renewed, err := hold(c, name)
	if err != nil {
		return t, fmt.Errorf("%s: %w", name, err)
	}
	defer holder.Wait()         // it was killed
	defer holder.Process.Kill() // again, if it got so far
	var why []string
	note := func(what string, err error) bool {
		if err != nil {
			why = append(why, what+": "+err.Error())
		}
		return err == nil
	}
	t.Joins = note("a second process", join(c, name, 1))
	if err := holder.Process.Kill(); err != nil {
		return t, err
	}
	last := <-renewed
	switch err := join(c, name, 0); {
	case time.Since(last) > trialTTL:
		return t, fmt.Errorf("%s: the host was too slow to ask within %v", name, trialTTL)
	case err == nil:
		why = append(why, "after the kill: the lease was given away before its end")
	default:
		t.Keeps = err.Error() == errHeld.Error() || note("after the kill", err)
	}
	time.Sleep(time.Until(last.Add(trialTTL + 100*time.Millisecond)))
	t.Passes = note("after the end of the lease", join(c, name, 0))
	t.Why = strings.Join(why, "; ")
	return t, nil
}

// hold starts a process that renews lease 0 until it is killed. It returns after the first renewal; the channel then gives the time
// before the last one that was acknowledged.
func hold(c config, name string) (*exec.Cmd, <-chan time.Time, error) {
	cmd := again(c, "-hold", name)
	lines, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	first, last := make(chan bool, 1), make(chan time.Time, 1)
	go func() {
		var at time.Time
		defer func() { close(first); last <- at }()
		for r := bufio.NewScanner(lines); r.Scan(); {
			var ns int64
			if _, err := fmt.Sscan(r.Text(), &ns); err != nil {
				return
			}
			if at.IsZero() {
				first <- true
			}
			at = time.Unix(0, ns)
		}
	}()
	if !<-first {
		return nil, nil, fmt.Errorf("the holder ended: %w", cmd.Wait())
	}
	return cmd, last, nil
}

func runHold(c config, name string) error {
	open := postgresClient
	for _, m := range makers() {
		if m.name == name && name != "postgresql" {
			open = m.make
		}
	}
	c.ids = c.ids[:1]
	s, err := open(c)
	if err != nil {
		return err
	}
	for {
		now := time.Now()
		if err := s.renew(now); err != nil {
			return err
		}
		fmt.Println(now.UnixNano())
		time.Sleep(50 * time.Millisecond)
	}
}

// join starts a process that claims lease number i.
func join(c config, name string, i int) error {
	out, err := again(c, "-join", name, "-lease", fmt.Sprint(i)).Output()
	if err != nil {
		return err
	}
	if text := strings.TrimSpace(string(out)); text != "claimed" {
		return errors.New(text)
	}
	return nil
}

// runJoin says on standard output what came of the claim.
func runJoin(c config, name string, i int) error {
	claim, ok := joiners[name]
	if !ok {
		return fmt.Errorf("unknown system %q", name)
	}
	if err := claim(c, c.ids[i]); err != nil {
		fmt.Println(err)
	} else {
		fmt.Println("claimed")
	}
	return nil
}

// again is this program on the same store.
func again(c config, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", append(args, "-dir", c.dir, "-postgres", c.pgBin)...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}
