package hybrid

import (
	"context"
	"fmt"
	"os"

	"shardlease/internal/campaign"
)

// Rank is one rank of a hybrid campaign on the real clock.
type Rank struct {
	Options   *Options
	Env       *Env
	Transport campaign.Transport
	Executor  campaign.Executor // workers only: runs the solver program
	Signals   <-chan os.Signal  // each asks for an orderly end; nil means none
}

// Run makes rank 0 the coordinator and every other rank a worker, and returns when that has ended.
func Run(ctx context.Context, r Rank) campaign.Outcome {
	workers := r.Transport.Size() - 1
	if workers < 1 {
		return campaign.Outcome{Code: campaign.ExitUnavailable, Orderly: true,
			Reason: fmt.Sprintf("a hybrid campaign needs at least 2 ranks, one coordinator and one worker, not %d", r.Transport.Size())}
	}
	var actor campaign.Actor
	if rank := r.Transport.Rank(); rank == coordinator {
		actor = NewMaster(r.Options, r.Env, workers)
	} else {
		actor = NewWorker(r.Options, r.Env, rank)
	}
	return campaign.Drive(ctx, actor, r.Transport, r.Executor, r.Signals)
}
