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

// CheckSize refuses a number of ranks that is no campaign.
func CheckSize(ranks int) error {
	if ranks < 2 {
		return fmt.Errorf("a hybrid campaign needs at least 2 ranks, one coordinator and one worker, not %d", ranks)
	}
	return nil
}

// Run makes rank 0 the coordinator and every other rank a worker, and returns when that has ended.
func Run(ctx context.Context, r Rank) campaign.Outcome {
	if err := CheckSize(r.Transport.Size()); err != nil {
		return campaign.Outcome{Code: campaign.ExitUnavailable, Orderly: true, Reason: err.Error()}
	}
	var actor campaign.Actor
	if rank := r.Transport.Rank(); rank == coordinator {
		actor = NewMaster(r.Options, r.Env, r.Transport.Size()-1)
	} else {
		actor = NewWorker(r.Options, r.Env, rank)
	}
	return campaign.Drive(ctx, actor, r.Transport, r.Executor, r.Signals)
}
