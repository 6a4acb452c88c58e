package campaign

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"shardlease/pkg/groupcommit/vfs"
)

// What only rank 0 can find out ends all ranks in good order: MPI is finalised everywhere, rank 0 alone has the code and the sentence.
func TestAStartFailureOfRank0EndsAllRanksInOrder(t *testing.T) {
	dir := t.TempDir()
	file := dir + "/file"
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	f := DefaultFlags()
	f.InputDir, f.OutputDir, f.WorkersPerMaster, f.Target = dir, file+"/out", 3, []string{"target"}
	o, err := NewOptions(f, lookup(nil))
	if err != nil {
		t.Fatal(err)
	}
	text := &syncBuffer{}
	network := NewNetwork(8, 1, 5*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	outcomes := make([]Outcome, 8)
	var all sync.WaitGroup
	for rank := range outcomes {
		all.Go(func() {
			env := &Env{FS: vfs.OS, Now: time.Now, Rand: rand.Reader, Stdout: text, Stderr: text}
			outcomes[rank] = Run(ctx, Rank{Options: o, Env: env, Transport: network.Endpoint(rank), Executor: fixed{0}})
		})
	}
	all.Wait()
	for rank, out := range outcomes {
		want := ExitOK
		if rank == 0 {
			want = ExitCantCreate
		}
		if out.Code != want || !out.Orderly {
			t.Errorf("rank %d: %+v, want code %d", rank, out, want)
		}
	}
	if got := text.b.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "not a directory") {
		t.Errorf("printed %q", got)
	}
}

// A start failure that comes after START is none: whoever sent it, the campaign goes on.
func TestAHaltOfTheStartCountsOnlyBeforeStart(t *testing.T) {
	roles, err := ComputeRoles(8, 3)
	if err != nil {
		t.Fatal(err)
	}
	halt := mustMarshal(haltMsg{Schema: schemaHalt, Rank: 1, Kind: stopStart})
	w := NewWorker(&Options{}, &Env{}, roles, 2)
	for _, msg := range []Message{{From: 1, To: 2, Tag: TagHalt, Data: halt}, {From: 0, To: 2, Tag: TagHalt, Data: []byte("{}")}} {
		if w.Step(t.Context(), time.Now(), msg).Done {
			t.Errorf("a worker ended by %+v", msg)
		}
	}
	w.start = &startMsg{}
	if w.Step(t.Context(), time.Now(), Message{From: 0, To: 2, Tag: TagHalt, Data: halt}).Done {
		t.Error("a worker that has started ended")
	}
	m := NewMaster(&Options{}, &Env{}, roles, 1)
	m.phase = running
	if err := m.receivePeer(t.Context(), Message{From: 0, To: 1, Tag: TagHalt, Data: mustMarshal(haltMsg{Schema: schemaHalt, Kind: stopStart})}); err == nil || m.phase != running {
		t.Errorf("a master that has started took it: %v, phase %d", err, m.phase)
	}
}

func TestAControlFailureWithManyCausesIsOneLine(t *testing.T) {
	roles, err := ComputeRoles(8, 3)
	if err != nil {
		t.Fatal(err)
	}
	var out, text bytes.Buffer
	m := NewMaster(&Options{}, &Env{Stdout: &out, Stderr: &text}, roles, 1)
	m.phase = running
	m.handle(t.Context(), Beat{Err: errors.Join(errors.New("first"), errors.New("second"), errors.New("third"))})
	if got := text.String(); got != "[Master 1] Global work control failure: work lease heartbeat failed: first (and 2 more)\n" {
		t.Errorf("for the user: %q", got)
	}
	if got := out.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, ": second\n") || !strings.Contains(got, ": third\n") {
		t.Errorf("in the log: %q", got)
	}
	for _, msg := range m.out.Send {
		h, err := decodeHalt(msg.Data)
		if err != nil || h.Detail != "work lease heartbeat failed: first (and 2 more)" {
			t.Errorf("told %+v, %v", h, err)
		}
	}
	if len(m.out.Send) != 1 {
		t.Errorf("told %d masters", len(m.out.Send))
	}
}
