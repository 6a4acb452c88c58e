package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const hammerItems = 60

// hammer works on the items of a root until all are done, and logs what it was told with one O_APPEND write a line.
func hammer(args []string) error {
	table, err := Open(args[0], &Options{Shards: 4, TTL: 400 * time.Millisecond, LockTimeout: time.Minute})
	if err != nil {
		return err
	}
	log, err := os.OpenFile(args[1], os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	note := func(what string, id ID, tok Token) error {
		_, err := fmt.Fprintf(log, "%s %s %d %x\n", what, id, tok.Fence, tok.Nonce)
		return err
	}
	for {
		counts, err := table.Counts(bg)
		if err != nil || counts.Done == hammerItems {
			return err
		}
		committing, err := table.Committing(bg, 1)
		if err != nil {
			return err
		}
		for _, r := range committing { // somebody died, or is at it right now
			if err := hammerComplete(table, r.ID, r.Token, note); err != nil {
				return err
			}
		}
		id := itemID(rand.N(hammerItems))
		tok, err := table.Claim(bg, id, nil, Holder{})
		if errors.Is(err, ErrHeld) || errors.Is(err, ErrCommitting) || errors.Is(err, ErrDone) || errors.Is(err, ErrLost) {
			time.Sleep(time.Millisecond)
			continue
		}
		if err != nil {
			return err
		}
		if err := note("claimed", id, tok); err != nil {
			return err
		}
		if err := hammerWork(table, id, tok, note); err != nil && !errors.Is(err, ErrLost) {
			return err
		}
	}
}

func hammerWork(table *Table, id ID, tok Token, note func(string, ID, Token) error) error {
	for range rand.N(3) {
		time.Sleep(rand.N(30 * time.Millisecond))
		if _, err := table.HeartbeatMany(bg, map[ID]Token{id: tok}); err != nil {
			return err
		}
	}
	if rand.N(4) == 0 {
		return table.Abandon(bg, id, tok)
	}
	if rand.N(8) == 0 {
		time.Sleep(500 * time.Millisecond) // sleeps through its lease
	}
	if err := table.BeginCommit(bg, id, tok, payload(fmt.Sprintf(`{"fence":%d}`, tok.Fence))); err != nil {
		return err
	}
	if err := note("begun", id, tok); err != nil {
		return err
	}
	return hammerComplete(table, id, tok, note)
}

func hammerComplete(table *Table, id ID, tok Token, note func(string, ID, Token) error) error {
	_, err := table.Complete(bg, id, tok, func(_ context.Context, manifest jsonRaw) error {
		if want := fmt.Sprintf(`{"fence":%d}`, tok.Fence); string(manifest) != want {
			return fmt.Errorf("manifest is %s, want %s", manifest, want)
		}
		return note("published", id, tok)
	})
	return err
}

// Several processes hammer one root while they are killed one after the other. No two holders ever commit one item, fences are never
// issued twice, and all items are done in the end.
func TestKilledProcessesNeverCommitAnItemTwice(t *testing.T) {
	dir := t.TempDir()
	root, log := filepath.Join(dir, "root"), filepath.Join(dir, "log")
	running := make([]*child, 4)
	for i := range running {
		running[i] = startChild(t, "hammer", root, log)
	}
	kills := 30
	if testing.Short() {
		kills = 8
	}
	for n := range kills {
		time.Sleep(rand.N(100 * time.Millisecond))
		i := n % len(running)
		running[i].Process.Kill()
		if err := running[i].Wait(); err != nil && running[i].stderr.Len() > 0 {
			t.Fatalf("%v: %s", err, &running[i].stderr)
		}
		running[i] = startChild(t, "hammer", root, log)
	}
	for _, c := range running {
		if err := c.Wait(); err != nil {
			t.Fatalf("%v: %s", err, &c.stderr)
		}
	}
	checkHammerLog(t, root, log)
	checkRoot(t, root)
}

func checkHammerLog(t *testing.T, root, log string) {
	t.Helper()
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	claimed := map[string]bool{}     // id and fence
	published := map[string]string{} // id to token
	last := map[string]uint64{}      // id to the highest fence
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) != 4 {
			t.Fatalf("log line %q", line)
		}
		fence, _ := strconv.ParseUint(f[2], 10, 64)
		switch key := f[1] + " " + f[2]; f[0] {
		case "claimed":
			if claimed[key] {
				t.Errorf("fence %s was issued twice", key)
			}
			claimed[key] = true
			last[f[1]] = max(last[f[1]], fence)
		case "begun", "published":
			tok := f[2] + " " + f[3]
			if other := published[f[1]]; other != "" && other != tok {
				t.Errorf("%s was committed under %s and %s", f[1], other, tok)
			}
			published[f[1]] = tok
		}
	}
	table, err := Open(root, nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := range hammerItems {
		id := itemID(n)
		r, err := table.Lookup(id)
		tok := fmt.Sprintf("%d %x", r.Token.Fence, r.Token.Nonce)
		if err != nil || r.Status != Done || published[id.String()] != tok || r.Token.Fence < last[id.String()] {
			t.Errorf("%s: %+v, %v; published under %s, highest fence %d", id, r, err, published[id.String()], last[id.String()])
		}
	}
}
