package experiments

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"shardlease/internal/experiment"
)

// terminal tells the reader what is going on: a progress bar where somebody watches, plain lines elsewhere. Everything but
// the bar goes into the run's log as well.
type terminal struct {
	out    io.Writer
	log    io.Writer
	watch  bool
	bar    *progressbar.ProgressBar
	prefix string
}

func newTerminal(log io.Writer) *terminal {
	return &terminal{out: os.Stderr, log: log, watch: term.IsTerminal(int(os.Stderr.Fd()))}
}

func (t *terminal) line(format string, args ...any) {
	t.clear()
	text := fmt.Sprintf(format, args...)
	fmt.Fprintln(t.out, text)
	fmt.Fprintf(t.log, "%s %s\n", time.Now().UTC().Format(time.RFC3339), text)
}

// tick shows the progress of the experiment named by prefix.
func (t *terminal) tick(k experiment.Tick) {
	if !t.watch {
		t.line("%s: %d/%d %s", t.prefix, k.Done, k.Total, k.What)
		return
	}
	if t.bar == nil || t.bar.GetMax() != k.Total {
		t.clear()
		t.bar = progressbar.NewOptions(k.Total, progressbar.OptionSetWriter(t.out), progressbar.OptionSetWidth(30),
			progressbar.OptionClearOnFinish(), progressbar.OptionSetElapsedTime(true), progressbar.OptionSetPredictTime(false))
	}
	t.bar.Describe(t.prefix + ": " + k.What)
	if err := t.bar.Set(k.Done); err != nil {
		t.watch = false // a bar that can't be drawn gives way to lines
	}
}

func (t *terminal) clear() {
	if t.bar != nil {
		_ = t.bar.Clear() // only the picture suffers
		t.bar = nil
	}
}

// table prints rows in columns; the first row is the header.
func table(w io.Writer, rows [][]string) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, row := range rows {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
		if i == 0 {
			under := make([]string, len(row))
			for j, cell := range row {
				under[j] = strings.Repeat("-", len(cell))
			}
			fmt.Fprintln(tw, strings.Join(under, "\t"))
		}
	}
	_ = tw.Flush() // to a terminal or a buffer
}

// verdictRows is the closing table.
func verdictRows(verdicts []experiment.Verdict) [][]string {
	rows := [][]string{{"claim", "verdict", "report", "here", "interval", "band", "sentence"}}
	for _, v := range verdicts {
		rows = append(rows, []string{v.Claim, string(v.Verdict), optional(v.Report), optional(v.Value), interval(v), limits(v.Band), v.Sentence})
	}
	return rows
}

func optional(x *float64) string {
	if x == nil {
		return "-"
	}
	return experiment.Number(*x)
}

func interval(v experiment.Verdict) string {
	switch {
	case v.Low == nil || v.High == nil:
		return "-"
	case *v.Low == *v.High:
		return "exact"
	}
	return experiment.Number(*v.Low) + " .. " + experiment.Number(*v.High)
}

func limits(l experiment.Limits) string {
	if l.Low != nil && l.High != nil && *l.Low == *l.High {
		return "= " + experiment.Number(*l.Low)
	}
	return experiment.Band{Low: l.Low, High: l.High}.String()
}
