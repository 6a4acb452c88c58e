package sim_test

import (
	"os"
	"strings"
	"testing"

	"shardlease/internal/campaign/sim"
)

// TestCampaignsKeepTheirInvariants holds 150 campaigns to the invariants S1 to S10; SHARDLEASE_LONG=1 takes 5000. A failing seed replays: its history is printed.
func TestCampaignsKeepTheirInvariants(t *testing.T) {
	seeds := uint64(150)
	if os.Getenv("SHARDLEASE_LONG") != "" {
		seeds = 5000
	}
	var n sim.Counts
	items, executions := 0, 0
	for seed := range seeds {
		r := sim.Run(seed, nil)
		if r.Violation != "" {
			var history strings.Builder
			sim.Run(seed, &history)
			t.Fatalf("seed %d: %s\n%s", seed, r.Violation, history.String())
		}
		n.Add(r.Counts)
		items += r.Items
		executions += r.Executions
	}
	t.Logf("%d campaigns, %d items, %d executions: %+v", seeds, items, executions, n)
	for what, times := range map[string]int{"kills": n.Kills, "power cuts": n.PowerCuts, "interrupts": n.Interrupts, "pauses": n.Pauses, "clock jumps": n.Jumps,
		"hangs": n.Hangs, "suspensions": n.Suspended, "disk errors": n.Errors, "lost messages": n.Lost, "repeated messages": n.Repeated,
		"barriers after a failed one": n.AfterFailed, "stale results": n.Stale, "take-overs": n.TakenOver} {
		if times < 5 {
			t.Errorf("only %d %s: too few to test anything", times, what)
		}
	}
}

func TestASeedReplaysItsHistory(t *testing.T) {
	texts := map[string]bool{}
	for seed := range uint64(40) {
		var first, again strings.Builder
		a, b := sim.Run(seed, &first), sim.Run(seed, &again)
		if first.String() != again.String() || a != b {
			t.Fatalf("seed %d has two histories", seed)
		}
		if c := sim.Run(seed, nil); c != a {
			t.Fatalf("seed %d: being watched changes the result: %+v, %+v", seed, a, c)
		}
		texts[first.String()] = true
	}
	if len(texts) < 40 {
		t.Errorf("40 seeds have %d histories", len(texts))
	}
}

func BenchmarkCampaigns(b *testing.B) {
	seed := uint64(0)
	for b.Loop() {
		sim.Run(seed, nil)
		seed++
	}
	b.ReportMetric(60/(b.Elapsed().Seconds()/float64(b.N)), "campaigns/min")
}
