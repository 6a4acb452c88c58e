package hybrid

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"shardlease/internal/figures"
	"shardlease/internal/hybrid"
)

// Figures draws the experiment's figures from the raw files of dir.
func Figures(dir string) ([]figures.Figure, error) {
	d, err := load(dir)
	if err != nil {
		return nil, err
	}
	var all []figures.Figure
	for _, draw := range []func() (figures.Figure, error){d.coverageFigure, d.heartbeatsFigure, d.livesFigure, d.runsFigure} {
		f, err := draw()
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// coverageFigure: edges of AFL's queue over time, with and without the campaign, and where imports came from.
func (d data) coverageFigure() (figures.Figure, error) {
	end := max(d.leased.EndS, d.alone.EndS)
	steps := func(a *armData, value func(Cover, int) float64) []figures.Point {
		points := []figures.Point{{X: 0, Y: 0}}
		for i, c := range a.coverage {
			points = append(points, figures.Point{X: min(c.TimeS, end), Y: value(c, i)})
		}
		return append(points, figures.Point{X: end, Y: points[len(points)-1].Y})
	}
	edges := func(c Cover, _ int) float64 { return float64(c.Edges) }
	imported := 0
	imports := func(c Cover, i int) float64 {
		if i == 0 {
			imported = 0
		}
		if c.Imported {
			imported++
		}
		return float64(imported)
	}
	return figures.XY(figures.Spec{
		ID: "hybrid-coverage", Title: "AFL++ beside the campaign and alone",
		Subtitle: "entries of AFL's queue in the order of their age, measured with afl-showmap",
		Caption: "Each of the target's checks compares four bytes at once, so that AFL++ alone stays where it starts. What the campaign publishes is imported " +
			"and covered by AFL++ at once; the solver is one for just this target.",
	}, figures.Stacked,
		figures.Panel{Title: "covered edges", X: figures.Axis{Name: "time, s", Zero: true}, Y: figures.Axis{Name: "edges", Zero: true}, Series: []figures.Series{
			{Name: "beside two jobs", Color: figures.Blue, Kind: figures.Step, Points: steps(d.leased, edges)},
			{Name: "alone", Color: figures.Vermillion, Kind: figures.Step, Points: steps(d.alone, edges)},
		}},
		figures.Panel{Title: "inputs in AFL's queue that came from the campaign", X: figures.Axis{Name: "time, s", Zero: true}, Y: figures.Axis{Name: "inputs", Zero: true},
			Series: []figures.Series{{Name: "imported", Color: figures.Blue, Kind: figures.Step, Points: steps(d.leased, imports)}}})
}

// heartbeatsFigure: what each call of each coordinator renewed, and how many barriers it took.
func (d data) heartbeatsFigure() (figures.Figure, error) {
	var panels []figures.Panel
	for _, job := range []string{survivor, victim} {
		var renewed, syncs []figures.Point
		for _, ev := range d.leased.heartbeats(job) {
			at := ev.TimeS - d.leased.StartUnixS
			renewed = append(renewed, figures.Point{X: at, Y: float64(ev.Counters.WorkOK)})
			syncs = append(syncs, figures.Point{X: at, Y: float64(ev.DirectorySyncs)})
		}
		if len(renewed) == 0 {
			return figures.Figure{}, fmt.Errorf("job %s has no heartbeat in its event log", job)
		}
		panels = append(panels, figures.Panel{Title: "job " + job, X: figures.Axis{Name: "time, s", Zero: true}, Y: figures.Axis{Name: "per call", Zero: true},
			Series: []figures.Series{{Name: "renewals", Color: figures.Vermillion, Points: renewed}, {Name: "directory syncs", Color: figures.Blue, Points: syncs}}})
	}
	return figures.XY(figures.Spec{
		ID: "hybrid-heartbeats", Title: "One heartbeat call a period, for all workers of a job",
		Subtitle: "each mark is one call; the difference between the two is what the batch avoids",
		Caption:  "The second job's calls end when its coordinator is killed; those of the first go on undisturbed.",
	}, figures.Stacked, panels...)
}

// lanesShown bounds the lives in one figure.
const lanesShown = 24

// livesFigure: the inputs that were at work when the coordinator was killed, and some before.
func (d data) livesFigure() (figures.Figure, error) {
	type life struct {
		sum   string
		spans []figures.Span
	}
	open := map[string]int{} // input -> index of its life
	var lives []*life
	killed := d.killedS()
	for _, job := range []string{victim, survivor} {
		for _, ev := range d.leased.events[job] {
			at := ev.TimeS - d.leased.StartUnixS
			switch ev.Event {
			case hybrid.EventClaim, hybrid.EventRecover:
				i, ok := open[ev.SHA256]
				if !ok {
					i = len(lives)
					open[ev.SHA256] = i
					lives = append(lives, &life{sum: ev.SHA256})
				}
				lives[i].spans = append(lives[i].spans, figures.Span{From: at, To: -1, State: "job " + job})
			case hybrid.EventDone, hybrid.EventFailed, hybrid.EventStale:
				if i, ok := open[ev.SHA256]; ok && len(lives[i].spans) > 0 {
					lives[i].spans[len(lives[i].spans)-1].To = at
				}
			}
		}
	}
	var lanes []figures.Lane
	ticks := d.leased.beatTimes()
	for _, l := range lives {
		var spans []figures.Span
		for i, span := range l.spans {
			if span.To < 0 {
				span.To = max(killed, span.From)
				spans = append(spans, span)
				if i+1 < len(l.spans) {
					spans = append(spans, figures.Span{From: span.To, To: l.spans[i+1].From, State: "nobody, until it expires"})
				}
				continue
			}
			spans = append(spans, span)
		}
		if spans[0].From > killed+4 || spans[len(spans)-1].To < killed-2 {
			continue
		}
		lane := figures.Lane{Label: l.sum[:8], Spans: spans}
		for _, span := range spans {
			for _, at := range ticks[strings.TrimPrefix(span.State, "job ")] {
				if at > span.From && at < span.To {
					lane.Ticks = append(lane.Ticks, at)
				}
			}
		}
		lanes = append(lanes, lane)
	}
	if len(lanes) == 0 {
		return figures.Figure{}, fmt.Errorf("no input was at work when the coordinator was killed, at %.1f s", killed)
	}
	// Those that changed hands first, then those that began closest to the kill; then in the order of their beginning.
	slices.SortFunc(lanes, func(a, b figures.Lane) int {
		return cmp.Or(cmp.Compare(len(b.Spans), len(a.Spans)), cmp.Compare(math.Abs(a.Spans[0].From-killed), math.Abs(b.Spans[0].From-killed)))
	})
	lanes = lanes[:min(len(lanes), lanesShown)]
	slices.SortFunc(lanes, func(a, b figures.Lane) int { return cmp.Compare(a.Spans[0].From, b.Spans[0].From) })
	return figures.Lanes(figures.Spec{
		ID: "hybrid-lives", Title: "Leases around the death of a coordinator",
		Subtitle: fmt.Sprintf("inputs by the start of their sums; SIGKILL at %.1f s", killed),
		Caption:  "What the killed job had stays leased until it expires; then the other job claims it, with the next fence.",
	}, figures.Axis{Name: "time, s"}, "renewal", lanes...)
}

func (d data) killedS() float64 {
	for _, job := range d.leased.Jobs {
		if job.KilledS > 0 {
			return job.KilledS
		}
	}
	return 0
}

// beatTimes are the seconds at which each job has renewed something.
func (a *armData) beatTimes() map[string][]float64 {
	times := map[string][]float64{}
	for _, job := range a.Jobs {
		for _, ev := range a.heartbeats(job.Name) {
			if ev.Counters.WorkOK > 0 {
				times[job.Name] = append(times[job.Name], ev.TimeS-a.StartUnixS)
			}
		}
	}
	return times
}

// runsFigure: how often the solver ran, and on how many different inputs.
func (d data) runsFigure() (figures.Figure, error) {
	group := func(name string, a *armData) figures.Group {
		distinct := map[string]bool{}
		for _, run := range a.runs {
			distinct[run.SHA256] = true
		}
		return figures.Group{Name: name, Bars: []figures.Bar{
			{Name: "runs of the solver", Value: float64(len(a.runs))},
			{Name: "different inputs", Value: float64(len(distinct))},
		}}
	}
	return figures.Bars(figures.Spec{
		ID: "hybrid-runs", Title: "Two jobs on one queue, with and without lease tables",
		Subtitle: "by the solver program's own log",
		Caption: "With lease tables the two differ only by the runs that died with the killed job and were claimed again. Without them each job does the same work. " +
			"The arms are not equally long; compare within an arm.",
	}, figures.Axis{Name: "count", Zero: true}, group("with lease tables", d.leased), group("without", d.unleased))
}
