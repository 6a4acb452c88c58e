package lease

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
)

// These tests use real processes: the test binary runs itself with childEnv set, and children are killed and stopped by signals.

const childEnv = "LEASE_TEST_CHILD"

var children = map[string]func(args []string) error{
	"hammer":  hammer,
	"sleeper": sleeper,
	"hang":    hangInPublish,
	"die":     dieAtOperation,
}

func TestMain(m *testing.M) {
	name := os.Getenv(childEnv)
	if name == "" {
		os.Exit(m.Run())
	}
	if err := children[name](os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type child struct {
	*exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
}

func startChild(t *testing.T, name string, args ...string) *child {
	t.Helper()
	c := &child{Cmd: exec.Command(os.Args[0], args...)}
	c.Env = append(os.Environ(), childEnv+"="+name)
	c.Stderr = &c.stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.in, c.out = in, bufio.NewReader(out)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Signal(syscall.SIGCONT)
		c.Process.Kill()
		c.Wait()
	})
	return c
}

func (c *child) says(t *testing.T, want string) {
	t.Helper()
	line, err := c.out.ReadString('\n')
	if strings.TrimSpace(line) != want {
		t.Fatalf("child says %q (%v, stderr %s), want %q", line, err, &c.stderr, want)
	}
}

// sleeper claims, says so, and when told to go on (after it was stopped for long) commits without a look at any clock.
func sleeper(args []string) error {
	table, err := Open(args[0], &Options{TTL: 200 * time.Millisecond})
	if err != nil {
		return err
	}
	tok, err := table.Claim(bg, firstOfShard0, nil, Holder{Owner: "sleeper"})
	if err != nil {
		return err
	}
	fmt.Println("claimed")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	switch args[1] {
	case "commit":
		err = table.BeginCommit(bg, firstOfShard0, tok, payload("{}"))
	case "heartbeat":
		err = table.Heartbeat(bg, firstOfShard0, tok)
	case "abandon":
		err = table.Abandon(bg, firstOfShard0, tok)
	}
	if !errors.Is(err, ErrLost) {
		return fmt.Errorf("first write after waking: %v", err)
	}
	fmt.Println("lost")
	return nil
}

// LE-4: a process that is stopped for longer than its TTL is refused at its first write, whatever that is, and changes nothing.
func TestASleeperIsFencedAtItsFirstWrite(t *testing.T) {
	for _, write := range []string{"commit", "heartbeat", "abandon"} {
		root := filepath.Join(t.TempDir(), "root")
		c := startChild(t, "sleeper", root, write)
		c.says(t, "claimed")
		c.Process.Signal(syscall.SIGSTOP)
		table, err := Open(root, &Options{TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		var tok Token
		for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			if tok, err = table.Claim(bg, firstOfShard0, nil, Holder{Owner: "other"}); err == nil {
				break
			}
			if !errors.Is(err, ErrHeld) || time.Since(start) > time.Minute {
				t.Fatal(err)
			}
		}
		before, err := os.ReadFile(table.s.path(firstOfShard0))
		if err != nil {
			t.Fatal(err)
		}
		c.Process.Signal(syscall.SIGCONT)
		fmt.Fprintln(c.in, "go on")
		c.says(t, "lost")
		after, err := os.ReadFile(table.s.path(firstOfShard0))
		if err != nil || !bytes.Equal(before, after) || tok.Fence != 2 {
			t.Errorf("%s: the new holder's record was changed: %v", write, err)
		}
		checkRoot(t, root)
	}
}

func hangInPublish(args []string) error {
	table, err := Open(args[0], nil)
	if err != nil {
		return err
	}
	tok, err := table.Claim(bg, firstOfShard0, nil, Holder{})
	if err != nil {
		return err
	}
	if err := table.BeginCommit(bg, firstOfShard0, tok, payload("{}")); err != nil {
		return err
	}
	_, err = table.Complete(bg, firstOfShard0, tok, func(context.Context, jsonRaw) error {
		fmt.Println("publishing")
		time.Sleep(time.Hour)
		return nil
	})
	return err
}

// F326, beyond.md row 2, LK-6: the lock of a killed holder is free at once, and its commit is finished by who finds it.
func TestAKilledHolderLeavesNoLockAndItsCommitIsFinished(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	c := startChild(t, "hang", root)
	c.says(t, "publishing")
	table, err := Open(root, &Options{LockTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	found, err := table.Committing(bg, 0)
	if err != nil || len(found) != 1 {
		t.Fatalf("%d committing, %v", len(found), err)
	}
	r := found[0]
	if _, err := table.Complete(bg, r.ID, r.Token, publishNothing); !errors.Is(err, ErrLocked) {
		t.Fatalf("while it publishes: %v", err)
	}
	c.Process.Kill()
	c.Wait()
	first, err := table.Complete(bg, r.ID, r.Token, publishNothing)
	if err != nil || !first {
		t.Errorf("after its death: %t, %v", first, err)
	}
	checkRoot(t, root)
}

// dieAtOperation kills itself just before its nth changing file operation of the call args[1].
func dieAtOperation(args []string) error {
	nth, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	fault := faultfs.New(vfs.OS)
	opts := &Options{Shards: 4, TTL: time.Hour, FS: fault}
	arm := func() {
		fault.Inject(faultfs.Rule{Nth: nth, Match: changes, Hook: func(*vfs.Call) {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}})
	}
	if args[1] == "batch" {
		table, err := Open(args[0], opts)
		if err != nil {
			return err
		}
		held := map[ID]Token{}
		for r, err := range table.Records(bg) {
			if err != nil {
				return err
			}
			held[r.ID] = r.Token
		}
		arm()
		_, err = table.HeartbeatMany(bg, held)
		return err
	}
	table, err := OpenTargets(args[0], opts)
	if err != nil {
		return err
	}
	var tok Token
	if args[1] == "release" {
		if tok, err = table.ClaimGroup(bg, group8, nil, Holder{}); err != nil {
			return err
		}
	}
	arm()
	if args[1] == "release" {
		return table.ReleaseGroup(bg, group8, tok)
	}
	return second(table.ClaimGroup(bg, group8, nil, Holder{}))
}

func changes(c *vfs.Call) bool {
	switch c.Op {
	case vfs.OpOpen:
		return c.Flag&os.O_CREATE != 0
	case vfs.OpWrite, vfs.OpSync, vfs.OpRename, vfs.OpRemove, vfs.OpSyncDir:
		return true
	}
	return false
}

// killAt runs the child until it dies at its nth changing operation, and reports whether it did.
func killAt(t *testing.T, root, call string, nth int) bool {
	t.Helper()
	c := startChild(t, "die", root, call, strconv.Itoa(nth))
	err := c.Wait()
	if err != nil && c.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%s %d: %v, %s", call, nth, err, &c.stderr)
	}
	return err != nil
}

// A real SIGKILL before every changing operation of a group call: the next holder finds the locks free and the group whole or free.
func TestAGroupKilledAnywhereIsRolledBackOrForward(t *testing.T) {
	for _, call := range []string{"claim", "release"} {
		for nth := 1; ; nth++ {
			root := filepath.Join(t.TempDir(), "root")
			died := killAt(t, root, call, nth)
			table, err := OpenTargets(root, &Options{TTL: time.Hour, LockTimeout: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			leased := 0
			for r, err := range table.Records(bg) {
				if err != nil {
					t.Fatal(err)
				}
				if r.Status == Leased {
					leased++
				}
			}
			_, err = table.ClaimGroup(bg, []uint64{105, 103, 1}, nil, Holder{})
			if whole := leased == len(group8); errors.Is(err, ErrHeld) != whole || !whole && err != nil {
				t.Errorf("%s killed at %d with %d of 8 leased: %v", call, nth, leased, err)
			}
			checkRoot(t, root)
			if !died {
				break
			}
		}
	}
}

// A real SIGKILL before every changing operation of a batch: each record is old or new, each token still holds.
func TestABatchKilledAnywhereLeavesEachRecordOldOrNew(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	table, err := Open(root, &Options{Shards: 4, TTL: time.Hour, LockTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	held := map[ID]Token{}
	for n := range 6 {
		if held[itemID(n)], err = table.Claim(bg, itemID(n), nil, Holder{}); err != nil {
			t.Fatal(err)
		}
	}
	deaths := 0
	for killAt(t, root, "batch", deaths+1) {
		deaths++
		checkRoot(t, root)
	}
	if deaths < 4*len(held) { // create, write, sync, rename
		t.Errorf("the child died %d times only", deaths)
	}
	b, err := table.HeartbeatMany(bg, held)
	if err != nil || len(b.Renewed) != len(held) {
		t.Errorf("%+v, %v", b, err)
	}
	checkRoot(t, root)
}
