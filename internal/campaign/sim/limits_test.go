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
	"shardlease/pkg/lease"
)

func TestItemsOverBudgetAreNamedAndDoNotCostWorkers(t *testing.T) {
	fsys, text := seeded(t, 3), &bytes.Buffer{}
	cfg := config(t, fsys, 5, text)
	big := lease.SumID([]byte("integrity-seed-002\n"))
	cfg.Target = func(rng *rand.Rand, job campaign.Job) (campaign.Execution, time.Duration) {
		e, d := oneChild(rng, job)
		if job.ID == big {
			e.Outputs = append(e.Outputs, campaign.Output{Name: "big", Data: make([]byte, 2000)})
		}
		return e, d
	}
	cfg.Options.ResultMaxBytes = 1000
	out := run(t, cfg)
	s := readStats(t, fsys)
	if out.Code != campaign.ExitIncomplete || !strings.Contains(out.Reason, big.String()) || s.Total.QuarantinedWorkers != 0 || s.Final.Observations != 3 || s.Final.Unfinished != 1 {
		t.Fatalf("%+v\n%+v\n%s", out, s, text)
	}
	expectResume(t, fsys, 4)
}

// slowBeats is a table whose renewals take 10 ms each, for whoever looks at the clock next, and whose batches fail like those cut off at the lane's
// time limit.
type slowBeats struct {
	campaign.Table
	took    *time.Duration
	longest *int
}

func (b slowBeats) HeartbeatMany(ctx context.Context, held map[lease.ID]lease.Token) (lease.HeartbeatBatch, error) {
	took := time.Duration(len(held)) * 10 * time.Millisecond
	*b.longest = max(*b.longest, len(held))
	if took > 450*time.Millisecond {
		return lease.HeartbeatBatch{}, context.DeadlineExceeded
	}
	batch, err := b.Table.HeartbeatMany(ctx, held) // looks at the clock too
	*b.took = took
	return batch, err
}

// A master takes no more leases than it can renew in time: 100 pending items at 10 ms are more than a TTL of one second holds.
func TestAMasterTakesNoMoreLeasesThanItCanRenew(t *testing.T) {
	fsys, text := seeded(t, 5), &bytes.Buffer{}
	cfg := config(t, fsys, 1, text)
	longest := 0
	cfg.Env = func(rank int, env *campaign.Env) {
		took, now := time.Duration(0), env.Now
		env.Now = func() time.Time {
			t := now().Add(took)
			took = 0
			return t
		}
		env.OpenTable = func(root string, opts *lease.Options) (campaign.Table, error) {
			table, err := lease.Open(root, opts)
			return slowBeats{table, &took, &longest}, err
		}
	}
	c, err := sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for c.Now().Sub(start) < 500*time.Millisecond { // past the first batch
		c.Step(ctx)
	}
	for i := range 200 {
		if err := groupcommit.WriteFile(fsys, fmt.Sprintf("/in/more-%03d", i), fmt.Appendf(nil, "%d", i), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	out, err := c.Run(ctx, 5*time.Minute)
	if err != nil || out.Code != campaign.ExitOK {
		t.Fatalf("%+v, %v\n%s", out, err, text)
	}
	if f := readStats(t, fsys).Final; f.Observations != 206 || longest < 10 || longest > 25 {
		t.Errorf("%+v, batches of up to %d", f, longest)
	}
}
