package mpi

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

// writeCampaign writes raw files of a made-up campaign: six workers run thirteen objects, the last one twice.
func writeCampaign(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	campaign := filepath.Join(dir, "campaign-1")
	if err := os.Mkdir(campaign, 0o755); err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range 14 {
		id, rank := fmt.Sprintf("%064x", min(i, 12)), 2+i%6
		at := begin.Add(time.Duration(i/6)*1300*time.Millisecond + time.Duration(i)*20*time.Millisecond)
		for event, when := range map[string]time.Time{"start": at, "end": at.Add(1200 * time.Millisecond)} {
			line, err := json.Marshal(Execution{ID: id, Rank: rank, Event: event, Time: when.Format(time.RFC3339Nano)})
			if err != nil {
				t.Fatal(err)
			}
			lines.Write(append(line, '\n'))
		}
	}
	final := `{"masters":[{"rank":0,"batches":10,"renewals":40,"directory_syncs":20,"directory_syncs_avoided":20,
			"heartbeat_log":[{"at_unix_ms":1000,"took_ms":5,"held":6,"renewals":6,"directory_syncs":3,"failed":false},
				{"at_unix_ms":1333,"took_ms":5,"held":6,"renewals":0,"directory_syncs":0,"failed":true}]},
		{"rank":1,"batches":7,"renewals":27,"directory_syncs":21,"directory_syncs_avoided":6,
			"heartbeat_log":[{"at_unix_ms":1100,"took_ms":5,"held":4,"renewals":4,"directory_syncs":4,"failed":false}]}],
		"final":{"total_analysis_observations":13,"analysis_by_master":{"0":7,"1":6}}}`
	launch, err := experiment.EncodeJSON(Launch{Processes: 8, Seeds: 12, Shards: 4})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		launchFile: string(launch), seedsFile: "[]", corpusFile: "[]", statsFile: final, executionsFile: lines.String(),
	} {
		if err := os.WriteFile(filepath.Join(campaign, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestEachFigureThatAClaimFeedsIsDrawn(t *testing.T) {
	all, err := Figures(writeCampaign(t))
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[string]string{}
	for _, f := range all {
		drawn[f.ID] = string(f.Option)
	}
	for _, c := range New().Spec().Claims {
		for _, feed := range c.Feeds {
			if strings.HasPrefix(feed, "campaign-") && drawn[feed] == "" {
				t.Errorf("claim %s feeds %s, which is not drawn", c.ID, feed)
			}
		}
	}
	if n := strings.Count(drawn["campaign-executions"], `"target runs on an object again"`); n != 2 { // the series, and its name in the legend
		t.Errorf("the repeated execution is drawn %d times", n)
	}
}

// The report's counts belong together: what was avoided is the difference, and the share follows from it.
func TestCountsOfTheReportAgreeWithEachOther(t *testing.T) {
	value := func(metric string) float64 {
		v, err := New().Spec().Reported(metric)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if renewals, syncs := value("renewals"), value("directory_syncs"); value("avoided") != renewals-syncs || fmt.Sprintf("%.3f", 100*(renewals-syncs)/renewals) != fmt.Sprint(value("reduction")) {
		t.Errorf("%v renewals and %v syncs do not give %v avoided and %v %%", renewals, syncs, value("avoided"), value("reduction"))
	}
}

func TestAnEndWithoutAStartIsRefused(t *testing.T) {
	dir := writeCampaign(t)
	name := filepath.Join(dir, "campaign-1", executionsFile)
	if err := os.WriteFile(name, []byte(`{"id":"ab","rank":2,"event":"end","time":"2026-01-02T03:04:05Z"}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Figures(dir); err == nil || !strings.Contains(err.Error(), "rank 2 ends ab") {
		t.Errorf("error %v", err)
	}
}
