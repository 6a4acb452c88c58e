package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
	"shardlease/pkg/lease"
)

// statesPerMoment bounds the file systems looked at after one operation. Three records in two shards have fewer.
const statesPerMoment = 4096

// powerCut cuts the power after every operation of a batch, in a model of the disk, and opens the table again in every
// state that the cut may leave.
var powerCut = scenario{"power-cut-loses-nothing-acknowledged", []string{"G1", "G2", "G3"}, "the power fails after each operation",
	func(ctx context.Context, _ string, s subject, c *Case) error {
		const root = "/leases"
		disk := crashfs.New()
		second := float64(claimedAt)
		open := func(fsys vfs.FS) (*lease.Table, error) {
			return lease.Open(root, &lease.Options{Shards: shards, TTL: ttl, FS: fsys, Now: func() time.Time { return seconds(second) }})
		}
		ids := []lease.ID{firstOfShard0, secondOfShard0, onlyOfShard1}
		held := map[lease.ID]lease.Token{}
		table, err := open(disk)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if held[id], err = table.Claim(ctx, id, nil, lease.Holder{Owner: "master"}); err != nil {
				return err
			}
		}
		if err := table.Close(); err != nil {
			return err
		}
		second = renewedAt
		acked := false
		work := func(fsys vfs.FS, ack func(string)) {
			table, err = open(s.fs(fsys))
			if err != nil {
				return
			}
			if _, err = s.wrap(table).HeartbeatMany(ctx, held); err == nil {
				acked = true
				ack("the batch")
			}
			err = errors.Join(err, table.Close())
		}
		check := func(crashed *crashfs.FS) error {
			again, err := open(crashed)
			if err != nil {
				return err
			}
			for _, id := range ids {
				r, err := again.Lookup(id)
				if err != nil {
					return fmt.Errorf("%s can't be read: %w", idNames([]lease.ID{id}), err)
				}
				if at := r.Updated.Sub(seconds(0)).Seconds(); at != renewedAt && (acked || at != claimedAt) {
					return fmt.Errorf("%s has time %v", idNames([]lease.ID{id}), at)
				}
			}
			return again.Close()
		}
		sweep := crashfs.Sweep{Limit: statesPerMoment, Seed: 1}
		lost := sweep.Run(disk, work, check)
		c.expect("the batch itself succeeded", nil, err)
		c.expect("every record is old or new, and new once acknowledged", nil, lost)
		c.expect("power was cut after several operations", true, sweep.Moments > 5 && sweep.States > sweep.Moments)
		c.Trace = sweep.String()
		return nil
	}}
