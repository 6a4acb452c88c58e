package sweep

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"shardlease/experiments/powercut/rig/history"
	"shardlease/experiments/powercut/rig/loopdev"
	"shardlease/experiments/powercut/rig/recdisk"
	"shardlease/experiments/powercut/rig/workload"
)

// Plan says at which positions the power is cut. The end of the recording is always one of them.
type Plan struct {
	Every  bool   // each position
	Points int    // positions drawn from all
	Acks   int    // positions drawn from those right after acknowledgements, where a missing barrier shows best
	At     []int  // these positions
	Seed   uint64 // of the choice of points, and of what survives
	Keep   int    // how many violations to describe

	// Again is the number of states, drawn from the sound ones, in which the power is cut once more: while the file system
	// recovers, or while the workload takes over what it finds. AgainPoints is the number of such second cuts in each.
	Again, AgainPoints int

	Before map[int]*history.Allowed   // what may be on the disk when the recording begins; nil is an empty disk
	Tell   func(states, expected int) // about progress; may be nil
}

// Tally counts states.
type Tally struct {
	States      int `json:"states"`
	Bad         int `json:"bad"`         // mounted, and something acknowledged is lost or something never done is there
	Unmountable int `json:"unmountable"` // the file system itself did not survive
	Remounted   int `json:"remounted"`   // could be mounted only at the second try, from the same bytes
}

func (t *Tally) add(u Tally) {
	t.States += u.States
	t.Bad += u.Bad
	t.Unmountable += u.Unmountable
	t.Remounted += u.Remounted
}

// Cell is the tally of one survival mode at one kind of position.
type Cell struct {
	Mode     string `json:"mode"`
	AfterAck bool   `json:"after_ack"` // cut right after an acknowledgement
	Tally
}

// Cells are the tallies of a sweep.
type Cells []Cell

// Total sums over all cells.
func (cs Cells) Total() (t Tally) {
	for _, c := range cs {
		t.add(c.Tally)
	}
	return t
}

func (cs *Cells) add(one Cell) {
	for i := range *cs {
		if c := &(*cs)[i]; c.Mode == one.Mode && c.AfterAck == one.AfterAck {
			c.Tally.add(one.Tally)
			return
		}
	}
	*cs = append(*cs, one)
}

// Violation is one bad state; position, mode and seed replay it on the same recording.
type Violation struct {
	Position int    `json:"position"`
	Mode     string `json:"mode"`
	Seed     uint64 `json:"seed"`
	What     string `json:"what"`
}

// Report is the outcome of a sweep.
type Report struct {
	Events     int         `json:"events"`
	Flushes    int         `json:"flushes"`
	Acks       int         `json:"acks"`
	Positions  int         `json:"positions"`
	Cells      Cells       `json:"cells"`
	Again      Cells       `json:"again"` // of second cuts
	Violations []Violation `json:"violations"`
}

// cut is one chosen position.
type cut struct {
	pos      int
	afterAck bool
}

// cuts chooses the positions of a plan. Position 0, before the first event, is among the candidates.
func cuts(r *recdisk.Recording, p Plan) ([]cut, error) {
	acked, err := history.Acks(r)
	if err != nil {
		return nil, err
	}
	all := make([]int, len(r.Events)+1)
	for i := range all {
		all[i] = i
	}
	rng := rand.New(rand.NewPCG(p.Seed, 1))
	draw := func(from []int, n int) []int {
		from = slices.Clone(from)
		rng.Shuffle(len(from), func(i, j int) { from[i], from[j] = from[j], from[i] })
		return from[:min(n, len(from))]
	}
	chosen := []int{len(r.Events)}
	if p.Every {
		chosen = all
	} else {
		chosen = slices.Concat(chosen, p.At, draw(all, p.Points), draw(acked, p.Acks))
	}
	slices.Sort(chosen)
	var out []cut
	for _, pos := range slices.Compact(chosen) {
		_, after := slices.BinarySearch(acked, pos)
		out = append(out, cut{pos, after})
	}
	return out, nil
}

// begin chooses the positions and describes the recording.
func begin(r *recdisk.Recording, p Plan) (rep Report, chosen []cut, err error) {
	rep.Events = len(r.Events)
	for _, e := range r.Events {
		if e.Kind == recdisk.Flush {
			rep.Flushes++
		}
	}
	acked, err := history.Acks(r)
	if err != nil {
		return rep, nil, err
	}
	rep.Acks = len(acked)
	chosen, err = cuts(r, p)
	rep.Positions = len(chosen)
	return rep, chosen, err
}

// Sweep cuts the power at each chosen position in each survival mode, lets the file system recover, and checks the tables.
func (b Bench) Sweep(ctx context.Context, r *recdisk.Recording, c workload.Config, p Plan) (Report, error) {
	rep, chosen, err := begin(r, p)
	if err != nil {
		return rep, err
	}
	modes := recdisk.Modes()
	again := b.drawAgain(len(chosen)*len(modes), p)
	cursor := r.Cursor()
	for i, at := range chosen {
		if err := cursor.Seek(at.pos); err != nil {
			return rep, err
		}
		expected, err := history.Expect(p.Before, r, at.pos)
		if err != nil {
			return rep, err
		}
		for k, m := range modes {
			if err := ctx.Err(); err != nil {
				return rep, err
			}
			s := state{image: cursor.Image(m, p.Seed), size: r.Size, expected: expected}
			fault, retried, err := b.try(ctx, s, c)
			if err != nil {
				return rep, err
			}
			t := tally(fault)
			if retried != nil {
				t.Remounted = 1
				fmt.Fprintf(os.Stderr, "position %d, mode %s, seed %d: mounted at the second try only: %v\n", at.pos, m, p.Seed, retried)
			}
			rep.Cells.add(Cell{m.String(), at.afterAck, t})
			if fault != nil && len(rep.Violations) < p.Keep {
				rep.Violations = append(rep.Violations, Violation{at.pos, m.String(), p.Seed, fault.Error()})
			}
			if fault == nil && again[i*len(modes)+k] {
				if err := b.cutAgain(ctx, s, c, p, &rep, Violation{at.pos, m.String(), p.Seed, ""}); err != nil {
					return rep, err
				}
			}
		}
		if p.Tell != nil {
			p.Tell((i+1)*len(modes), len(chosen)*len(modes))
		}
	}
	return rep, nil
}

// drawAgain draws which of n states get a second cut.
func (b Bench) drawAgain(n int, p Plan) map[int]bool {
	drawn := map[int]bool{}
	for _, i := range rand.New(rand.NewPCG(p.Seed, 2)).Perm(n)[:min(p.Again, n)] {
		drawn[i] = true
	}
	return drawn
}

// cutAgain puts a surviving image on a recording disk of its own, runs a short workload there that takes over what it finds, and
// cuts the power of that.
func (b Bench) cutAgain(ctx context.Context, s state, c workload.Config, p Plan, rep *Report, first Violation) error {
	image := b.path("first.img")
	if err := s.image.WriteFile(image, s.size); err != nil {
		return err
	}
	second := Bench{Self: b.Self, Dir: b.path("again"), FS: b.FS, Options: b.Options}
	c.Batches, c.First = 2, c.First+100_000
	rec, _, err := second.Record(ctx, c, recdisk.Faults{}, image)
	if err != nil {
		return fmt.Errorf("a workload after the cut at position %d, mode %s, seed %d: %w", first.Position, first.Mode, first.Seed, err)
	}
	r, err := second.Sweep(ctx, rec, c, Plan{Points: p.AgainPoints, Acks: p.AgainPoints, Seed: p.Seed, Keep: 1, Before: s.expected})
	if err != nil {
		return err
	}
	for _, cell := range r.Cells {
		rep.Again.add(cell)
	}
	for _, v := range r.Violations {
		if len(rep.Violations) < p.Keep {
			first.What = fmt.Sprintf("second cut at position %d, mode %s: %s", v.Position, v.Mode, v.What)
			rep.Violations = append(rep.Violations, first)
		}
	}
	return second.CleanUp()
}

// state is one surviving image and what may be found on it.
type state struct {
	image    recdisk.Image
	size     int64
	expected map[int]*history.Allowed
}

// errUnmountable is matched by a fault that is the file system's own.
var errUnmountable = errors.New("the file system can't be mounted")

func tally(fault error) Tally {
	switch {
	case fault == nil:
		return Tally{States: 1}
	case errors.Is(fault, errUnmountable):
		return Tally{States: 1, Unmountable: 1}
	}
	return Tally{States: 1, Bad: 1}
}

// try builds, mounts, checks and unmounts one surviving image. fault says what was wrong with it; retried, what was wrong with the machine
// at the first mount, since the same bytes could be mounted at the second; err, that the rig failed.
func (b Bench) try(ctx context.Context, s state, c workload.Config) (fault, retried, err error) {
	fault, err = b.mount(s)
	if fault != nil {
		retried = fault
		fault, err = b.mount(s)
	}
	if fault != nil || err != nil {
		return fault, nil, err
	}
	c.Root = b.path("crash")
	fault = workload.Check(ctx, c, s.expected)
	if errors.Is(fault, context.Canceled) {
		fault = nil
		err = context.Canceled
	}
	return fault, retried, errors.Join(err, loopdev.Unmount(b.path("crash")))
}

// mount builds the image anew and mounts it.
func (b Bench) mount(s state) (fault, err error) {
	image := b.path("crash.img")
	if err := s.image.WriteFile(image, s.size); err != nil {
		return nil, err
	}
	if err := loopdev.Mount(image, b.path("crash"), b.FS.Name, b.Options); err != nil {
		return fmt.Errorf("%w: %w; kernel log: %s", errUnmountable, err, kernelLog(3)), nil
	}
	return nil, nil
}

// kernelLog returns the last lines of the kernel's log: why a mount failed is said nowhere else.
func kernelLog(lines int) string {
	buf := make([]byte, 1<<20)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, buf)
	if err != nil {
		return err.Error()
	}
	log := strings.Split(strings.TrimSpace(string(buf[:n])), "\n")
	return strings.Join(log[max(0, len(log)-lines):], " | ")
}

// Replay checks one state again and returns what was wrong with it, or nil.
func (b Bench) Replay(ctx context.Context, r *recdisk.Recording, c workload.Config, v Violation) (fault, err error) {
	m, err := recdisk.ParseMode(v.Mode)
	if err != nil {
		return nil, err
	}
	cursor := r.Cursor()
	if err := cursor.Seek(v.Position); err != nil {
		return nil, err
	}
	expected, err := history.Expect(nil, r, v.Position)
	if err != nil {
		return nil, err
	}
	fault, _, err = b.try(ctx, state{cursor.Image(m, v.Seed), r.Size, expected}, c)
	return fault, err
}
