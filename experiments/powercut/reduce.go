package powercut

import (
	"path/filepath"

	"shardlease/internal/experiment"
)

const rawFile = "powercut.json"

// Raw is the content of rawFile.
type Raw struct {
	Scale   string            `json:"scale"`
	Skipped map[string]string `json:"skipped"` // file system -> why
	Runs    []Run             `json:"runs"`
}

// Run is one run of the rig. Either Sweep or Breakages is set, by Command.
type Run struct {
	FileSystem string     `json:"file_system"`
	Strategy   string     `json:"strategy"`
	Command    string     `json:"command"` // sweep or broken
	Kind       string     `json:"kind"`    // product, or what is broken on purpose
	Seed       uint64     `json:"seed"`
	Sweep      *Sweep     `json:"sweep,omitempty"`
	Breakages  []Breakage `json:"breakages,omitempty"`
	Seconds    float64    `json:"s"`
}

// Tally counts states: those where something acknowledged is lost or something never done is there, and those where the file system
// itself did not survive.
type Tally struct {
	States      int `json:"states"`
	Bad         int `json:"bad"`
	Unmountable int `json:"unmountable"`
	Remounted   int `json:"remounted"` // mounted at the second try only, from the same bytes
}

func (t *Tally) add(u Tally) {
	t.States += u.States
	t.Bad += u.Bad
	t.Unmountable += u.Unmountable
	t.Remounted += u.Remounted
}

func (t Tally) violations() int { return t.Bad + t.Unmountable }

// Cell is the tally of one survival mode, at positions right after an acknowledgement or elsewhere.
type Cell struct {
	Mode     string `json:"mode"`
	AfterAck bool   `json:"after_ack"`
	Tally
}

// Violation is one bad state. Its position, mode and seed replay it on the same recording.
type Violation struct {
	Position int    `json:"position"`
	Mode     string `json:"mode"`
	Seed     uint64 `json:"seed"`
	What     string `json:"what"`
}

// Sweep is what the rig's sweep prints.
type Sweep struct {
	Operations    int         `json:"operations"` // acknowledged
	Events        int         `json:"events"`     // of the recording
	Flushes       int         `json:"flushes"`
	Acks          int         `json:"acks"`
	Positions     int         `json:"positions"`
	Cells         []Cell      `json:"cells"`
	Again         []Cell      `json:"again"`
	Violations    []Violation `json:"violations,omitempty"`
	RecordSeconds float64     `json:"record_s"`
	SweepSeconds  float64     `json:"sweep_s"`
}

// Breakage is one request that the disk failed, and what came of it.
type Breakage struct {
	Kind   string         `json:"kind"` // flush, write, data (a write of a record's content)
	At     int            `json:"at"`
	Hit    bool           `json:"hit"` // the request was made
	Acked  int            `json:"acked"`
	Failed int            `json:"failed"`
	Errors map[string]int `json:"errors"`
	Dead   bool           `json:"dead"` // the file system refused everything from then on
	Tally
	Violations []Violation `json:"violations,omitempty"`
}

// read takes over what the rig wrote.
func (j *job) read(name string) error {
	if j.Command == "broken" {
		var b struct {
			Breakages []Breakage `json:"breakages"`
			Seconds   float64    `json:"s"`
		}
		err := experiment.ReadJSON(name, &b)
		j.Breakages, j.Seconds = b.Breakages, b.Seconds
		return err
	}
	j.Sweep = &Sweep{}
	err := experiment.ReadJSON(name, j.Sweep)
	j.Seconds = j.Sweep.RecordSeconds + j.Sweep.SweepSeconds
	return err
}

// load reads the raw file of a run.
func load(dir string) (Raw, error) {
	var r Raw
	err := experiment.ReadJSON(filepath.Join(dir, rawFile), &r)
	return r, err
}

// each calls f for each run of one command and kind on the file system; "" is any.
func (r Raw) each(fs, command, kind string, f func(Run)) {
	for _, run := range r.Runs {
		if (fs == "" || run.FileSystem == fs) && run.Command == command && run.Kind == kind {
			f(run)
		}
	}
}

// sum adds the cells of all sweeps of a kind that pick takes.
func (r Raw) sum(fs, kind string, pick func(Cell) bool) (t Tally) {
	r.each(fs, "sweep", kind, func(run Run) {
		for _, c := range run.Sweep.Cells {
			if pick(c) {
				t.add(c.Tally)
			}
		}
	})
	return t
}

// broken adds the breakages of a kind whose request was really failed.
func (r Raw) broken(fs, kind string, pick func(Breakage) bool) (t Tally, hits int) {
	r.each(fs, "broken", kind, func(run Run) {
		for _, b := range run.Breakages {
			if b.Hit && pick(b) {
				t.add(b.Tally)
				hits++
			}
		}
	})
	return t, hits
}

func anyCell(Cell) bool         { return true }
func anyBreakage(Breakage) bool { return true }
func data(b Breakage) bool      { return b.Kind == "data" }

// seen is a cell in which a fault must show: mode "all" keeps the order of arrival, so that even a lying disk passes there.
func seen(c Cell) bool { return c.Mode != "all" }

var fileSystems = []string{"ext4", "xfs", "btrfs"}

// Reduce computes the metrics:
//
//	<fs>.states, <fs>.violations   crash states of the product, and those in which an acknowledgement was lost or a ghost found
//	<fs>.operations                acknowledged in the recordings that were swept
//	again.states, again.bad        states after a second cut, and those that lost something
//	again.unmountable              and those whose file system did not survive it
//	nodir.missed, nofile.missed, lying.missed   sweeps of a broken twin in which nothing was seen
//	broken.hits, broken.states, broken.violations   failed requests, crash states after them, and those not as they must be
//	broken.failed_operations       operations that returned the disk's error
//	unmountable.share              percent of all these states whose file system did not survive, so that nothing could be read
//	retry.missed                   file systems where the twin that tries again was not seen to lose anything
func (x *PowerCut) Reduce(dir string) (*experiment.Metrics, error) {
	r, err := load(dir)
	if err != nil {
		return nil, err
	}
	out := &experiment.Metrics{Experiment: "powercut"}
	put := func(name string, value int, unit string, n int, warnings ...string) {
		m := experiment.Exact(name, float64(value), unit, rawFile)
		m.N, m.Warnings = n, warnings
		out.Metrics = append(out.Metrics, m)
	}
	var skipped []string
	var all Tally
	for _, fs := range fileSystems {
		var why []string
		if reason, ok := r.Skipped[fs]; ok {
			why = []string{fs + ": " + reason}
			skipped = append(skipped, why[0])
		}
		t, operations := r.sum(fs, product, anyCell), 0
		r.each(fs, "sweep", product, func(run Run) { operations += run.Sweep.Operations })
		put(fs+".states", t.States, "states", t.States, why...)
		put(fs+".violations", t.Bad, "states", t.States, why...)
		all.add(t)
		put(fs+".operations", operations, "operations", operations, why...)
	}
	var again Tally
	r.each("", "sweep", product, func(run Run) {
		for _, c := range run.Sweep.Again {
			again.add(c.Tally)
		}
	})
	put("again.states", again.States, "states", again.States, skipped...)
	put("again.bad", again.Bad, "states", again.States, skipped...)
	put("again.unmountable", again.Unmountable, "states", again.States, skipped...)
	for _, kind := range []string{nodir, nofile, lying} {
		missed, n := r.missed(kind)
		put(kind+".missed", missed, "sweeps", n, skipped...)
	}
	t, hits := r.broken("", product, anyBreakage)
	put("broken.hits", hits, "requests", hits, skipped...)
	put("broken.states", t.States, "states", t.States, skipped...)
	put("broken.violations", t.Bad, "states", t.States, skipped...)
	all.add(t)
	failed := 0
	r.each("", "broken", product, func(run Run) {
		for _, b := range run.Breakages {
			failed += b.Failed
		}
	})
	put("broken.failed_operations", failed, "operations", hits, skipped...)
	missed, n := r.retryMissed()
	put("retry.missed", missed, "file systems", n, skipped...)
	all.add(again)
	put("remounted", all.Remounted, "states", all.States, skipped...)
	share := 0.0
	if all.States > 0 {
		share = 100 * float64(all.Unmountable) / float64(all.States)
	}
	unmountable := experiment.Exact("unmountable.share", share, "%", rawFile)
	unmountable.N, unmountable.Warnings = all.States, skipped
	out.Metrics = append(out.Metrics, unmountable)
	return out, out.Finish()
}

// missed counts the sweeps of a twin in which no state was bad.
func (r Raw) missed(kind string) (missed, sweeps int) {
	r.each("", "sweep", kind, func(run Run) {
		sweeps++
		caught := 0
		for _, c := range run.Sweep.Cells {
			if seen(c) {
				caught += c.violations()
			}
		}
		if caught == 0 {
			missed++
		}
	})
	return missed, sweeps
}

// retryMissed counts the file systems on which trying again went unpunished. Only failed data writes must show it: a failed
// journal write stops the file system at once.
func (r Raw) retryMissed() (missed, n int) {
	for _, fs := range fileSystems {
		t, hits := r.broken(fs, retry, data)
		if hits > 0 {
			n++
			if t.Bad == 0 {
				missed++
			}
		}
	}
	return missed, n
}
