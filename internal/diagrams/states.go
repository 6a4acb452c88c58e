package diagrams

import (
	"fmt"
	"math"
	"strings"

	"shardlease/internal/figures"
	"shardlease/pkg/lease"
)

// node is where a state is drawn.
type node struct {
	status lease.Status
	label  string
	x, y   float64
	final  bool
}

// nodes places the states; a state that the table mentions and that has no place is an error.
var nodes = []node{
	{"", "no record", 80, 170, false},
	{lease.Leased, "leased", 300, 170, false},
	{lease.Committing, "committing", 510, 170, false},
	{lease.Done, "done", 694, 170, true},
	{lease.Abandoned, "abandoned", 300, 350, false},
}

const nodeWidth, nodeHeight = 104.0, 40.0

// edge is all transitions between two states.
type edge struct {
	from, to lease.Status
	labels   []string
}

// lines are the labels as written. Between neighbours there is room for an operation or its condition, not for both in one line.
func (e edge) lines() []string {
	a, errA := place(e.from)
	b, errB := place(e.to)
	if errA != nil || errB != nil || e.from == e.to || a.y != b.y {
		return e.labels
	}
	var out []string
	for _, l := range e.labels {
		op, guard, ok := strings.Cut(l, " [")
		if out = append(out, op); ok {
			out = append(out, "["+guard)
		}
	}
	return out
}

// route is how the edge between two states runs: its path, and where its labels stand.
type route struct {
	path   string
	x, y   float64 // of the first label line
	anchor string
}

// States draws the state machine of a lease from its transitions.
func States(transitions []lease.Transition) ([]byte, error) {
	d := &drawing{width: 760, height: 396}
	d.text(12, 20, 15, "start", figures.Ink, bold, "The life of a lease record")
	d.text(12, 40, 12, "start", figures.Grey, "", "every transition of the library's table; whatever is not drawn is refused and changes nothing")
	for _, e := range edges(transitions) {
		r, err := routeOf(e)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(d, "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.4\" marker-end=\"url(#lease-states-arrow)\"/>\n", r.path, figures.Ink)
		for i, l := range e.lines() {
			d.text(r.x, r.y+15*float64(i), 11, r.anchor, figures.Blue, "", l)
		}
	}
	for _, n := range nodes {
		stroke, fill := figures.Ink, "#F3F7FA"
		if n.status == "" {
			stroke, fill = figures.Grey, "#FFFFFF"
		}
		d.rect(n.x-nodeWidth/2, n.y-nodeHeight/2, nodeWidth, nodeHeight, fill, stroke, 9)
		if n.final {
			d.rect(n.x-nodeWidth/2+4, n.y-nodeHeight/2+4, nodeWidth-8, nodeHeight-8, "none", stroke, 6)
		}
		d.text(n.x, n.y, 13, "middle", figures.Ink, bold, n.label)
	}
	return d.finish("lease-states", "States of a lease record and the operations between them"), nil
}

// edges groups the transitions, in the order of the table.
func edges(transitions []lease.Transition) []edge {
	var out []edge
	for _, t := range transitions {
		label := string(t.Op)
		if t.Guard != lease.Always {
			label += " [" + string(t.Guard) + "]"
		}
		found := false
		for i := range out {
			if out[i].from == t.From && out[i].to == t.To {
				out[i].labels, found = append(out[i].labels, label), true
			}
		}
		if !found {
			out = append(out, edge{t.From, t.To, []string{label}})
		}
	}
	return out
}

func place(s lease.Status) (node, error) {
	for _, n := range nodes {
		if n.status == s {
			return n, nil
		}
	}
	return node{}, fmt.Errorf("state %q has no place in the drawing; give it one", s)
}

// routeOf runs loops above their state (below for the lowest row), neighbours straight, and the two ways between two states apart.
func routeOf(e edge) (route, error) {
	a, err := place(e.from)
	if err != nil {
		return route{}, err
	}
	b, err := place(e.to)
	if err != nil {
		return route{}, err
	}
	lines := 15 * float64(len(e.labels)-1)
	switch {
	case e.from == e.to && a.y > 200:
		x := a.x - nodeWidth/2
		return route{fmt.Sprintf("M%g %gC%g %g %g %g %g %g", x, a.y-8, x-44, a.y-22, x-44, a.y+22, x, a.y+8), x - 40, a.y - lines/2, "end"}, nil
	case e.from == e.to:
		top := a.y - nodeHeight/2
		return route{fmt.Sprintf("M%g %gC%g %g %g %g %g %g", a.x-18, top, a.x-34, top-32, a.x+34, top-32, a.x+18, top), a.x, top - 33 - lines, "middle"}, nil
	case a.y == b.y:
		x1, x2 := a.x+nodeWidth/2, b.x-nodeWidth/2
		return route{fmt.Sprintf("M%g %gL%g %g", x1, a.y, x2, b.y), (x1 + x2) / 2, a.y + nodeHeight/2 + 14, "middle"}, nil
	case a.y < b.y: // down on the right
		return route{fmt.Sprintf("M%g %gL%g %g", a.x+22, a.y+nodeHeight/2, b.x+22, b.y-nodeHeight/2), a.x + 32, (a.y+b.y)/2 - lines/2, "start"}, nil
	case math.Abs(a.x-b.x) < 1: // up on the left
		return route{fmt.Sprintf("M%g %gL%g %g", a.x-22, a.y-nodeHeight/2, b.x-22, b.y+nodeHeight/2), a.x - 32, (a.y+b.y)/2 - lines/2, "end"}, nil
	}
	return route{}, fmt.Errorf("no route from %q to %q (%s) in the drawing; give it one", e.from, e.to, strings.Join(e.labels, ", "))
}
