package diagrams

import (
	"fmt"
	"slices"

	"shardlease/internal/figures"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/tracefs"
)

// Geometry of the drawing, in pixels. Order and lanes come from the trace; widths stand for kinds of operations.
const (
	laneLeft   = 150.0
	laneHeight = 22.0
	blockGap   = 46.0
	topRoom    = 112.0
	padding    = 3.0
)

var widths = map[vfs.Op]float64{vfs.OpWrite: 26, vfs.OpSync: 42, vfs.OpRename: 22, vfs.OpSyncDir: 58, tracefs.OpMark: 10}

var styles = []struct {
	op          vfs.Op
	fill, label string
}{
	{vfs.OpWrite, "#BFD9EA", "write content"},
	{vfs.OpSync, figures.Blue, "file sync"},
	{vfs.OpRename, figures.Green, "rename"},
	{vfs.OpSyncDir, figures.Vermillion, "barrier (directory sync)"},
}

const lockFill, failFill = "#DADADA", "#FFFFFF"

func fillOf(op vfs.Op) string {
	for _, s := range styles {
		if s.op == op {
			return s.fill
		}
	}
	return figures.Grey
}

// GroupCommit draws traces below each other on one time axis.
func GroupCommit(traces []Trace) ([]byte, error) {
	if len(traces) == 0 {
		return nil, fmt.Errorf("there is no trace to draw")
	}
	d := &drawing{width: 760}
	end := 0.0
	for _, t := range traces {
		end = max(end, length(t))
	}
	scale := (float64(d.width) - laneLeft - 50) / end
	legend(d)
	y := topRoom
	for _, t := range traces {
		if err := block(d, t, y, scale); err != nil {
			return nil, fmt.Errorf("%q: %w", t.Title, err)
		}
		y += float64(lanes(t))*laneHeight + blockGap
	}
	d.line(laneLeft, y-22, float64(d.width)-24, y-22, 1.2, figures.Ink, ` marker-end="url(#group-commit-arrow)"`)
	d.text(laneLeft, y-8, 11, "start", figures.Grey, "", "time; the order is the recorded one, the width of a box stands for its kind and is not to scale")
	d.height = int(y) + 6
	return d.finish("group-commit", "Group commit: the same renewals one by one, as a batch, and with a failure"), nil
}

func length(t Trace) float64 {
	total := 0.0
	for _, e := range t.Events {
		if w := widths[e.Op]; w > 0 {
			total += w + padding
		}
	}
	return total
}

// directories are the shards of a trace in order of their first barrier.
func directories(t Trace) []int {
	var out []int
	for _, e := range t.Events {
		if e.Op == vfs.OpSyncDir && !slices.Contains(out, e.Shard) {
			out = append(out, e.Shard)
		}
	}
	return out
}

func lanes(t Trace) int { return len(t.Shards) + len(directories(t)) }

func legend(d *drawing) {
	d.text(12, 20, 15, "start", figures.Ink, bold, "Group commit: one barrier per touched shard")
	d.text(12, 40, 12, "start", figures.Grey, "", "three renewals in two shards, recorded from the library's calls to the file system")
	x := 12.0
	box := func(fill, stroke, label string, width float64) {
		d.rect(x, 58, 14, 12, fill, stroke, 2)
		d.text(x+19, 64, 11, "start", figures.Ink, "", label)
		x += width
	}
	box(lockFill, "none", "record locked", 118)
	for _, s := range styles {
		box(s.fill, "none", s.label, 40+6.6*float64(len(s.label)))
	}
	d.line(x+4, 57, x+4, 71, 2, figures.Ink, "")
	d.text(x+11, 64, 11, "start", figures.Ink, "", "told the caller")
}

// block draws one trace.
func block(d *drawing, t Trace, y, scale float64) error {
	dirs := directories(t)
	d.text(12, y-12, 12.5, "start", figures.Ink, bold, t.Title)
	laneY := func(i int) float64 { return y + float64(i)*laneHeight }
	for i := range lanes(t) {
		label := fmt.Sprintf("record %d in shard %d", i+1, shardOf(t, i))
		if i >= len(t.Shards) {
			label = fmt.Sprintf("directory of shard %d", dirs[i-len(t.Shards)])
		}
		d.text(laneLeft-10, laneY(i)+laneHeight/2, 11, "end", figures.Ink, "", label)
		d.line(laneLeft, laneY(i)+laneHeight/2, float64(d.width)-24, laneY(i)+laneHeight/2, 1, "#E3E3E3", "")
	}
	x := laneLeft
	locked := map[int]float64{}
	var boxes []func()
	for _, e := range t.Events {
		w := widths[e.Op] * scale
		lane := e.Record - 1
		switch e.Op {
		case vfs.OpLock:
			locked[lane] = x
			continue
		case vfs.OpUnlock:
			from, ok := locked[lane]
			if !ok {
				return fmt.Errorf("record %d is unlocked before it was locked", e.Record)
			}
			d.rect(from, laneY(lane)+2, x-from, laneHeight-4, lockFill, "none", 3)
			continue
		case vfs.OpSyncDir:
			lane = len(t.Shards) + slices.Index(dirs, e.Shard)
		case tracefs.OpMark:
			boxes = append(boxes, told(d, x+w/2, y, laneY(lanes(t)), e.Text))
			x += w + padding*scale
			continue
		}
		if lane < 0 {
			return fmt.Errorf("%s belongs to no record", e.Op)
		}
		boxes = append(boxes, operation(d, e, x, laneY(lane), w))
		x += w + padding*scale
	}
	for _, draw := range boxes { // over the locks
		draw()
	}
	return nil
}

func shardOf(t Trace, i int) int {
	if i < len(t.Shards) {
		return t.Shards[i]
	}
	return -1
}

func operation(d *drawing, e Event, x, y, w float64) func() {
	return func() {
		if !e.Failed {
			d.rect(x, y+4, w, laneHeight-8, fillOf(e.Op), "none", 2)
			return
		}
		d.rect(x, y+4, w, laneHeight-8, failFill, figures.Vermillion, 2)
		d.line(x+4, y+7, x+w-4, y+laneHeight-7, 1.8, figures.Vermillion, "")
		d.line(x+4, y+laneHeight-7, x+w-4, y+7, 1.8, figures.Vermillion, "")
		d.text(x+w+16, y+laneHeight/2, 11, "start", figures.Vermillion, bold, "write fails")
	}
}

func told(d *drawing, x, top, bottom float64, text string) func() {
	return func() {
		color := figures.Ink
		if text != acknowledged {
			color = figures.Vermillion
		}
		d.line(x, top-2, x, bottom+2, 2, color, "")
		d.text(x, bottom+10, 10.5, "middle", color, "", text)
	}
}
