package restart

import (
	"fmt"
	"slices"

	"shardlease/internal/figures"
)

// Figures draws executions against their bound, the time to recover, and the age of the records that were found.
func Figures(dir string) ([]figures.Figure, error) {
	runs, err := load(dir)
	if err != nil {
		return nil, err
	}
	var all []figures.Figure
	for _, draw := range []func([]*run) (figures.Figure, error){duplicatesFigure, recoveryFigure, timestampsFigure} {
		f, err := draw(runs)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

func duplicatesFigure(runs []*run) (figures.Figure, error) {
	var groups []figures.Group
	for i, r := range runs {
		groups = append(groups, figures.Group{Name: fmt.Sprint(i + 1), Bars: []figures.Bar{
			{Name: "beyond the first", Value: float64(r.repeated())}, {Name: "allowed by the bound", Value: float64(r.bound() - r.items())}}})
	}
	return figures.Bars(figures.Spec{
		ID: "restart-duplicates", Title: "Executions beyond the first of an item, against their bound",
		Subtitle: "one execution for each worker and job cut off, two for each worker and stop, one for each rejected result",
		Caption:  "Real campaigns under Open MPI, each disturbed in its own way and run again until done.",
	}, figures.Axis{Name: "executions in each campaign, by its number", Zero: true}, groups...)
}

func recoveryFigure(runs []*run) (figures.Figure, error) {
	var lanes []figures.Lane
	for i, r := range runs {
		lane := figures.Lane{Label: fmt.Sprintf("campaign %d", i+1)}
		first := r.Jobs[0].Start
		for _, j := range r.Jobs {
			state := "job that was cut off"
			if j.ExitCode == 0 {
				state = "job that ended well"
			}
			lane.Spans = append(lane.Spans, figures.Span{From: j.Start.Sub(first).Seconds(), To: j.End.Sub(first).Seconds(), State: state})
		}
		for _, e := range r.executions {
			if e.Event == "start" {
				lane.Ticks = append(lane.Ticks, e.Time.Sub(first).Seconds())
			}
		}
		lanes = append(lanes, lane)
	}
	return figures.Lanes(figures.Spec{
		ID: "restart-recovery", Title: "Campaigns that were cut off and run again",
		Subtitle: "ticks are starts of executions; the gap between a job's beginning and its first tick is the time to recover",
		Caption:  "Jobs of one campaign share one epoch. A restarted job redoes begun commits and takes over all leases at once, without waiting for the TTL.",
	}, figures.Axis{Name: "time since the campaign began, s", Zero: true}, "an execution starts", lanes...)
}

// timestampsFigure is an empirical distribution of ages; without a leased record there is nothing to draw but the origin.
func timestampsFigure(runs []*run) (figures.Figure, error) {
	groups := map[string][]float64{}
	names := []string{"renewed while executing", "as claimed", "never executed"}
	for _, r := range runs {
		for _, rec := range r.leftRecords() {
			if rec.Status != "leased" {
				continue
			}
			name := names[2]
			if rec.SinceStartS != nil {
				name = names[number(*rec.SinceStartS <= 0)]
			}
			groups[name] = append(groups[name], rec.AgeS)
		}
	}
	var series []figures.Series
	for _, name := range names {
		ages := groups[name]
		if len(ages) == 0 {
			continue
		}
		slices.Sort(ages)
		s := figures.Series{Name: fmt.Sprintf("%s (%d)", name, len(ages)), Kind: figures.Step}
		for i, age := range ages {
			s.Points = append(s.Points, figures.Point{X: age, Y: 100 * float64(i+1) / float64(len(ages))})
		}
		series = append(series, s)
	}
	if len(series) == 0 {
		series = []figures.Series{{Name: "no leased record was found", Kind: figures.Marks, Points: []figures.Point{{X: 0, Y: 0}}}}
	}
	return figures.XY(figures.Spec{
		ID: "restart-timestamps", Title: "Old and new timestamps of leases after jobs that were cut off",
		Subtitle: "age of each leased record when its job had ended; share of the records of its kind that are at most as old",
		Caption:  "A record is either as claimed (old) or renewed (new), never torn. Ages above the heartbeat period belong to jobs whose end took a while.",
	}, figures.SideBySide, figures.Panel{
		X: figures.Axis{Name: "age of the record, s", Zero: true}, Y: figures.Axis{Name: "records, %", Zero: true}, Series: series,
	})
}
