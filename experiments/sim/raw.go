package sim

import (
	"encoding/json"
	"errors"
	"io"

	"shardlease/internal/campaign/sim"
)

// Names of the raw files. A campaign that broke an invariant leaves violation-<seed>.txt, its history.
const (
	campaignsFile = "campaigns.jsonl" // a sim.Result each line
	costFile      = "cost.json"
	replaysFile   = "replays.json"
	plantedFile   = "planted.json"
)

// Cost is what the campaigns took.
type Cost struct {
	Campaigns int     `json:"campaigns"`
	WallS     float64 `json:"wall_s"`
	CPUS      float64 `json:"cpu_s"` // user and system
}

// Replay is one seed that was simulated twice.
type Replay struct {
	Seed   uint64 `json:"seed"`
	Events int    `json:"events"`
	Same   bool   `json:"same"`
}

// decode reads the lines of the campaigns program.
func decode(r io.Reader) (results []sim.Result, err error) {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	for {
		var one sim.Result
		if err := dec.Decode(&one); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		results = append(results, one)
	}
	if len(results) == 0 {
		return nil, errors.New("no campaign was recorded")
	}
	return results, nil
}
