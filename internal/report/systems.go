package report

import (
	"cmp"
	"fmt"
	"html"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"shardlease/internal/experiment"
	"shardlease/internal/timing"
)

// systems is a table of one metric of every system that an experiment timed: a row for each system, in the order of the first
// column's values, and a column for each case. kind is "ms" (least first) or "gain" (most first); cases are "n64k1" or "ext4", and all
// that were timed when none is named. What was not timed in a case is a dash, and why is in the list of warnings.
func (b *builder) systems(name, kind string, cases ...string) (string, error) {
	m := b.run.metrics[name]
	if m == nil {
		return "", fmt.Errorf("%q: experiment %s did not finish in this run", kind, name)
	}
	cells := map[string]map[string]experiment.Metric{} // by system and case
	var timed []string
	for _, metric := range m.Metrics {
		part := strings.Split(metric.Name, ".")
		if len(part) != 3 || part[2] != kind || label(part[1]) == "" || len(cases) > 0 && !slices.Contains(cases, part[0]) {
			continue
		}
		if !slices.Contains(timed, part[0]) {
			timed = append(timed, part[0])
		}
		if cells[part[1]] == nil {
			cells[part[1]] = map[string]experiment.Metric{}
		}
		cells[part[1]][part[0]] = metric
	}
	for _, c := range cases {
		if !slices.Contains(timed, c) {
			return "", fmt.Errorf("experiment %s has no %s.*.%s", name, c, kind)
		}
	}
	if len(timed) == 0 {
		return "", fmt.Errorf("experiment %s has no *.*.%s", name, kind)
	}
	if len(cases) > 0 {
		timed = cases
	} else {
		slices.SortFunc(timed, func(a, b string) int { return slices.Compare(caseOrder(a), caseOrder(b)) })
	}
	head := []string{b.words.system}
	for _, c := range timed {
		head = append(head, b.words.caseName(c))
	}
	var rows [][]string
	for _, s := range order(cells, timed, kind) {
		row := []string{escape(label(s))}
		for _, c := range timed {
			cell := "&ndash;"
			if metric, ok := cells[s][c]; ok {
				var err error
				if cell, err = b.metric(name+"."+metric.Name, withInterval); err != nil {
					return "", err
				}
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return table("systems", head, rows), nil
}

// order sorts systems by their value in the first case where both were timed, best first, then by name.
func order(cells map[string]map[string]experiment.Metric, cases []string, kind string) []string {
	list := sorted(cells)
	slices.SortStableFunc(list, func(a, b string) int {
		for _, c := range cases {
			x, there := cells[a][c]
			y, too := cells[b][c]
			if !there || !too {
				continue
			}
			if kind == "gain" {
				x, y = y, x
			}
			return cmp.Compare(x.Value, y.Value)
		}
		return 0
	})
	return list
}

// label is a system's name for readers; "" for the control and for what is no system.
func label(metric string) string {
	for system, text := range timing.Label {
		if timing.MetricName(system) == metric {
			return text
		}
	}
	return ""
}

var sized = regexp.MustCompile(`^(n|lat)(\d+)(?:k(\d+))?$`)

// caseOrder sorts cases by kind, then by size.
func caseOrder(name string) []string {
	if m := sized.FindStringSubmatch(name); m != nil {
		return []string{m[1], fmt.Sprintf("%9s%9s", m[2], m[3])}
	}
	return []string{"", name}
}

// caseName is the name of a case for readers: a file system, a number of leases, or the time of a sync.
func (w words) caseName(name string) string {
	switch m := sized.FindStringSubmatch(name); {
	case m == nil:
		return name
	case m[1] == "lat":
		return fmt.Sprintf(w.latency, m[2])
	default:
		return fmt.Sprintf(w.size, m[2], m[3])
	}
}

// warnings lists what an experiment could not measure on this host, and why; nothing when there is nothing.
func (b *builder) warnings(name string) (string, error) {
	m := b.run.metrics[name]
	if m == nil {
		return "", fmt.Errorf("experiment %s did not finish in this run", name)
	}
	if len(m.Warnings) == 0 {
		return "", nil
	}
	var list strings.Builder
	fmt.Fprintf(&list, "<p>%s</p>\n<ul>\n", html.EscapeString(b.words.warned))
	for _, w := range m.Warnings {
		fmt.Fprintf(&list, "<li>%s</li>\n", escape(w))
	}
	return list.String() + "</ul>", nil
}

// maybe is a figure that not every host can draw. Where it is missing the text says so.
func (b *builder) maybe(id, caption string) (string, error) {
	if b.drawn(id) {
		return b.figure(id, caption)
	}
	return fmt.Sprintf("<p><em>%s</em></p>", html.EscapeString(fmt.Sprintf(b.words.undrawn, id))), nil
}

// section is all that a run holds of an experiment: its claims, what it warns of, and its figures.
func (b *builder) section(name string) (string, error) {
	claims, err := b.claims(name)
	if err != nil {
		return "", err
	}
	warned, err := b.warnings(name)
	if err != nil {
		return "", err
	}
	parts := []string{claims, warned}
	drawn, err := filepath.Glob(filepath.Join(b.run.dir, "figures", name+"-*.svg"))
	if err != nil {
		return "", err
	}
	for _, file := range drawn {
		id := strings.TrimSuffix(filepath.Base(file), ".svg")
		if b.seen[id] != 0 {
			continue // shown with its own caption
		}
		figure, err := b.figure(id, b.fedBy(name, id))
		if err != nil {
			return "", err
		}
		parts = append(parts, figure)
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "\n\n"), nil
}

// fedBy says which claims a figure shows.
func (b *builder) fedBy(name, id string) string {
	var ids []string
	for _, s := range b.run.specs {
		for _, c := range s.Claims {
			if s.Name == name && slices.Contains(c.Feeds, id) {
				ids = append(ids, c.ID)
			}
		}
	}
	if len(ids) == 0 {
		return ""
	}
	return b.words.shows + " " + strings.Join(ids, ", ")
}

// others are the experiments of the run that are not named: those for which the template has no section of its own.
func (b *builder) others(named ...string) []*experiment.Spec {
	return slices.DeleteFunc(slices.Clone(b.run.specs), func(s *experiment.Spec) bool { return slices.Contains(named, s.Name) })
}
