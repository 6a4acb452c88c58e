package faults

import (
	"context"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/lease"
)

// The planted bugs. A suite that was never seen to fail proves nothing, so each run shows it failing on these.

// barrierRemoved acknowledges every directory sync without doing it.
var barrierRemoved = subject{
	name: "barrier removed",
	fs: func(fsys vfs.FS) vfs.FS {
		return vfs.Intercept(fsys, func(call *vfs.Call, do func() error) error {
			if call.Op == vfs.OpSyncDir {
				return nil
			}
			return do()
		})
	},
	wrap: library.wrap,
}

// staleAccepted renews for whoever asks: it takes the token from the record instead of from the caller.
var staleAccepted = subject{
	name: "stale token accepted",
	fs:   library.fs,
	wrap: func(t *lease.Table) heartbeater { return heedless{t} },
}

type heedless struct{ table *lease.Table }

func (h heedless) HeartbeatMany(ctx context.Context, held map[lease.ID]lease.Token) (lease.HeartbeatBatch, error) {
	current := map[lease.ID]lease.Token{}
	for id, tok := range held {
		current[id] = tok
		if r, err := h.table.Lookup(id); err == nil {
			current[id] = r.Token
		}
	}
	return h.table.HeartbeatMany(ctx, current)
}

// planted pairs each bug with the cases that must catch it.
var planted = []struct {
	subject
	scenarios []scenario
}{
	{barrierRemoved, []scenario{oneBarrierPerShard, powerCut}},
	{staleAccepted, []scenario{staleToken}},
}
