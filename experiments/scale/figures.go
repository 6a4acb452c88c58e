package scale

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"shardlease/experiments/scale/raw"
	"shardlease/internal/experiment"
	"shardlease/internal/figures"
)

// Figures draws the experiment's figures from the raw files of dir.
func Figures(dir string) ([]figures.Figure, error) {
	s, err := load(dir)
	if err != nil {
		return nil, err
	}
	time, err := s.timeFigure()
	if err != nil {
		return nil, err
	}
	masters, err := s.mastersFigure()
	return []figures.Figure{time, masters}, err
}

// timeFigure shows the time against N, a line for each K, and the models.
func (s *samples) timeFigure() (figures.Figure, error) {
	var panels []figures.Panel
	for _, p := range []struct {
		way, title string
		terms      func(raw.Case, float64) point
	}{
		{raw.Batch, "report's batch", byLeasesAndShards}, {raw.OneFlush, "one flush", byConstantAndLeases},
	} {
		a, b := fit(s.points(p.way, middleOf, p.terms))
		panel := figures.Panel{Title: p.title, X: figures.Axis{Name: "leases renewed, N", Log: true}, Y: figures.Axis{Name: "time of a pass, ms", Log: true}}
		model := map[string]map[float64]float64{} // series -> N -> ms
		for _, k := range s.shardsOf(p.way) {
			measured := figures.Series{Name: fmt.Sprintf("K = %d", k), Kind: figures.LineMarks}
			for _, c := range s.Cases {
				if c.Way != p.way || c.Active != k {
					continue
				}
				m, err := experiment.Median("x", s.values(c, wallMS), "ms", raw.SidesFile)
				if err != nil {
					return figures.Figure{}, err
				}
				measured.Points = append(measured.Points, figures.Point{X: float64(c.Records), Y: m.Value, Interval: &figures.Interval{Low: m.Low, High: m.High}})
				t, name := p.terms(c, 0), "model"
				if p.way == raw.Batch {
					name += ", " + measured.Name
				}
				if model[name] == nil {
					model[name] = map[float64]float64{}
				}
				model[name][float64(c.Records)] = a*t.x + b*t.y
			}
			slices.SortFunc(measured.Points, byX)
			panel.Series = append(panel.Series, measured)
		}
		for _, name := range slices.Sorted(maps.Keys(model)) {
			line := figures.Series{Name: name, Kind: figures.Line, Color: figures.Grey, Dashed: true}
			for n, ms := range model[name] {
				line.Points = append(line.Points, figures.Point{X: n, Y: ms})
			}
			slices.SortFunc(line.Points, byX)
			panel.Series = append(panel.Series, line)
		}
		panels = append(panels, panel)
	}
	return figures.XY(figures.Spec{
		ID: "scale-time", Title: "Time of a heartbeat period against leases and shards", Width: 1000, Height: 480,
		Subtitle: "medians of interleaved rounds with their intervals; dashed: N(F+R)+KD and a constant per beat plus a look-up per lease, fitted",
		Caption:  "A batch pays for each lease and each shard. One-flush renewals pay for one flush, and for each lease only what it takes to see that the set is the same.",
	}, figures.SideBySide, panels...)
}

func byX(p, q figures.Point) int { return cmp.Compare(p.X, q.X) }

// shardsOf are the numbers of shards of a way's cases with more than one number of leases.
func (s *samples) shardsOf(way string) []int {
	sizes := map[int]int{}
	for _, c := range s.Cases {
		if c.Way == way {
			sizes[c.Active]++
		}
	}
	var list []int
	for k, n := range sizes {
		if n > 1 {
			list = append(list, k)
		}
	}
	slices.Sort(list)
	return list
}

var wayLabel = map[string]string{raw.Scalar: "one by one", raw.Batch: "report's batch", raw.Auto: "auto", raw.OneFlush: "one flush"}

// mastersFigure shows which part of the leases lapses with so many masters on one store.
func (s *samples) mastersFigure() (figures.Figure, error) {
	var panels []figures.Panel
	for _, servers := range s.Simulation.Servers {
		panel := figures.Panel{
			Title: fmt.Sprintf("%d at a time", servers), X: figures.Axis{Name: "masters", Log: true}, Y: figures.Axis{Name: "renewals that come too late, %"},
		}
		for _, way := range simulatedWays {
			byRound, err := s.traces(way)
			if err != nil {
				return figures.Figure{}, err
			}
			line := figures.Series{Name: wayLabel[way], Kind: figures.LineMarks}
			for _, n := range s.Simulation.Masters {
				st := s.on(way, slices.Concat(byRound...), servers, 0)
				st.masters = n
				line.Points = append(line.Points, figures.Point{X: float64(n), Y: 100 * st.run().lapsed})
			}
			panel.Series = append(panel.Series, line)
		}
		panels = append(panels, panel)
	}
	return figures.XY(figures.Spec{
		ID: "scale-masters", Title: "Masters on one store until leases lapse", Width: 1000, Height: 440,
		Subtitle: fmt.Sprintf("simulated from the measured calls; each master renews %d leases in %d shards every %s s, TTL %d s; panels: syncs the store serves",
			s.Simulation.Records, s.Simulation.Active, experiment.Number(float64(s.Simulation.TTLSeconds)/3), s.Simulation.TTLSeconds),
		Caption: "Once the store can't serve a heartbeat of every master within a third of the TTL, they queue; with two or three times as many masters, renewals come later than the TTL. The number of masters grows in proportion to the TTL and to the store's speed; the ratio between the ways does not depend on them.",
	}, figures.SideBySide, panels...)
}
