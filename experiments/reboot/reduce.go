package reboot

import (
	"path/filepath"

	"shardlease/internal/experiment"
)

const rawFile = "reboot.json"

// What a run stands for: the product, or something broken on purpose.
const (
	product = "product"
	nodir   = "nodir"
	lying   = "lying"
)

// Raw is the content of rawFile.
type Raw struct {
	Scale   string `json:"scale"`
	Skipped string `json:"skipped"` // why nothing was run; empty otherwise
	Runs    []Run  `json:"runs"`
}

// Run is one run of the rig.
type Run struct {
	FileSystem string `json:"file_system"`
	Kind       string `json:"kind"`
	Result     Result `json:"result"`
}

// Result is what the rig prints.
type Result struct {
	Cycles     []Cycle     `json:"cycles"`
	Hung       int         `json:"hung"` // boots that did not get as far as the guest, and were tried again
	Events     int         `json:"events"`
	Flushes    int         `json:"flushes"`
	Acks       int         `json:"acks"`
	Positions  int         `json:"positions"`
	Cells      []Cell      `json:"cells"`
	Again      []Cell      `json:"again"`
	Violations []Violation `json:"violations"`
	Seconds    float64     `json:"s"`
}

// Cycle is one machine that was killed: after how many marks, what survived, and what the next one found wrong.
type Cycle struct {
	Marks       int    `json:"marks"`
	Mode        string `json:"mode"`
	Fault       string `json:"fault"`
	Unmountable bool   `json:"unmountable"` // the fault is the file system's own: it did not survive
}

// Cell is the tally of one survival mode.
type Cell struct {
	Mode        string `json:"mode"`
	AfterAck    bool   `json:"after_ack"`
	States      int    `json:"states"`
	Bad         int    `json:"bad"`
	Unmountable int    `json:"unmountable"`
	Remounted   int    `json:"remounted"` // never: the guest mounts once
}

// Violation is one bad state.
type Violation struct {
	Position int    `json:"position"`
	Mode     string `json:"mode"`
	Seed     uint64 `json:"seed"`
	What     string `json:"what"`
}

func load(dir string) (r Raw, err error) {
	err = experiment.ReadJSON(filepath.Join(dir, rawFile), &r)
	return r, err
}

// Reduce computes the metrics:
//
//	cycles.faults                  machines that found something acknowledged lost, of all that mounted their disk after a kill
//	cycles.unmountable             machines whose file system did not survive, of all that were booted after a kill
//	boots.hung                     emulated machines that hung before they had come to the guest and were started again, of all runs
//	sweep.bad, sweep.unmountable   crash states of the product's recordings that lost something; that did not mount
//	nodir.missed, lying.missed     sweeps of a broken twin in which nothing was seen
func (x *Reboot) Reduce(dir string) (*experiment.Metrics, error) {
	r, err := load(dir)
	if err != nil {
		return nil, err
	}
	out := &experiment.Metrics{Experiment: "reboot"}
	put := func(name string, value int, unit string, n int) {
		m := experiment.Exact(name, float64(value), unit, rawFile)
		m.N = n
		if r.Skipped != "" {
			m.Warnings = []string{r.Skipped}
		}
		out.Metrics = append(out.Metrics, m)
	}
	faults, dead, boots, states, bad, unmountable, hung := 0, 0, 0, 0, 0, 0, 0
	missed, sweeps := map[string]int{}, map[string]int{}
	for _, run := range r.Runs {
		hung += run.Result.Hung
		if run.Kind != product {
			sweeps[run.Kind]++
			if run.Result.caught() == 0 {
				missed[run.Kind]++
			}
			continue
		}
		for _, c := range run.Result.Cycles {
			boots++
			switch {
			case c.Unmountable:
				dead++
			case c.Fault != "":
				faults++
			}
		}
		for _, c := range run.Result.Cells {
			states, bad, unmountable = states+c.States, bad+c.Bad, unmountable+c.Unmountable
		}
	}
	put("cycles.faults", faults, "boots", boots-dead)
	put("cycles.unmountable", dead, "boots", boots)
	put("boots.hung", hung, "boots", len(r.Runs))
	put("sweep.bad", bad, "states", states)
	put("sweep.unmountable", unmountable, "states", states)
	for _, kind := range []string{nodir, lying} {
		put(kind+".missed", missed[kind], "sweeps", sweeps[kind])
	}
	return out, out.Finish()
}

// caught counts the states in which a broken twin was seen. Mode "all" keeps the order of arrival, so that a lying disk passes there.
func (r Result) caught() int {
	n := 0
	for _, c := range r.Cells {
		if c.Mode != "all" {
			n += c.Bad + c.Unmountable
		}
	}
	return n
}
