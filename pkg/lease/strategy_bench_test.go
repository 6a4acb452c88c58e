package lease

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"shardlease/pkg/groupcommit"
)

// contender is one way to renew the same number of leases.
type contender struct {
	name  string
	table *Table
	held  map[ID]Token
	renew func(c *contender) error
	took  []time.Duration
}

func renewOneByOne(c *contender) error {
	for id, tok := range c.held {
		if err := c.table.Heartbeat(bg, id, tok); err != nil {
			return err
		}
	}
	return nil
}

func renewTogether(c *contender) error {
	_, err := c.table.HeartbeatMany(bg, c.held)
	return err
}

func newContender(b *testing.B, name string, s groupcommit.Strategy, records, shards int, renew func(*contender) error) *contender {
	table, err := Open(filepath.Join(b.TempDir(), "root"), &Options{Shards: shards, TTL: time.Hour, Strategy: s})
	if err != nil {
		b.Fatal(err)
	}
	c := &contender{name: name, table: table, held: map[ID]Token{}, renew: renew}
	for n := range records {
		if c.held[itemID(n)], err = table.Claim(bg, itemID(n), payload(`{"sequence":1}`), Holder{Owner: "bench"}); err != nil {
			b.Fatal(err)
		}
	}
	for range 2 { // until each record has its spare
		if err := renewTogether(c); err != nil {
			b.Fatal(err)
		}
	}
	return c
}

// BenchmarkStrategies renews 64 leases with each strategy in turn, so that whatever slows the disk down slows all of them, and reports
// how often the median goes into that of the scalar heartbeat ("x/scalar") and of the report's batch. It measures the file system of
// TMPDIR.
func BenchmarkStrategies(b *testing.B) {
	for _, shards := range []int{1, 8} {
		b.Run(fmt.Sprintf("records=64/shards=%d", shards), func(b *testing.B) {
			all := []*contender{newContender(b, "scalar", groupcommit.Serial, 64, shards, renewOneByOne)}
			for _, s := range append(groupcommit.Strategies(), groupcommit.Auto) {
				all = append(all, newContender(b, s.String(), s, 64, shards, renewTogether))
			}
			for b.Loop() {
				for _, c := range all {
					start := time.Now()
					if err := c.renew(c); err != nil {
						b.Fatal(err)
					}
					c.took = append(c.took, time.Since(start))
				}
			}
			median := func(c *contender) float64 {
				slices.Sort(c.took)
				return float64(c.took[len(c.took)/2])
			}
			for _, c := range all {
				name := c.name
				if name == "auto" {
					name = "auto(" + c.table.s.writer.Strategy().String() + ")"
				}
				b.Logf("%-22s %8.2f ms  %6.2f x scalar  %6.2f x serial", name, median(c)/1e6, median(all[0])/median(c), median(all[1])/median(c))
			}
			b.ReportMetric(median(all[0])/median(all[len(all)-1]), "auto-x/scalar")
		})
	}
}
