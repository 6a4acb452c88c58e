package evidence

import (
	"path/filepath"
	"slices"
	"time"
)

const stepsFile = "steps.json"

// Step is one step of a run. Steps that failed are kept, and so are steps that a resumed run did again.
type Step struct {
	Name      string            `json:"name"`
	Start     time.Time         `json:"start"`
	End       time.Time         `json:"end"`
	Seconds   float64           `json:"seconds"`
	Predicted float64           `json:"predicted_seconds,omitempty"`
	RC        int               `json:"rc"` // 0, or 1 when it failed
	Error     string            `json:"error,omitempty"`
	Argv      []string          `json:"argv,omitempty"`
	InputHash string            `json:"input_hash"` // of the programs, parameters and claims it depends on; empty is never skipped
	Outputs   map[string]string `json:"outputs"`    // file -> SHA-256
}

// Do runs f as a step and records it durably, whether it succeeds or not. outputs is the folder the step writes, relative
// to the run. A step that an earlier attempt finished with the same inputs and whose outputs are still the same bytes is
// skipped: times of files decide nothing.
func (r *Run) Do(step Step, outputs string, f func() error) (skipped bool, err error) {
	if r.finished(step, outputs) {
		return true, nil
	}
	step.Start = time.Now().UTC()
	err = f()
	step.End = time.Now().UTC()
	step.Seconds = step.End.Sub(step.Start).Seconds()
	if err != nil {
		step.RC, step.Error = 1, err.Error()
	} else if step.Outputs, err = r.hashes(outputs); err != nil {
		return false, err
	}
	r.Steps = append(r.Steps, step)
	if werr := r.WriteJSON(stepsFile, r.Steps); werr != nil {
		return false, werr
	}
	return false, err
}

func (r *Run) finished(step Step, outputs string) bool {
	for _, old := range slices.Backward(r.Steps) {
		if old.Name != step.Name {
			continue
		}
		if old.RC != 0 || old.InputHash == "" || old.InputHash != step.InputHash {
			return false
		}
		now, err := r.hashes(outputs)
		return err == nil && len(now) == len(old.Outputs) && contains(now, old.Outputs)
	}
	return false
}

func contains(now, old map[string]string) bool {
	for name, hash := range old {
		if now[name] != hash {
			return false
		}
	}
	return true
}

func (r *Run) hashes(outputs string) (map[string]string, error) {
	if outputs == "" {
		return map[string]string{}, nil
	}
	list, err := sums(filepath.Join(r.Dir, outputs))
	if err != nil {
		return nil, err
	}
	m := make(map[string]string, len(list))
	for _, s := range list {
		m[outputs+"/"+s.Path] = s.SHA256
	}
	return m, nil
}
