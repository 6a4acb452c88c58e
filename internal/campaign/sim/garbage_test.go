package sim_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"shardlease/internal/campaign"
	"shardlease/internal/campaign/sim"
	"shardlease/pkg/groupcommit"
)

// garbage draws a message that nobody of this campaign would send: malformed, of another run, or from the wrong rank. Left out are results of a
// master's own workers: a wrong one costs that worker its place, which has a test of its own.
func garbage(rng *rand.Rand) campaign.Message {
	tags := []int{campaign.TagWork, campaign.TagResult, campaign.TagStop, campaign.TagReady, campaign.TagStopAck, campaign.TagStart, campaign.TagStatus, campaign.TagProbe,
		campaign.TagStats, campaign.TagStatsAck, campaign.TagProbeReply, campaign.TagQuiesce, campaign.TagQuiesceAck, campaign.TagHalt, 99, -1}
	token := strings.Repeat("d", 64)
	texts := []string{"", "null", "{}", "[]", "{\"schema\":1}", string(make([]byte, 20000)),
		`{"schema":"symcc-work-v1","hash":"` + token + `","fence":1} `,
		`{"schema":"symcc-shutdown-v1","rank":1,"shutdown_token":"` + token + `"}`,
		`{"schema":"symcc-shutdown-ack-v1","rank":1,"shutdown_token":"` + token + `"}`,
		`{"schema":"symcc-master-status-v1","rank":1,"sequence":0,"idle":true}`,
		`{"schema":"symcc-master-quiescence-reply-v1","rank":1,"probe_token":"` + token + `","idle":true}`,
		`{"schema":"symcc-master-quiescence-ack-v1","rank":1,"probe_token":"` + token + `","committed":true}`,
		`{"schema":"symcc-master-quiescence-abort-v1","probe_token":"` + token + `"}`,
		`{"schema":"symcc-master-stats-ack-v1","rank":1,"stats_token":"` + token + `"}`,
		`{"schema":"symcc-master-halt-v1","rank":7,"kind":"control failure","detail":""}`,
		`{"schema":"symcc-master-halt-v1","rank":0,"kind":"boredom","detail":""}`,
		`{"schema":"symcc-ready-v1","rank":9}`}
	for {
		m := campaign.Message{From: rng.IntN(8), To: rng.IntN(8), Tag: tags[rng.IntN(len(tags))], Data: []byte(texts[rng.IntN(len(texts))])}
		ownWorker := m.From >= 2 && m.From%2 == m.To
		ownMaster := m.To >= 2 && m.To%2 == m.From // is trusted: a wrong WORK makes its worker answer with a wrong result
		if m.From != m.To && !(m.Tag == campaign.TagResult && ownWorker) && !(m.Tag == campaign.TagWork && ownMaster) {
			return m
		}
	}
}

func TestForeignMessagesAreCountedAndChangeNothing(t *testing.T) {
	for seed := range uint64(10) {
		fsys, text := seeded(t, 12), &bytes.Buffer{}
		c, err := sim.New(config(t, fsys, seed, text))
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		rng := rand.New(rand.NewPCG(seed, 2))
		for c.Now().Sub(start) < 100*time.Millisecond {
			c.Step(ctx)
		}
		out, ended := campaign.Outcome{}, false
		for step := 0; !ended; step++ {
			if !c.Step(ctx) || c.Now().Sub(start) > time.Minute {
				t.Fatalf("seed %d: stuck\n%s", seed, text)
			}
			if out, ended = c.Ended(); !ended && step%3 == 0 {
				c.Inject(ctx, garbage(rng))
				out, ended = c.Ended()
			}
		}
		s := readStats(t, fsys)
		if out.Code != campaign.ExitOK || s.Final.Observations != 13 || s.Total.Acked != 6 || s.Total.QuarantinedControl == 0 {
			t.Fatalf("seed %d: %+v\n%+v\n%s", seed, out, s, text)
		}
	}
}

func TestAnOutputDirectoryThatCannotBeIsRefused(t *testing.T) {
	fsys, text := seeded(t, 1), &bytes.Buffer{}
	if err := groupcommit.WriteFile(fsys, "/out", []byte("a file"), 0o666); err != nil {
		t.Fatal(err)
	}
	out := run(t, config(t, fsys, 1, text))
	if out.Code != campaign.ExitCantCreate || !strings.Contains(out.Reason, "output directory /out") {
		t.Fatalf("%+v", out)
	}
	if s := readStats(t, fsys); s.ExitCode != campaign.ExitCantCreate || s.Reason != out.Reason {
		t.Errorf("%+v", s)
	}
	if n := strings.Count(text.String(), "\n"); n != 1 {
		t.Errorf("%d lines:\n%s", n, fmt.Sprint(text))
	}
}
