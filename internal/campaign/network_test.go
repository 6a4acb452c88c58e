package campaign

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
)

func TestANetworkKeepsTheOrderWithinAPairAndOnlyThere(t *testing.T) {
	crossed := false
	rapid.Check(t, func(t *rapid.T) {
		n := NewNetwork(3, rapid.Uint64().Draw(t, "seed"), time.Second)
		now := time.Unix(0, 0)
		sent := rapid.SliceOfN(rapid.IntRange(0, 1), 1, 30).Draw(t, "senders")
		for i, from := range sent {
			if err := n.Push(now.Add(time.Duration(i)), Message{From: from, To: 2, Tag: i}); err != nil {
				t.Fatal(err)
			}
		}
		var last [2]int
		highest := -1
		for range sent {
			due, ok := n.Next(2)
			if !ok {
				t.Fatal("a message is lost")
			}
			if _, early := n.Pop(due.Add(-1), 2); early {
				t.Fatal("arrived before it was due")
			}
			m, ok := n.Pop(due, 2)
			if !ok || sent[m.Tag] != m.From || m.Tag < last[m.From] {
				t.Fatalf("%+v after %v", m, last)
			}
			crossed = crossed || m.Tag < highest
			last[m.From], highest = m.Tag, max(highest, m.Tag)
		}
		if _, more := n.Next(2); more {
			t.Fatal("a message came twice")
		}
	})
	if !crossed {
		t.Error("messages of different pairs never overtook each other")
	}
	if err := NewNetwork(2, 0, 0).Push(time.Time{}, Message{To: 2}); err == nil {
		t.Error("a message to nobody is accepted")
	}
}

func TestAbortEndsAllEndpoints(t *testing.T) {
	n := NewNetwork(2, 1, 0)
	got := make(chan error)
	go func() {
		_, err := n.Endpoint(1).Recv(context.Background())
		got <- err
	}()
	n.Endpoint(0).Abort(70)
	n.Endpoint(0).Abort(71)
	if err := <-got; !errors.Is(err, ErrAborted) {
		t.Error(err)
	}
	if err := n.Endpoint(1).Send(context.Background(), Message{To: 0}); !errors.Is(err, ErrAborted) {
		t.Error(err)
	}
	if code, ok := n.abortCode(); !ok || code != 70 {
		t.Errorf("%d, %t", code, ok)
	}
}

// syncBuffer is a writer for many goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// fixed is an executor that sleeps and writes one child.
type fixed struct{ d time.Duration }

func (f fixed) Run(ctx context.Context, job Job) Execution {
	e := Execution{Job: job, Start: time.Now(), Outputs: []Output{{Name: "out", Data: []byte("f324-heartbeat-child\n")}}}
	select {
	case <-time.After(f.d):
	case <-ctx.Done():
		e.Problem = ErrExecution
	}
	e.Elapsed = time.Since(e.Start)
	return e
}

// realClock runs 2 masters and 6 workers as goroutines on the real clock, each on the file system that view gives it, and interrupts
// them if asked.
func realClock(t *testing.T, interrupt, execution time.Duration, view func(rank int) vfs.FS) (Outcome, *syncBuffer, *Options) {
	t.Helper()
	dir := t.TempDir()
	f := DefaultFlags()
	f.InputDir, f.OutputDir, f.StatsJSON = dir+"/in", dir+"/out", dir+"/stats.json"
	f.Timeout, f.MaxIdle, f.WorkersPerMaster, f.Target = 3, 0.3, 3, []string{"target"}
	o, err := NewOptions(f, lookup(map[string]string{"SYMCC_STANDALONE_WORK_LEASE_TTL": "1", "SYMCC_STANDALONE_WORK_LEASE_SHARDS": "4", "SYMCC_STANDALONE_WORK_EPOCH": hashA}))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(f.InputDir, 0o777); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		name := fmt.Sprintf("seed-%03d", i)
		if err := os.WriteFile(f.InputDir+"/"+name, []byte(name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	text := &syncBuffer{}
	network := NewNetwork(8, 1, 5*time.Millisecond)
	var all sync.WaitGroup
	outcomes := make([]Outcome, 8)
	signals := make(chan os.Signal, 1)
	if interrupt > 0 {
		time.AfterFunc(interrupt, func() { signals <- syscall.SIGTERM })
	}
	for rank := range 8 {
		all.Go(func() {
			env := &Env{FS: view(rank), Now: time.Now, Rand: rand.Reader, Stdout: text, Stderr: text}
			r := Rank{Options: o, Env: env, Transport: network.Endpoint(rank), Executor: fixed{execution}}
			if rank == 0 {
				r.Signals = signals
			}
			outcomes[rank] = Run(context.Background(), r)
			if !outcomes[rank].Orderly {
				network.Endpoint(rank).Abort(outcomes[rank].Code)
			}
		})
	}
	all.Wait()
	for rank, out := range outcomes[1:] {
		if out.Code != 0 || !out.Orderly {
			t.Errorf("rank %d: %+v\n%s", rank+1, out, text.b.String())
		}
	}
	return outcomes[0], text, o
}

func TestACampaignRunsInOneProcessOnTheRealClock(t *testing.T) {
	out, text, o := realClock(t, 0, 500*time.Millisecond, plain)
	if out.Code != 0 || !out.Orderly {
		t.Fatalf("%+v\n%s", out, text.b.String())
	}
	if entries, err := os.ReadDir(o.OutputDir); err != nil || len(entries) != 9 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestASignalEndsACampaignInOrder(t *testing.T) {
	out, text, o := realClock(t, 300*time.Millisecond, 500*time.Millisecond, plain)
	if out.Code != ExitUnfinished || !out.Orderly {
		t.Fatalf("%+v\n%s", out, text.b.String())
	}
	if _, err := os.Lstat(o.OutputDir + "/" + epochPrefix + hashA); err != nil {
		t.Error(err)
	}
}

// withoutSyncs keeps a busy disk from outlasting the TTL of one second: these tests are about time, not about durability.
var withoutSyncs = vfs.Intercept(vfs.OS, func(c *vfs.Call, do func() error) error {
	switch c.Op {
	case vfs.OpSync, vfs.OpDatasync, vfs.OpSyncFS, vfs.OpSyncDir:
		return nil
	}
	return do()
})

func plain(int) vfs.FS { return withoutSyncs }

// LE-5, LE-7 and beyond row 10: a scan that hangs for longer than the TTL while work is running costs no lease, since heartbeats don't wait for it.
func TestHeartbeatsDoNotWaitForSlowScans(t *testing.T) {
	slow := faultfs.New(withoutSyncs)
	slow.Inject(faultfs.Rule{Op: vfs.OpReadDir, Base: "out", Nth: 3, Hook: func(*vfs.Call) { time.Sleep(1500 * time.Millisecond) }})
	out, text, o := realClock(t, 0, 1500*time.Millisecond, func(rank int) vfs.FS {
		if rank == 0 {
			return slow
		}
		return withoutSyncs
	})
	if out.Code != 0 || slow.Injected() == 0 {
		t.Fatalf("%+v, %d delays\n%s", out, slow.Injected(), text.b.String())
	}
	var s Stats
	data, err := os.ReadFile(o.StatsJSON)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	if s.Total.LostLeases+s.Total.StaleResults+s.Total.Recovered != 0 || s.Final.Observations != 9 || s.Masters[0].Batches < 3 {
		t.Errorf("%+v", s)
	}
}
