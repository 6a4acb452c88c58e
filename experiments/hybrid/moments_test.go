package hybrid

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shardlease/internal/hybrid"
)

func TestAJobIsKilledWhenItHasSomethingToLeave(t *testing.T) {
	a := &arm{armPlan: armPlan{params: params{Workers: 2}, kill: 4, seconds: 12}}
	begin := float64(1000)
	start := hybrid.Event{TimeS: begin, Event: hybrid.EventStart}
	claim := func(worker int) hybrid.Event { return hybrid.Event{Event: hybrid.EventClaim, Worker: worker} }
	done := func(worker int) hybrid.Event { return hybrid.Event{Event: hybrid.EventDone, Worker: worker} }
	beat := hybrid.Event{Event: hybrid.EventHeartbeat, Counters: &hybrid.Counters{WorkOK: 1}}
	for _, c := range []struct {
		name   string
		events []hybrid.Event
		at     float64
		due    bool
	}{
		{"not started", nil, 60, false},
		{"too early", []hybrid.Event{start, claim(1), claim(2), beat}, 3.9, false},
		{"all busy", []hybrid.Event{start, claim(1), claim(2), beat}, 4, true},
		{"nothing renewed", []hybrid.Event{start, claim(1), claim(2)}, 4, false},
		{"one is idle", []hybrid.Event{start, claim(1), claim(2), beat, done(1)}, 4, false},
		{"busy again", []hybrid.Event{start, claim(1), claim(2), beat, done(1), claim(1)}, 5, true},
		{"one is idle for long", []hybrid.Event{start, claim(1), claim(2), beat, done(1)}, 6.1, true},
		{"all are idle for long", []hybrid.Event{start, claim(1), beat, done(1)}, 7, false},
	} {
		due, err := a.killDue(c.events, time.UnixMicro(int64((begin+c.at)*1e6)))
		if err != nil || due != c.due {
			t.Errorf("%s: %t, %v", c.name, due, err)
		}
	}
	if _, err := a.killDue([]hybrid.Event{start, claim(1), beat}, time.UnixMicro(int64((begin+8.1)*1e6))); err == nil || !strings.Contains(err.Error(), "nothing to leave") {
		t.Errorf("too late for a take-over: %v", err)
	}
	ended := hybrid.Event{Event: hybrid.EventStop, Detail: "AFL instance main has ended"}
	if _, err := a.killDue([]hybrid.Event{start, ended}, time.Now()); err == nil || !strings.Contains(err.Error(), ended.Detail) {
		t.Errorf("a job that has ended: %v", err)
	}
}

func TestTheLogOfARunningJobMayEndInTheMiddleOfALine(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	if events, err := eventsSoFar(name); err != nil || len(events) != 0 {
		t.Errorf("no log: %v, %v", events, err)
	}
	for text, want := range map[string]int{"": 0, `{"time_s"`: 0, `{"time_s":1,"event":"start","owner":"x"}` + "\n" + `{"time_s":2,"ev`: 1} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if events, err := eventsSoFar(name); err != nil || len(events) != want {
			t.Errorf("%q: %v, %v", text, events, err)
		}
	}
}

func TestWhatAFLHasLookedAtIsCountedOverItsPeers(t *testing.T) {
	a := &arm{armPlan: armPlan{jobs: []string{survivor, victim}}, work: t.TempDir()}
	if n, err := a.seen(); n != 0 || err != nil {
		t.Errorf("before the first look: %d, %v", n, err)
	}
	dir := filepath.Join(a.sync(), fuzzerName, ".synced")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for peer, next := range map[string]uint32{survivor: 5, victim: 3, "stranger": 100} {
		if err := os.WriteFile(filepath.Join(dir, peer), binary.NativeEndian.AppendUint32(nil, next), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := a.seen(); n != 8 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
