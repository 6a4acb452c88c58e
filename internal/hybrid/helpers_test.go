package hybrid

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"shardlease/internal/campaign"
	"shardlease/internal/hybrid/afl"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/lease"
)

// secret is what the tests' target compares its input with, byte by byte: one edge for each byte that is right. After it a "!" crashes the
// target and a "?" hangs it.
const secret = "MAGIC"

func rightBytes(data []byte) int {
	n := 0
	for n < len(secret) && n < len(data) && data[n] == secret[n] {
		n++
	}
	return n
}

// maze is the target as afl-showmap sees it.
type maze struct {
	mu       sync.Mutex
	measured int
	err      error
}

func (z *maze) Measure(_ context.Context, data []byte) (afl.Map, afl.Verdict, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.measured++
	if z.err != nil {
		return nil, afl.OK, z.err
	}
	var m afl.Map
	for edge := range rightBytes(data) + 1 {
		m = append(m, afl.Cell{Edge: uint32(edge), Classes: 1})
	}
	switch {
	case rightBytes(data) == len(secret) && bytes.HasPrefix(data[len(secret):], []byte("!")):
		return append(m, afl.Cell{Edge: 100, Classes: 1}), afl.Crash, nil
	case rightBytes(data) == len(secret) && bytes.HasPrefix(data[len(secret):], []byte("?")):
		return append(m, afl.Cell{Edge: 101, Classes: 1}), afl.Hang, nil
	}
	return m, afl.OK, nil
}

func (z *maze) Batch(ctx context.Context, inputs [][]byte) ([]afl.Map, error) {
	maps := make([]afl.Map, len(inputs))
	for i, data := range inputs {
		m, verdict, err := z.Measure(ctx, data)
		if err != nil {
			return nil, err
		}
		if verdict == afl.OK {
			maps[i] = m
		}
	}
	return maps, nil
}

// solver corrects the first wrong byte, and adds an output that is nothing new. It counts how often it ran on what.
type solver struct {
	mu     sync.Mutex
	runs   map[string]int
	pause  time.Duration
	before func(job campaign.Job, e *campaign.Execution) // may add a problem
}

func (s *solver) Run(ctx context.Context, job campaign.Job) campaign.Execution {
	e := campaign.Execution{Job: job, Start: time.Now()}
	s.mu.Lock()
	if s.runs == nil {
		s.runs = map[string]int{}
	}
	s.runs[string(job.Input)]++
	before := s.before
	s.mu.Unlock()
	select {
	case <-time.After(s.pause):
	case <-ctx.Done():
	}
	if before != nil {
		before(job, &e)
	}
	e.Elapsed = time.Since(e.Start)
	if e.Problem != "" {
		return e
	}
	n := rightBytes(job.Input)
	next := []string{"!", "?"}
	if n < len(secret) {
		next = []string{secret[n : n+1]}
	}
	for i, c := range next {
		data := append(append([]byte{}, job.Input[:n]...), c...)
		if rest := len(job.Input) - n - 1; rest > 0 {
			data = append(data, job.Input[n+1:]...)
		}
		e.Outputs = append(e.Outputs, campaign.Output{Name: fmt.Sprint(i), Data: data})
	}
	e.Outputs = append(e.Outputs, campaign.Output{Name: "old", Data: []byte("zzzz")}, campaign.Output{Name: "empty"})
	return e
}

// bench is one AFL output directory with coordinators beside it.
type bench struct {
	t      *testing.T
	out    string
	maze   *maze
	solver *solver
	fs     vfs.FS
}

func newBench(t *testing.T, seeds ...string) *bench {
	t.Helper()
	b := &bench{t: t, out: t.TempDir(), maze: &maze{}, solver: &solver{}, fs: vfs.OS}
	if err := os.MkdirAll(filepath.Join(b.out, "main", "queue"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i, seed := range seeds {
		b.seed(i, seed)
	}
	return b
}

func (b *bench) seed(number int, content string) {
	b.t.Helper()
	name := filepath.Join(b.out, "main", "queue", fmt.Sprintf("id:%06d,orig:seed", number))
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) options(name string) *Options {
	return &Options{Out: b.out, Instance: "main", Name: name, Solver: []string{"/bin/true"}, Timeout: time.Second, MaxIdle: 300 * time.Millisecond,
		Leases: true, TargetLeases: true, LeaseDir: filepath.Join(b.out, "leases", "work"), TargetDir: filepath.Join(b.out, "leases", "targets"),
		Shards: 4, LeaseTTL: 5 * time.Second, TargetTTL: 5 * time.Second, LockTimeout: time.Second, MasterID: name, ShutdownGrace: 20 * time.Second,
		StatsJSON: filepath.Join(b.out, name+".json"), ExecutionLog: filepath.Join(b.out, "executions.jsonl"), EventLog: filepath.Join(b.out, name+".events")}
}

// console collects what ranks print.
type console struct {
	mu sync.Mutex
	bytes.Buffer
}

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Buffer.Write(p)
}

func (c *console) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Buffer.String()
}

func (b *bench) env(text *console) *Env {
	return &Env{FS: b.fs, Now: time.Now, Rand: rand.Reader, Stdout: text, Stderr: text,
		Attach: func(_ context.Context, out, name string) (*afl.Instance, error) {
			return &afl.Instance{Out: out, Name: name, PID: os.Getpid(), Target: []string{"maze"}}, nil
		},
		Measurer: func(*afl.Instance) Measurer { return b.maze }}
}

// job is one run of a campaign: one coordinator, two workers, in this process.
type jobRun struct {
	text    console
	signals chan os.Signal
	done    chan struct{}
	out     [3]campaign.Outcome
	net     *campaign.Network
}

func (b *bench) start(o *Options) *jobRun {
	j := &jobRun{signals: make(chan os.Signal, 1), done: make(chan struct{}), net: campaign.NewNetwork(3, 1, time.Millisecond)}
	env := b.env(&j.text)
	var ranks sync.WaitGroup
	for rank := range j.out {
		ranks.Add(1)
		go func() {
			defer ranks.Done()
			r := Rank{Options: o, Env: env, Transport: j.net.Endpoint(rank), Executor: b.solver}
			if rank == coordinator {
				r.Signals = j.signals
			}
			j.out[rank] = Run(context.Background(), r)
		}()
	}
	go func() {
		ranks.Wait()
		close(j.done)
	}()
	return j
}

// wait ends the run and returns its statistics; every rank must have ended in good order with the code.
func (j *jobRun) wait(b *bench, o *Options, code int) Stats {
	b.t.Helper()
	select {
	case <-j.done:
	case <-time.After(60 * time.Second):
		b.t.Fatalf("the campaign does not end:\n%s", j.text.text())
	}
	for rank, out := range j.out {
		want := campaign.ExitOK
		if rank == coordinator {
			want = code
		}
		if out.Code != want || !out.Orderly {
			b.t.Errorf("rank %d ended with %+v, want code %d\n%s", rank, out, want, j.text.text())
		}
	}
	data, err := os.ReadFile(o.StatsJSON)
	if err != nil {
		b.t.Fatal(err)
	}
	var s Stats
	if err := json.Unmarshal(data, &s); err != nil {
		b.t.Fatal(err)
	}
	return s
}

// published are the contents in a directory of a peer.
func (b *bench) published(name string, kind afl.Kind) (contents []string) {
	b.t.Helper()
	files, err := filepath.Glob(filepath.Join(b.out, name, string(kind), "id:*"))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			b.t.Fatal(err)
		}
		contents = append(contents, string(data))
	}
	return contents
}

func (b *bench) table(o *Options) *lease.Table {
	b.t.Helper()
	table, err := lease.Open(o.LeaseDir, &lease.Options{Shards: o.Shards, TTL: o.LeaseTTL})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = table.Close() })
	return table
}

// check holds after every campaign: nothing is staged, no lease is left, and everything done was executed once for each success.
func (b *bench) check(o *Options) {
	b.t.Helper()
	if o.Leases {
		counts, err := b.table(o).Counts(b.t.Context())
		if err != nil || counts.Leased+counts.Committing+counts.Corrupt > 0 {
			b.t.Errorf("records left: %+v, %v", counts, err)
		}
	}
	stages, err := filepath.Glob(filepath.Join(b.out, o.Name, stagingDir, "*", "*"))
	if err != nil || len(stages) > 0 {
		b.t.Errorf("stages left: %v %v", stages, err)
	}
}

func contains(t *testing.T, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%q is missing in:\n%s", part, text)
	}
}

// readEvents parses an event log.
func readEvents(r io.Reader) ([]Event, error) {
	var events []Event
	for dec := json.NewDecoder(r); ; {
		var ev Event
		if err := dec.Decode(&ev); err == io.EOF {
			return events, nil
		} else if err != nil {
			return events, err
		}
		events = append(events, ev)
	}
}
