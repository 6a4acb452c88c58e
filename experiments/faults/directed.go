package faults

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"shardlease/internal/child"
	"shardlease/internal/host"
)

// directedTests are the report's nine (its section 8.1), with the tests of this project that take their place, and then others.
var directedTests = []Directed{
	{Metric: "cross_directory", Report: "test_directory_sync_batch_rejects_cross_directory_replace", Package: "pkg/groupcommit", Test: "TestBatchRefusesCrossDirectoryReplaceBeforeAnyRename"},
	{Metric: "shards_once", Report: "test_heartbeat_many_syncs_each_affected_shard_once", Package: "pkg/lease", Test: "TestHeartbeatManySyncsEachAffectedShardOnce"},
	{Metric: "prefix", Report: "test_heartbeat_many_flushes_published_prefix_after_later_failure", Package: "pkg/lease", Test: "TestHeartbeatManyFlushesPublishedPrefixAfterLaterFailure"},
	{Metric: "failed_barrier", Report: "test_heartbeat_many_directory_failure_is_not_acknowledged", Package: "pkg/lease", Test: "TestHeartbeatManyDirectoryFailureIsNotAcknowledged"},
	{Metric: "stale_token", Report: "test_heartbeat_many_classifies_stale_tokens_without_extra_sync", Package: "pkg/lease", Test: "TestHeartbeatManyClassifiesStaleTokensWithoutExtraSync"},
	{Metric: "target_shards", Report: "test_target_group_heartbeat_syncs_each_affected_shard_once", Package: "pkg/lease", Test: "TestTargetGroupHeartbeatSyncsEachAffectedShardOnce"},
	{Metric: "target_inputs", Report: "test_target_group_rejects_nonfinite_time_and_corrupt_state", Package: "pkg/lease", Test: "TestTargetGroupRejectsImpossibleTimeAndCorruptState"},
	{Metric: "standalone", Report: "test_shared_work_coordinator_batches_heartbeats_and_tracks_failures", Package: "internal/campaign", Test: "TestTheLaneBatchesHeartbeatsAndTracksFailures"},
	{Metric: "hybrid", Report: "test_shared_heartbeat_uses_one_work_lease_batch", Package: "internal/hybrid", Test: "TestSharedHeartbeatUsesOneWorkLeaseBatch"},
	// Statements that the report makes in passing, without a test of its own.
	{Metric: "interval", Package: "internal/campaign", Test: "TestDefaultsFollowTheTimeout"},
	{Metric: "order", Package: "pkg/lease", Test: "TestShardsAndLockOrderFollowTheVectors"},
	{Metric: "destination_first", Package: "pkg/groupcommit", Test: "TestReplaceAcrossDirectoriesSyncsTheDestinationFirst"},
	{Metric: "fenced", Package: "pkg/lease", Test: "TestASleeperIsFencedAtItsFirstWrite"},
	// Beyond the report: the protocol of one-flush renewals.
	{Metric: "one_flush", Package: "pkg/lease", Test: "TestOneFlushRenewalsNeverPromiseOneLeaseTwiceInAnyInterleaving"},
	{Metric: "one_flush_defects", Package: "pkg/lease", Test: "TestTheSearchFindsEachDefectOfARenewalProtocol"},
}

// runDirected runs each test in a process of its own, from test programs built once for each package.
func runDirected(ctx context.Context, root, work string, log io.Writer) ([]Directed, error) {
	programs := map[string]string{}
	var out []Directed
	for _, d := range directedTests {
		if programs[d.Package] == "" {
			name := filepath.Join(work, strings.ReplaceAll(d.Package, "/", "-")+".test")
			args := []string{"test", "-c", "-o", name, "./" + d.Package}
			if err := child.Run(ctx, child.Cmd{Name: "go", Args: args, Dir: root, Stdout: log, Stderr: log}); err != nil {
				return nil, fmt.Errorf("build the tests of %s: %w", d.Package, err)
			}
			programs[d.Package] = name
		}
		if err := d.run(ctx, programs[d.Package], filepath.Join(root, d.Package)); err != nil {
			return nil, err
		}
		fmt.Fprintf(log, "%s %s: passed %v\n", d.Package, d.Test, d.Passed)
		out = append(out, d)
	}
	return out, nil
}

// states is what a search of a model logs.
var states = regexp.MustCompile(`(?m): (\d+) states$`)

// run fills in what happened. A test that is not there has not passed, though the program exits 0 then.
func (d *Directed) run(ctx context.Context, program, dir string) error {
	var text bytes.Buffer
	start := time.Now()
	err := child.Run(ctx, child.Cmd{Name: program, Args: []string{"-test.run=^" + d.Test + "$", "-test.v"}, Dir: dir, Stdout: &text, Stderr: &text})
	if ctx.Err() != nil {
		return err
	}
	d.Seconds = time.Since(start).Seconds()
	d.Passed = err == nil && strings.Contains(text.String(), "--- PASS: "+d.Test+" ")
	for _, m := range states.FindAllSubmatch(text.Bytes(), -1) {
		n, err := strconv.Atoi(string(m[1]))
		if err != nil {
			return fmt.Errorf("%s: %w", d.Test, err)
		}
		d.States += n
	}
	if !d.Passed {
		d.Output = host.WithoutHome(text.String())
	}
	return nil
}
