package sim_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"shardlease/internal/campaign"
	"shardlease/internal/campaign/sim"
	"shardlease/pkg/groupcommit/vfs"
)

// Seed 2895 of an early version: a heartbeat batch that was still running when the last worker had acknowledged, on a disk that hung, left a master
// without anything to wake it.
func TestAHeartbeatBatchThatOutlastsTheShutdownDoesNotHangTheEnd(t *testing.T) {
	fsys, text := seeded(t, 3), &bytes.Buffer{}
	cfg := config(t, fsys, 1, text)
	cfg.Ranks = 2
	var c *sim.Cluster
	slow := false
	cfg.FS = func(rank int) vfs.FS {
		return vfs.Intercept(fsys, func(call *vfs.Call, do func() error) error {
			if slow && call.Op == vfs.OpSyncDir { // the next heartbeat's: nothing else writes now
				slow = false
				c.Sleep(rank, 700*time.Millisecond)
			}
			return do()
		})
	}
	c, err := sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for c.Now().Sub(start) < 900*time.Millisecond {
		c.Step(ctx)
	}
	slow = true
	for slow {
		c.Step(ctx)
	}
	c.Interrupt(ctx, 0)
	out, err := c.Run(ctx, time.Minute)
	if err != nil || out.Code != campaign.ExitUnfinished {
		t.Fatalf("%+v, %v\n%s", out, err, text)
	}
}
