package mpi

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"shardlease/internal/figures"
)

// Figures draws the experiment's figures from the raw files of dir.
func Figures(dir string) ([]figures.Figure, error) {
	var runs []*campaignRun
	for n := 1; ; n++ {
		name := filepath.Join(dir, fmt.Sprintf("campaign-%d", n))
		if _, err := os.Stat(name); os.IsNotExist(err) {
			break
		}
		r, err := loadRun(name)
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("%s: no campaign was recorded", dir)
	}
	beats, err := heartbeatsFigure(runs)
	if err != nil {
		return nil, err
	}
	work, err := executionsOf(runs[0])
	if err != nil {
		return nil, err
	}
	lives, err := executionsFigure(runs[0], work)
	if err != nil {
		return nil, err
	}
	busy, err := busyFigure(work)
	if err != nil {
		return nil, err
	}
	timeline, err := timelineFigure(runs[0])
	return []figures.Figure{beats, timeline, lives, busy}, err
}

// timelineFigure shows each heartbeat batch of each master. Time runs from the first batch of either.
func timelineFigure(r *campaignRun) (figures.Figure, error) {
	first := int64(math.MaxInt64)
	for _, m := range r.stats.Masters {
		for _, b := range m.Log {
			first = min(first, b.At)
		}
	}
	var panels []figures.Panel
	for _, m := range r.stats.Masters {
		renewals := figures.Series{Name: "renewals", Kind: figures.LineMarks}
		syncs := figures.Series{Name: "directory syncs", Kind: figures.LineMarks}
		for _, b := range m.Log {
			if b.Failed {
				continue // counted by the failures, and nothing was renewed by it
			}
			at := float64(b.At-first) / 1000
			renewals.Points = append(renewals.Points, figures.Point{X: at, Y: float64(b.Renewals)})
			syncs.Points = append(syncs.Points, figures.Point{X: at, Y: float64(b.DirectorySyncs)})
		}
		if len(renewals.Points) == 0 {
			continue // a master that never held a lease long enough
		}
		panels = append(panels, figures.Panel{
			Title: fmt.Sprintf("master %d, %d workers", m.Rank, m.Workers),
			X:     figures.Axis{Name: "time since the first heartbeat batch, s", Zero: true}, Y: figures.Axis{Name: "per batch", Zero: true},
			Series: []figures.Series{renewals, syncs},
		})
	}
	if len(panels) == 0 {
		return figures.Figure{}, fmt.Errorf("%s: no heartbeat batch was logged", statsFile)
	}
	return figures.XY(figures.Spec{
		ID: "campaign-timeline", Title: "Every heartbeat batch of the first campaign",
		Subtitle: fmt.Sprintf("renewals and directory syncs of each batch; %d shards", r.Shards),
		Caption:  "A batch renews everything its master holds at that moment, waiting work included, and syncs each touched shard once. The distance between the two lines is what the batch saved.",
	}, figures.Stacked, panels...)
}

func heartbeatsFigure(runs []*campaignRun) (figures.Figure, error) {
	spec := New().Spec()
	reportRenewals, err := spec.Reported("renewals")
	if err != nil {
		return figures.Figure{}, err
	}
	reportSyncs, err := spec.Reported("directory_syncs")
	if err != nil {
		return figures.Figure{}, err
	}
	var groups []figures.Group
	for i, r := range runs {
		syncs := sum(r, func(m master) int { return m.DirectorySyncs })
		groups = append(groups, figures.Group{Name: fmt.Sprintf("campaign %d", i+1), Bars: []figures.Bar{
			{Name: "renewals", Value: renewals(r), Report: &reportRenewals}, {Name: "directory syncs", Value: syncs, Report: &reportSyncs},
		}})
	}
	return figures.Bars(figures.Spec{
		ID: "campaign-heartbeats", Title: "Heartbeats of the campaigns: renewals and the directory syncs they took",
		Subtitle: fmt.Sprintf("%d processes, %d shards, both masters summed; counts", runs[0].Processes, runs[0].Shards),
		Caption:  "The gap between the two bars is what group commit avoided. The counts belong to timing and to the seeds, so ours and the report's need not agree; that there is a gap is the claim.",
	}, figures.Axis{Name: "count per campaign"}, groups...)
}

// execution is one run of the target, in seconds since the first one began.
type execution struct {
	rank     int
	id       string
	from, to float64
	again    bool // the object had been executed before
}

// executionsOf pairs the starts and ends that the workers logged. One that never ended is drawn as ending with the last event.
func executionsOf(r *campaignRun) ([]execution, error) {
	type event struct {
		Execution
		at time.Time
	}
	var events []event
	for _, e := range r.executions {
		at, err := time.Parse(time.RFC3339Nano, e.Time)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", executionsFile, err)
		}
		events = append(events, event{e, at})
	}
	if len(events) == 0 {
		return nil, fmt.Errorf("%s: no execution was logged", executionsFile)
	}
	slices.SortStableFunc(events, func(a, b event) int { return a.at.Compare(b.at) })
	first := events[0].at
	var all []execution
	open, seen := map[int]int{}, map[string]bool{}
	for _, e := range events {
		at := e.at.Sub(first).Seconds()
		switch i, running := open[e.Rank]; {
		case e.Event == "start":
			open[e.Rank] = len(all)
			all = append(all, execution{rank: e.Rank, id: e.ID, from: at, to: -1, again: seen[e.ID]})
			seen[e.ID] = true
		case !running || all[i].id != e.ID:
			return nil, fmt.Errorf("%s: rank %d ends %s, which it had not begun", executionsFile, e.Rank, e.ID)
		default:
			all[i].to = at
			delete(open, e.Rank)
		}
	}
	end := events[len(events)-1].at.Sub(first).Seconds()
	for _, i := range open {
		all[i].to = end
	}
	return all, nil
}

func executionsFigure(r *campaignRun, work []execution) (figures.Figure, error) {
	var lanes []figures.Lane
	byRank := map[int]*figures.Lane{}
	ranks := []int{}
	for _, x := range work {
		if byRank[x.rank] == nil {
			byRank[x.rank] = &figures.Lane{Label: fmt.Sprintf("worker, rank %d", x.rank)}
			ranks = append(ranks, x.rank)
		}
		state := "target runs on a new object"
		if x.again {
			state = "target runs on an object again"
		}
		byRank[x.rank].Spans = append(byRank[x.rank].Spans, figures.Span{From: x.from, To: x.to, State: state})
		byRank[x.rank].Ticks = append(byRank[x.rank].Ticks, x.to)
	}
	slices.SortFunc(ranks, func(a, b int) int { return cmp.Compare(a, b) })
	for _, rank := range ranks {
		lanes = append(lanes, *byRank[rank])
	}
	return figures.Lanes(figures.Spec{
		ID: "campaign-executions", Title: "What each worker did in the first campaign",
		Subtitle: fmt.Sprintf("%d objects; from the log of the workers", r.stats.Final.Observations),
		Caption:  "Each bar is one run of the target under a lease that has to be renewed several times while it lasts. An object is run again only if its lease lapsed on a busy machine, and then its first result is refused.",
	}, figures.Axis{Name: "time since the first execution, s", Zero: true}, "result handed in", lanes...)
}

func busyFigure(work []execution) (figures.Figure, error) {
	type change struct {
		at float64
		by int
	}
	var changes []change
	for _, x := range work {
		changes = append(changes, change{x.from, 1}, change{x.to, -1})
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	s := figures.Series{Name: "busy workers", Kind: figures.Step}
	n := 0
	for _, c := range changes {
		n += c.by
		s.Points = append(s.Points, figures.Point{X: c.at, Y: float64(n)})
	}
	return figures.XY(figures.Spec{
		ID: "campaign-busy", Title: "Busy workers of the first campaign", Height: 300,
		Caption: "As many leases are renewed at each heartbeat as workers are busy.",
	}, figures.SideBySide, figures.Panel{
		X: figures.Axis{Name: "time since the first execution, s", Zero: true}, Y: figures.Axis{Name: "workers running the target", Zero: true},
		Series: []figures.Series{s},
	})
}
