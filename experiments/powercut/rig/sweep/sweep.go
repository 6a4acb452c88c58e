package sweep

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"shardlease/experiments/powercut/rig/history"
	"shardlease/experiments/powercut/rig/loopdev"
	"shardlease/experiments/powercut/rig/recdisk"
	"shardlease/experiments/powercut/rig/workload"
)

// Plan says at which positions the power is cut.
type Plan struct {
	Points int    // 0: each position of the log
	Acks   bool   // only right after acknowledgements, where a missing barrier shows best
	Seed   uint64 // of the choice of points, and of what survives
	Keep   int    // how many violations to describe
}

// Tally counts the states of one survival mode.
type Tally struct {
	States      int `json:"states"`
	Bad         int `json:"bad"`         // mounted, and something acknowledged is lost or something never done is there
	Unmountable int `json:"unmountable"` // the file system itself did not survive
}

// Violation is one bad state; position, mode and seed replay it.
type Violation struct {
	Position int    `json:"position"`
	Mode     string `json:"mode"`
	Seed     uint64 `json:"seed"`
	What     string `json:"what"`
}

// Report is the outcome of a sweep.
type Report struct {
	Events     int              `json:"events"`
	Flushes    int              `json:"flushes"`
	Positions  int              `json:"positions"`
	Modes      map[string]Tally `json:"modes"`
	Violations []Violation      `json:"violations"`
}

// Totals sums over the modes.
func (r Report) Totals() (t Tally) {
	for _, m := range r.Modes {
		t.States += m.States
		t.Bad += m.Bad
		t.Unmountable += m.Unmountable
	}
	return t
}

// positions chooses the cuts of a plan. Position 0, before the first event, is always among the candidates.
func positions(r *recdisk.Recording, p Plan) []int {
	var all []int
	if p.Acks {
		r.Marks(func(pos int, _ string) { all = append(all, pos) })
	} else {
		for pos := range len(r.Events) + 1 {
			all = append(all, pos)
		}
	}
	if p.Points > 0 && p.Points < len(all) {
		rng := rand.New(rand.NewPCG(p.Seed, 1))
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:p.Points]
		slices.Sort(all)
	}
	return all
}

// Sweep cuts the power at each chosen position in each survival mode, lets the file system recover, and checks the table.
func (b Bench) Sweep(ctx context.Context, r *recdisk.Recording, c workload.Config, p Plan) (Report, error) {
	rep := Report{Events: len(r.Events), Modes: map[string]Tally{}}
	for _, e := range r.Events {
		if e.Kind == recdisk.Flush {
			rep.Flushes++
		}
	}
	chosen := positions(r, p)
	rep.Positions = len(chosen)
	cursor := r.Cursor()
	for _, pos := range chosen {
		if err := cursor.Seek(pos); err != nil {
			return rep, err
		}
		for _, m := range recdisk.Modes() {
			if err := ctx.Err(); err != nil {
				return rep, err
			}
			fault, mounted, err := b.state(ctx, r, cursor, c, pos, m, p.Seed)
			if err != nil {
				return rep, err
			}
			t := rep.Modes[m.String()]
			t.States++
			switch {
			case !mounted:
				t.Unmountable++
			case fault != nil:
				t.Bad++
			}
			rep.Modes[m.String()] = t
			if fault != nil && len(rep.Violations) < p.Keep {
				rep.Violations = append(rep.Violations, Violation{pos, m.String(), p.Seed, fault.Error()})
			}
		}
	}
	return rep, nil
}

// state builds, mounts, checks and unmounts one surviving image. fault says what was wrong with it; err, that the rig failed.
func (b Bench) state(ctx context.Context, r *recdisk.Recording, cur *recdisk.Cursor, c workload.Config, pos int, m recdisk.Mode, seed uint64) (fault error, mounted bool, err error) {
	expected, err := history.Expect(r, pos)
	if err != nil {
		return nil, false, err
	}
	image := b.path("crash.img")
	if err := cur.Image(m, seed).WriteFile(image, r.Size); err != nil {
		return nil, false, err
	}
	if err := loopdev.Mount(image, b.path("crash"), b.FS.Name, ""); err != nil {
		return fmt.Errorf("the file system can't be mounted: %w", err), false, nil
	}
	c.Root = b.path("crash")
	fault = workload.Check(ctx, c, expected)
	return fault, true, loopdev.Unmount(b.path("crash"))
}

// Replay checks one state again and returns what was wrong with it, or nil.
func (b Bench) Replay(ctx context.Context, r *recdisk.Recording, c workload.Config, v Violation) error {
	m, err := recdisk.ParseMode(v.Mode)
	if err != nil {
		return err
	}
	cursor := r.Cursor()
	if err := cursor.Seek(v.Position); err != nil {
		return err
	}
	fault, _, err := b.state(ctx, r, cursor, c, v.Position, m, v.Seed)
	return errors.Join(fault, err)
}
