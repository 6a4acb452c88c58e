package report

import (
	"fmt"
	"html"
	"strings"

	"shardlease/internal/experiment"
	"shardlease/internal/figures"
)

// words are what the tables say in each language.
type words struct {
	lang, figure, contents, smoke                              string
	claim, statement, section, verdict, measured, report, band string
	status, why, experiment, minutes                           string
	system, size, latency, warned, undrawn, shows              string // size, latency and undrawn are formats
	statuses                                                   map[experiment.Status]string
}

var languages = map[string]words{
	"en": {
		lang: "en", figure: "Figure", contents: "Contents", smoke: "SMOKE: made from a run at small scale, which is no result.",
		claim: "Claim", statement: "Statement", section: "Section", verdict: "Verdict", measured: "Measured here", report: "Report", band: "Band",
		status: "Status", why: "Why", experiment: "Experiment", minutes: "Minutes (expected)",
		system: "System", size: "%s leases, K = %s", latency: "%s ms a sync", warned: "Not measured in this run:", shows: "Claims:",
		undrawn:  "This run could not draw the figure %s; the verdicts and the experiment's log say why.",
		statuses: map[experiment.Status]string{experiment.NotReproduced: "not reproduced", experiment.NotClaimed: "not claimed"},
	},
	"zh": {
		lang: "zh", figure: "图", contents: "目录", smoke: "SMOKE：由小规模运行生成，不是结果。",
		claim: "论断", statement: "内容", section: "原报告章节", verdict: "判定", measured: "本机实测", report: "原报告", band: "容许范围",
		status: "状态", why: "理由", experiment: "实验", minutes: "分钟（预计）",
		system: "系统", size: "%s 条租约，K = %s", latency: "每次同步 %s ms", warned: "本次运行未测：", shows: "论断：",
		undrawn:  "本次运行未能绘出图 %s；原因见判定与该实验的日志。",
		statuses: map[experiment.Status]string{experiment.NotReproduced: "未复现", experiment.NotClaimed: "未主张"},
	},
}

func wordsOf(template string) words { return languages[Language(template)] }

// table writes an HTML table without blank lines, which a Markdown parser leaves alone. Cells are HTML.
func table(class string, head []string, rows [][]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<table class=\"%s\">\n<thead><tr>", class)
	for _, h := range head {
		fmt.Fprintf(&b, "<th>%s</th>", html.EscapeString(h))
	}
	b.WriteString("</tr></thead>\n<tbody>\n")
	for _, row := range rows {
		b.WriteString("<tr>")
		for _, cell := range row {
			fmt.Fprintf(&b, "<td>%s</td>", cell)
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</tbody>\n</table>")
	return b.String()
}

// claims is the table of decided claims of the named experiments, or of all.
func (b *builder) claims(names ...string) (string, error) {
	specs, err := b.specs(names)
	if err != nil {
		return "", err
	}
	w := b.words
	var rows [][]string
	for _, s := range specs {
		for _, c := range s.Claims {
			if !c.Decided() {
				continue
			}
			row, err := b.claimRow(c)
			if err != nil {
				return "", err
			}
			rows = append(rows, row)
		}
	}
	return table("claims", []string{w.claim, w.statement, w.section, w.verdict, w.measured, w.report, w.band}, rows), nil
}

func (b *builder) claimRow(c experiment.Claim) ([]string, error) {
	v, err := b.run.verdict(c.ID)
	if err != nil {
		return nil, err
	}
	badge, err := b.verdict(c.ID)
	if err != nil {
		return nil, err
	}
	value, report := "&ndash;", "&ndash;"
	if v.Value != nil {
		value, err = b.metric(v.Experiment+"."+c.Metric, func(m experiment.Metric) string { return spaced(claimValue(m), m.Unit) })
		if err != nil {
			return nil, err
		}
	}
	if c.Report != nil {
		report = escape(spaced(experiment.Number(*c.Report), c.Unit))
	}
	return []string{escape(c.ID), escape(c.Sentence), escape(orDash(c.Section)), badge, value, report, escape(c.Band.String())}, nil
}

// claimValue prints counts whole and estimates with their interval.
func claimValue(m experiment.Metric) string {
	if m.Low == m.High {
		return experiment.Number(m.Value)
	}
	return figures.Digits(m.Value) + " [" + figures.Digits(m.Low) + ", " + figures.Digits(m.High) + "]"
}

func spaced(value, unit string) string {
	if unit == "" {
		return value
	}
	return value + " " + unit
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// boundaries is the table of what is not decided, and why not.
func (b *builder) boundaries(names ...string) (string, error) {
	specs, err := b.specs(names)
	if err != nil {
		return "", err
	}
	w := b.words
	var rows [][]string
	for _, s := range specs {
		for _, c := range s.Claims {
			if !c.Decided() {
				why := escape(c.Why)
				if c.Flag != "" {
					why += " <code>" + escape(c.Flag) + "</code>"
				}
				rows = append(rows, []string{escape(c.ID), escape(c.Sentence), escape(orDash(c.Section)), escape(w.statuses[c.Status]), why})
			}
		}
	}
	return table("boundaries", []string{w.claim, w.statement, w.section, w.status, w.why}, rows), nil
}

// overview is one row for each experiment: its verdicts, those that are not PASS by name, and how long it took.
func (b *builder) overview() (string, error) {
	steps, err := b.run.list("steps.json")
	if err != nil {
		return "", err
	}
	var rows [][]string
	for _, s := range b.run.specs {
		counts, named := map[experiment.Result]int{}, map[experiment.Result][]string{}
		for _, v := range b.run.verdicts {
			if v.Experiment == s.Name {
				counts[v.Verdict]++
				named[v.Verdict] = append(named[v.Verdict], v.Claim)
			}
		}
		verdicts := tally(counts, named)
		took := 0.0
		for _, step := range steps {
			if seconds, ok := step["seconds"].(float64); ok && step["name"] == s.Name {
				took += seconds
			}
		}
		minutes, err := b.link(fmt.Sprintf("%.1f", took/60), "steps.json", "step "+s.Name)
		if err != nil {
			return "", err
		}
		rows = append(rows, []string{escape(s.Name), escape(s.Title), escape(orDash(s.Section)), verdicts,
			minutes + " (" + experiment.Number(s.Minutes[b.run.id.Scale]) + ")"})
	}
	w := b.words
	return table("overview", []string{w.experiment, w.statement, w.section, w.verdict, w.minutes}, rows), nil
}

// tally is a line of counts; what did not pass is named, if names are given.
func tally(counts map[experiment.Result]int, named map[experiment.Result][]string) string {
	var parts []string
	for _, result := range []experiment.Result{experiment.Pass, experiment.Fail, experiment.Inconclusive} {
		if counts[result] == 0 {
			continue
		}
		part := fmt.Sprintf(`<span class="%s">%d %s</span>`, result, counts[result], result)
		if names := named[result]; result != experiment.Pass && len(names) > 0 {
			part += " (" + escape(strings.Join(names, " ")) + ")"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

// summary counts the verdicts in one line: "12 PASS, 1 INCONCLUSIVE".
func (b *builder) summary() string {
	counts := map[experiment.Result]int{}
	for _, v := range b.run.verdicts {
		counts[v.Verdict]++
	}
	return tally(counts, nil)
}
