package restart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shardlease/internal/experiment"
)

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func hash(c string) string { return strings.Repeat(c, 64) }

// sample is a campaign of one seed whose first job was killed in its only execution. The second one analyses the seed and its mark.
func sample() (Campaign, []Execution) {
	since := 0.4
	c := Campaign{Workers: 6, Seeds: 1, TTLS: 2, Skipped: []string{},
		Jobs: []Job{
			{Fault: killWorker, Done: true, Start: begin, End: begin.Add(2 * time.Second), ExitCode: 137,
				Records: []Record{{ID: hash("a"), Status: "leased", Fence: 1, AgeS: 0.2, SinceStartS: &since}}},
			{Fault: none, Start: begin.Add(3 * time.Second), End: begin.Add(6 * time.Second), Reported: true, Records: []Record{},
				Final: &Final{Observations: 2, Objects: 2}},
		},
		Objects: []Object{{Name: hash("a"), SHA256: hash("a")}, {Name: hash("b"), SHA256: hash("b"), Mark: hash("a")}},
	}
	at := func(s float64) time.Time { return begin.Add(time.Duration(s * float64(time.Second))) }
	return c, []Execution{
		{ID: hash("a"), Fence: 1, Rank: 2, Event: "start", Time: at(1)},
		{ID: hash("a"), Fence: 2, Rank: 2, Event: "start", Time: at(3.7)}, {ID: hash("a"), Fence: 2, Rank: 2, Event: "end", Time: at(4.2)},
		{ID: hash("b"), Fence: 1, Rank: 3, Event: "start", Time: at(4.5)}, {ID: hash("b"), Fence: 1, Rank: 3, Event: "end", Time: at(5)},
	}
}

func reduce(t *testing.T, change func(c *Campaign, executions *[]Execution)) (map[string]experiment.Metric, string) {
	t.Helper()
	c, executions := sample()
	if change != nil {
		change(&c, &executions)
	}
	dir := t.TempDir()
	data, err := experiment.EncodeJSON(c)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	for _, e := range executions {
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		log.Write(append(line, '\n'))
	}
	if err := os.Mkdir(filepath.Join(dir, "campaign-1"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{campaignFile: string(data), executionsFile: log.String() + `{"id":"cut of`} {
		if err := os.WriteFile(filepath.Join(dir, "campaign-1", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m, err := New().Reduce(dir)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]experiment.Metric{}
	for _, v := range m.Metrics {
		byName[v.Name] = v
	}
	return byName, dir
}

func TestMetricsOfARestartedCampaign(t *testing.T) {
	m, _ := reduce(t, nil)
	for name, want := range map[string]float64{"unfinished": 0, "done_once": 1, "published_once": 1, "executions": 3, "executions.repeated": 1, "executions.bound": 8,
		"executions.over_bound": 0, "executions.same_fence": 0, "processes_left": 0, "faults.done": 1, "faults.not_done": 0, "records.leased": 1, "records.renewed": 1,
		"records.age_s": 0.2} {
		if m[name].Value != want {
			t.Errorf("%s is %v, want %v", name, m[name].Value, want)
		}
	}
	if got := m["recovery_s"].Value; got < 0.69 || got > 0.71 {
		t.Errorf("recovery took %v s, want 0.7", got)
	}
	for _, c := range New().Spec().Claims {
		if _, ok := m[c.Metric]; !ok {
			t.Errorf("claim %s has no metric %s", c.ID, c.Metric)
		}
	}
}

// Each check is shown failing.
func TestEachFaultOfACampaignIsSeen(t *testing.T) {
	for name, test := range map[string]struct {
		metric string
		want   float64
		change func(c *Campaign, executions *[]Execution)
	}{
		"the last job failed": {"unfinished", 1, func(c *Campaign, _ *[]Execution) { c.Jobs[1].ExitCode = 70 }},
		"an epoch is left":    {"unfinished", 1, func(c *Campaign, _ *[]Execution) { c.Epochs = 1 }},
		"an item is not done": {"done_once", 0, func(c *Campaign, _ *[]Execution) { c.Jobs[1].Final.Observations, c.Jobs[1].Final.Unfinished = 1, 1 }},
		"no statistics":       {"done_once", 0, func(c *Campaign, _ *[]Execution) { c.Jobs[1].Final = nil }},
		"a done record has changed": {"done_once", 0, func(c *Campaign, _ *[]Execution) {
			c.Jobs[0].Records[0].Status = "done"
			c.Jobs[1].Records = []Record{{ID: hash("a"), Status: "leased", Fence: 2}}
		}},
		"a done record has gone": {"done_once", 0, func(c *Campaign, _ *[]Execution) {
			c.Jobs[0].Records[0].Status = "done"
			c.Jobs[1].Records = []Record{{ID: hash("b"), Status: "leased", Fence: 1}}
		}},
		"a stale result is public": {"published_once", 0, func(c *Campaign, _ *[]Execution) {
			c.Objects = append(c.Objects, Object{Name: hash("c"), SHA256: hash("c"), Mark: hash("a")})
		}},
		"a result is missing":  {"published_once", 0, func(c *Campaign, _ *[]Execution) { c.Objects = c.Objects[:1] }},
		"an object is damaged": {"published_once", 0, func(c *Campaign, _ *[]Execution) { c.Objects[0].SHA256 = hash("d") }},
		"too many executions": {"executions.over_bound", 1, func(c *Campaign, list *[]Execution) {
			for i := range 6 {
				*list = append(*list, Execution{ID: hash("a"), Fence: uint64(3 + i), Event: "start", Time: begin})
			}
		}},
		"a fence executed twice": {"executions.same_fence", 1, func(_ *Campaign, list *[]Execution) { (*list)[1].Fence = 1 }},
		"a process is left":      {"processes_left", 1, func(c *Campaign, _ *[]Execution) { c.Jobs[0].Left = 1 }},
		"a fault came too late":  {"faults.not_done", 1, func(c *Campaign, _ *[]Execution) { c.Jobs[0].Done = false }},
		"a record is torn":       {"records.unreadable", 1, func(c *Campaign, _ *[]Execution) { c.Jobs[0].Records[0].Status = unreadable }},
	} {
		if m, _ := reduce(t, test.change); m[test.metric].Value != test.want {
			t.Errorf("%s: %s is %v, want %v", name, test.metric, m[test.metric].Value, test.want)
		}
	}
}

func TestEachFigureThatAClaimFeedsIsDrawn(t *testing.T) {
	for _, change := range []func(c *Campaign, executions *[]Execution){nil, func(c *Campaign, _ *[]Execution) { c.Jobs[0].Records = []Record{} }} {
		_, dir := reduce(t, change)
		all, err := Figures(dir)
		if err != nil {
			t.Fatal(err)
		}
		drawn := map[string]bool{}
		for _, f := range all {
			drawn[f.ID] = true
		}
		for _, c := range New().Spec().Claims {
			for _, feed := range c.Feeds {
				if !drawn[feed] {
					t.Errorf("claim %s feeds %s, which is not drawn", c.ID, feed)
				}
			}
		}
	}
}

func TestDisksOfKilledRunsAreFound(t *testing.T) {
	mounts := "tmpfs /tmp tmpfs rw 0 0\nshardlease-restart-12 /tmp/a tmpfs rw 0 0\nshardlease-restart-13 /tmp/b tmpfs rw 0 0\nshardlease-restart-x /tmp/c tmpfs rw 0 0\n"
	got, err := staleDisks(strings.NewReader(mounts), func(pid int) bool { return pid == 13 })
	if err != nil || fmt.Sprint(got) != "[/tmp/a]" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestASmallDiskFillsAndEmpties(t *testing.T) {
	d, err := newDisk()
	if err != nil {
		t.Skipf("needs the right to mount: %v", err)
	}
	defer func() {
		if err := d.remove(); err != nil {
			t.Error(err)
		}
	}()
	if err := d.fill(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(d.dir, "more")
	if err := os.WriteFile(name, []byte("more"), 0o644); err == nil {
		t.Error("there is room on a full disk")
	}
	if err := d.empty(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("more"), 0o644); err != nil {
		t.Error(err)
	}
}

func TestEveryFaultOfTheFileIsKnown(t *testing.T) {
	known := map[string]bool{killWorker: true, killMaster: true, killRoot: true, killMPIRun: true, pauseMaster: true, pauseWorker: true, fillDisk: true}
	seen := map[string]bool{}
	for _, p := range New().params {
		for _, faults := range p.Campaigns {
			for _, f := range faults {
				if !known[f] {
					t.Errorf("experiment.yaml has the unknown fault %q", f)
				}
				seen[f] = true
			}
		}
	}
	if len(seen) != len(known) {
		t.Errorf("experiment.yaml has %d of %d faults", len(seen), len(known))
	}
}
