package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"shardlease/experiments/powercut/rig/history"
	"shardlease/pkg/lease"
)

// heldGroup is a group of targets that a lane holds.
type heldGroup struct {
	items []int
	token lease.Token
}

func numbers(items []int) []uint64 {
	var out []uint64
	for _, i := range items {
		out = append(out, target(i))
	}
	return out
}

func (l *lane) ownTargets() []int {
	var own []int
	for i := range l.c.Targets {
		own = append(own, targetBase+i*l.c.Lanes+l.id)
	}
	return own
}

// stepGroups claims a group of free targets, renews one that is held, or gives one back.
func (l *lane) stepGroups(ctx context.Context) error {
	if l.c.Targets == 0 {
		return nil
	}
	free := l.ownTargets()
	for _, g := range l.groups {
		free = slices.DeleteFunc(free, func(i int) bool { return slices.Contains(g.items, i) })
	}
	switch {
	case len(free) >= 2 && l.rng.IntN(2) == 0:
		l.rng.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
		return l.claimGroup(ctx, free[:2+l.rng.IntN(len(free)-1)])
	case len(l.groups) > 0 && l.rng.IntN(3) > 0:
		return l.renewGroup(ctx, l.groups[l.rng.IntN(len(l.groups))])
	case len(l.groups) > 0:
		return l.releaseGroup(ctx, l.rng.IntN(len(l.groups)))
	}
	return nil
}

// setsOf is one new state for all members of a group.
func (l *lane) setsOf(items []int, change func(s history.State) history.State) map[int]history.State {
	sets := map[int]history.State{}
	for _, i := range items {
		sets[i] = change(l.states[i])
	}
	return sets
}

func (l *lane) claimGroup(ctx context.Context, items []int) error {
	highest, beat := uint64(0), l.next()
	for _, i := range items {
		highest = max(highest, l.states[i].Fence)
	}
	want := history.State{Status: "leased", Fence: highest + 1, Beat: beat}
	return l.do(l.setsOf(items, func(history.State) history.State { return want }), func() error {
		tok, err := l.targets.ClaimGroup(ctx, numbers(items), nil, lease.Holder{Owner: "workload"})
		if err != nil {
			return err
		}
		if tok.Fence != want.Fence {
			return fmt.Errorf("group: fence %d, expected %d", tok.Fence, want.Fence)
		}
		l.groups = append(l.groups, heldGroup{slices.Clone(items), tok})
		return nil
	})
}

func (l *lane) renewGroup(ctx context.Context, g heldGroup) error {
	beat := l.next()
	sets := l.setsOf(g.items, func(s history.State) history.State { s.Beat = beat; return s })
	return l.do(sets, func() error { return l.targets.HeartbeatGroup(ctx, numbers(g.items), g.token) })
}

func (l *lane) releaseGroup(ctx context.Context, which int) error {
	g := l.groups[which]
	l.next()
	sets := l.setsOf(g.items, func(s history.State) history.State {
		return history.State{Status: "abandoned", Fence: s.Fence}
	})
	return l.do(sets, func() error {
		if err := l.targets.ReleaseGroup(ctx, numbers(g.items), g.token); err != nil {
			return err
		}
		l.groups = slices.Delete(l.groups, which, which+1)
		return nil
	})
}

// adoptGroups reads the lane's targets and goes on as the holder of the groups that are whole; the rest is free.
func (l *lane) adoptGroups() error {
	l.groups = nil
	found := map[lease.Token]heldGroup{}
	whole := map[lease.Token]int{}
	for _, i := range l.ownTargets() {
		rec, err := l.targets.Lookup(target(i))
		state, tok, err := lookUp(rec, err)
		if err != nil {
			return err
		}
		l.states[i] = state
		if state.Status != "leased" {
			continue
		}
		g := found[tok]
		g.token = tok
		g.items = append(g.items, i)
		found[tok] = g
		whole[tok] = len(rec.Targets)
	}
	for tok, g := range found {
		if len(g.items) == whole[tok] {
			l.groups = append(l.groups, g)
		}
	}
	slices.SortFunc(l.groups, func(a, b heldGroup) int { return a.items[0] - b.items[0] })
	return nil
}

// checkGroups shows that after the cut a group is either whole, and then held against everybody, or free at once.
func checkGroups(ctx context.Context, t *lease.TargetTable) error {
	members := map[lease.Token][]lease.Record{}
	for rec, err := range t.Records(ctx) {
		if err != nil {
			return err
		}
		if rec.Status == lease.Leased {
			members[rec.Token] = append(members[rec.Token], rec)
		}
	}
	var errs []error
	for _, group := range members {
		_, err := t.ClaimGroup(ctx, group[0].Targets, nil, lease.Holder{Owner: "after"})
		whole := len(group) == len(group[0].Targets)
		switch {
		case whole && !errors.Is(err, lease.ErrHeld):
			errs = append(errs, fmt.Errorf("targets %v are held, but a claim of them ends with %v", group[0].Targets, err))
		case !whole && err != nil && !errors.Is(err, lease.ErrHeld): // a member may belong to another group by now
			errs = append(errs, fmt.Errorf("targets %v are in pieces, but a claim of them ends with: %w", group[0].Targets, err))
		case !whole && err == nil:
			return errors.Join(append(errs, checkGroups(ctx, t))...) // the other pieces have changed
		}
	}
	return errors.Join(errs...)
}
