// Command bench makes the same lease renewals durable with this project's libraries and with databases, on one file system, in one
// interleaved run. It is a module of its own, so that users of the libraries never download the databases.
//
// Each round runs every system once, in an order drawn from the seed. A system renews all its records: it finds each one, checks
// that the token still holds it, writes the new time, and returns when all of that would survive a power cut. It prints one JSON
// object for each timing.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/lease"
)

// config is what all systems of a run have in common.
type config struct {
	dir     string // of one system, on the file system under test
	ids     []lease.ID
	active  int // shards that hold records
	shards  int
	pgBin   string
	latency time.Duration // added to each sync of this project's systems
	payload []byte
	ttl     time.Duration
}

// system is one way to make renewals durable.
type system interface {
	// renew makes the renewal of every record durable. now rises with each call.
	renew(now time.Time) error
	io.Closer
}

// A maker sets a system up with all its records claimed. The two own errors say that it can't run here.
type maker struct {
	name string
	make func(config) (system, error)
}

// errAbsent is returned by makers whose software is not installed.
var errAbsent = errors.New("not installed")

func makers() []maker {
	return slices.Concat(ownMakers(), limitMakers(), []maker{
		{"bbolt", newBolt}, {"sqlite", newSQLite}, {"pebble", newPebble}, {"postgresql", newPostgres},
	})
}

// sample is one timing.
type sample struct {
	System  string  `json:"system"`
	Records int     `json:"records"`
	Active  int     `json:"active_shards"`
	Round   int     `json:"round"`
	Place   int     `json:"place"` // in the order of its round
	Passes  int     `json:"passes"`
	PassNS  float64 `json:"pass_ns"` // mean of the passes
}

// skipped says why a system has no samples.
type skipped struct {
	System string `json:"skipped"`
	Reason string `json:"reason"`
}

// chosen says which content strategy a system has settled on.
type chosen struct {
	System   string `json:"chose"`
	Strategy string `json:"what"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	var c config
	records := flag.Int("records", 64, "leases to renew")
	rounds := flag.Int("rounds", 30, "timed rounds")
	warm := flag.Int("warmup", 2, "rounds before them")
	budget := flag.Duration("budget", 20*time.Millisecond, "repeat fast systems within a round until this much time has passed")
	seed := flag.Uint64("seed", 1, "of the order of systems")
	only := flag.String("systems", "", "comma-separated; empty means all")
	cpu := flag.Int("cpu", -1, "pin this process to one processor; -1 does not")
	flag.StringVar(&c.dir, "dir", "", "directory on the file system under test; made, and removed at the end")
	flag.IntVar(&c.active, "active", 1, "shards that hold records")
	flag.IntVar(&c.shards, "shards", 64, "shards of the lease table")
	flag.DurationVar(&c.latency, "latency", 0, "let each sync of this project's systems take so much longer: a networked store")
	flag.StringVar(&c.pgBin, "postgres", "/usr/lib/postgresql/15/bin", "where PostgreSQL's programs are")
	trial := flag.Bool("trial", false, "time nothing, try what a second process can do")
	holds := flag.String("hold", "", "be the first process of a trial: renew the first lease in this system until killed")
	joins := flag.String("join", "", "be the second one: claim a lease in this system")
	number := flag.Int("lease", 0, "with -join: which one")
	flag.Parse()
	if c.dir == "" || flag.NArg() > 0 {
		return errors.New("-dir is needed, and no other arguments")
	}
	if err := pin(*cpu); err != nil {
		return err
	}
	c.payload, c.ttl = []byte(`{"sequence":1}`), time.Hour
	if *trial || *holds != "" || *joins != "" {
		c.ttl, *records = trialTTL, 2
	}
	for i := range *records {
		c.ids = append(c.ids, paperID(i, c.active))
	}
	switch {
	case *holds != "":
		return runHold(c, *holds)
	case *joins != "":
		return runJoin(c, *joins, *number)
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(c.dir)
	if *trial {
		return runTrials(c)
	}
	b := bench{c: c, out: json.NewEncoder(os.Stdout), rng: rand.New(rand.NewPCG(*seed, uint64(*records)))}
	defer b.close()
	if err := b.setUp(*only); err != nil {
		return err
	}
	return b.rounds(*warm, *rounds, *budget)
}

// paperID is an ID of the report's benchmark: record i of a table in which only so many shards are in use.
func paperID(i, active int) lease.ID {
	id, err := lease.ParseID(fmt.Sprintf("%08x%056x", i%active, i))
	if err != nil {
		panic(err) // the format makes 64 hex digits
	}
	return id
}

// pin keeps the whole process on one processor: on a small machine the scheduler is most of the noise.
func pin(cpu int) error {
	if cpu < 0 {
		return nil
	}
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range tasks {
		var tid int
		if _, err := fmt.Sscan(t.Name(), &tid); err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(tid, &set); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("pin to processor %d: %w", cpu, err)
		}
	}
	return nil
}

type running struct {
	name string
	sys  system
}

type bench struct {
	c       config
	out     *json.Encoder
	rng     *rand.Rand
	systems []running
	now     time.Time
}

func (b *bench) setUp(only string) error {
	b.now = time.Now()
	known := makers()
	if only != "" {
		wanted := strings.Split(only, ",")
		for _, w := range wanted {
			if !slices.ContainsFunc(known, func(m maker) bool { return m.name == w }) {
				return fmt.Errorf("unknown system %q", w)
			}
		}
		known = slices.DeleteFunc(known, func(m maker) bool { return !slices.Contains(wanted, m.name) })
	}
	for _, m := range known {
		c := b.c
		c.dir = filepath.Join(b.c.dir, m.name)
		if err := os.MkdirAll(c.dir, 0o755); err != nil {
			return err
		}
		sys, err := m.make(c)
		if errors.Is(err, errAbsent) || errors.Is(err, errors.ErrUnsupported) {
			if err := b.out.Encode(skipped{m.name, err.Error()}); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("set up %s: %w", m.name, err)
		}
		b.systems = append(b.systems, running{m.name, sys})
		if t, ok := sys.(*table); ok && strings.HasSuffix(m.name, groupcommit.Auto.String()) {
			if err := b.out.Encode(chosen{m.name, t.t.Strategy().String()}); err != nil {
				return err
			}
		}
	}
	return nil
}

// rounds times every system once a round. A fast one repeats its pass until the budget is used, so that the clock's own cost vanishes.
func (b *bench) rounds(warm, rounds int, budget time.Duration) error {
	for round := -warm; round < rounds; round++ {
		order := b.rng.Perm(len(b.systems))
		for place, i := range order {
			s := b.systems[i]
			runtime.GC()
			passes := 0
			start := time.Now()
			for passes == 0 || time.Since(start) < budget {
				b.now = b.now.Add(time.Millisecond)
				if err := s.sys.renew(b.now); err != nil {
					return fmt.Errorf("%s, round %d: %w", s.name, round, err)
				}
				passes++
			}
			elapsed := time.Since(start)
			if round < 0 {
				continue
			}
			err := b.out.Encode(sample{s.name, len(b.c.ids), b.c.active, round, place, passes, float64(elapsed) / float64(passes)})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) close() {
	for _, s := range b.systems {
		if err := s.sys.Close(); err != nil {
			fmt.Fprintf(os.Stderr, "bench: close %s: %v\n", s.name, err)
		}
	}
}
