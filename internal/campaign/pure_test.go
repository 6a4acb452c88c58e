package campaign

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"shardlease/pkg/lease"
)

func TestRolesAreDealtAsTheReferenceDoes(t *testing.T) {
	for _, c := range []struct {
		size, per int
		masters   int
		workers   string
	}{
		{2, 90, 1, "[[1]]"},
		{8, 90, 1, "[[1 2 3 4 5 6 7]]"},
		{8, 7, 1, "[[1 2 3 4 5 6 7]]"},
		{8, 3, 2, "[[2 4 6] [3 5 7]]"},
		{4, 1, 1, "[[1 2 3]]"},
		{7, 1, 2, "[[2 4 6] [3 5]]"},
		{182, 90, 3, ""},
	} {
		r, err := ComputeRoles(c.size, c.per)
		if err != nil || r.Masters != c.masters || c.workers != "" && fmt.Sprint(r.Workers) != c.workers {
			t.Errorf("%d ranks, %d per master: %+v, %v", c.size, c.per, r, err)
		}
	}
	for _, bad := range [][2]int{{0, 3}, {1, 3}, {8, 0}, {8, -1}} {
		if _, err := ComputeRoles(bad[0], bad[1]); err == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
}

func TestEveryRankHasExactlyOneRole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size, per := rapid.IntRange(2, 400).Draw(t, "size"), rapid.IntRange(1, 100).Draw(t, "per")
		r, err := ComputeRoles(size, per)
		if err != nil {
			t.Fatal(err)
		}
		if r.Masters+r.WorkerCount() != size {
			t.Fatalf("%+v", r)
		}
		for rank := range size {
			m, group := r.MasterOf(rank)
			if r.IsMaster(rank) != (m < 0) || m >= 0 && r.Workers[m][group-1] != rank {
				t.Fatalf("rank %d: master %d, group %d", rank, m, group)
			}
		}
		for m, w := range r.Workers {
			if len(w) == 0 || !slices.IsSorted(w) {
				t.Fatalf("master %d has workers %v", m, w)
			}
		}
	})
}

// Test vectors of the reference, section 12.
func TestRendezvousPlacementReproducesThePublishedSplits(t *testing.T) {
	split := func(contents []string) string {
		var n [2]int
		for _, c := range contents {
			n[WorkOwner(lease.SumID([]byte(c)), 2)]++
		}
		return fmt.Sprintf("%d/%d", n[0], n[1])
	}
	integrity := []string{"shared-generated-child\n"}
	for i := range 12 {
		integrity = append(integrity, fmt.Sprintf("integrity-seed-%03d\n", i+1))
	}
	var distribution []string
	for i := range 24 {
		distribution = append(distribution, fmt.Sprintf("distribution-seed-%03d\n", i+1))
	}
	if got := split(integrity); got != "6/7" {
		t.Errorf("integrity seeds: %s, want 6/7", got)
	}
	if got := split(distribution); got != "12/12" {
		t.Errorf("distribution seeds: %s, want 12/12", got)
	}
	child := lease.SumID([]byte("f324-heartbeat-child\n"))
	if child.String() != "1d127fde5c68681f1bfba0c718088ee8b6ee3fde6e9aa6c990783244f1e258b8" || WorkOwner(child, 2) != 1 {
		t.Errorf("child %s belongs to master %d", child, WorkOwner(child, 2))
	}
}

// F320: 600 items over 3 masters, each 150 to 250; a further master takes items only for itself.
func TestAFurtherMasterTakesOnlyWhatItWins(t *testing.T) {
	var n [3]int
	for i := range 600 {
		id := lease.SumID(fmt.Appendf(nil, "item-%d", i))
		before, after := WorkOwner(id, 3), WorkOwner(id, 4)
		n[before]++
		if after != before && after != 3 {
			t.Fatalf("item %d moved from master %d to %d", i, before, after)
		}
	}
	for m, got := range n {
		if got < 150 || got > 250 {
			t.Errorf("master %d has %d of 600 items", m, got)
		}
	}
}

func TestShutdownTokensMatchTheReference(t *testing.T) {
	if got := ShutdownToken(strings.Repeat("a", 64), 1); got != "9e8a2f28b8de3a46ec5e5874bdb34727d2d93d1014c270b1e1e0a484d4a0c226" {
		t.Errorf("token %s", got)
	}
}

func TestOwnerNamesAreParsedBack(t *testing.T) {
	epoch := strings.Repeat("b", 64)
	if rank, ok := ownerRank(ownerName(epoch, 12)); !ok || rank != 12 {
		t.Errorf("rank %d, %t", rank, ok)
	}
	for _, bad := range []string{"", "12", "standalone:x", "standalone:x:-1"} {
		if rank, ok := ownerRank(bad); ok {
			t.Errorf("%q gives rank %d", bad, rank)
		}
	}
}

func flags() Flags {
	f := DefaultFlags()
	f.InputDir, f.OutputDir, f.Target = "in", "/out", []string{"target"}
	return f
}

func lookup(env map[string]string) func(string) string {
	return func(name string) string { return env[name] }
}

func TestDefaultsFollowTheTimeout(t *testing.T) {
	f := flags()
	o, err := NewOptions(f, lookup(nil))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][2]time.Duration{
		"ttl": {o.LeaseTTL, 360 * time.Second}, "grace": {o.ShutdownGrace, 360 * time.Second}, "finalize": {o.FinalizeGrace, 30 * time.Second},
		"lock": {o.LockTimeout, 30 * time.Second}, "scan": {o.ScanInterval, 250 * time.Millisecond}, "heartbeat": {o.HeartbeatInterval(), 30 * time.Second},
		"status": {o.StatusInterval(), 125 * time.Millisecond}, "fresh": {o.statusFresh(), 1250 * time.Millisecond}, "age hint": {o.LockAgeHint, 30 * time.Second},
	}
	for name, w := range want {
		if w[0] != w[1] {
			t.Errorf("%s is %s, want %s", name, w[0], w[1])
		}
	}
	if o.Shards != 64 || o.ResultMaxObjects != 4096 || o.ResultMaxBytes != 256<<20 || o.InputMaxBytes != 256<<20 || o.WorkersPerMaster != 90 || o.Epoch != "" {
		t.Errorf("%+v", o)
	}
	f.Timeout = 3
	if o, err = NewOptions(f, lookup(map[string]string{"SYMCC_SHUTDOWN_GRACE_SEC": "0"})); err != nil {
		t.Fatal(err)
	}
	if o.LeaseTTL != 120*time.Second || o.ShutdownGrace != 0 || o.LockTimeout != time.Second {
		t.Errorf("timeout 3, grace 0: %+v", o)
	}
}

func TestBadValuesAreRefusedByNameAndRange(t *testing.T) {
	nan, inf := 0.0, 1.0
	nan /= nan
	inf /= 0 * inf
	for _, c := range []struct {
		change func(*Flags)
		env    string
		want   string
	}{
		{func(f *Flags) { f.Timeout = nan }, "", "--timeout is NaN"},
		{func(f *Flags) { f.Timeout = 0 }, "", "--timeout is 0"},
		{func(f *Flags) { f.MaxIdle = -1 }, "", "--max-idle is -1"},
		{func(f *Flags) { f.WallTimeout = inf }, "", "--wall-timeout is +Inf"},
		{func(f *Flags) { f.WorkersPerMaster = 0 }, "", "--workers-per-master is 0"},
		{func(f *Flags) { f.InputDir = "" }, "", "no input directory"},
		{func(f *Flags) { f.Target = nil }, "", "no target"},
		{func(f *Flags) { f.InputDir = "/out/" }, "", "-i and -o are both /out"},
		{nil, "SYMCC_STANDALONE_WORK_LEASE_TTL=NaN", "from 1 to 86400"},
		{nil, "SYMCC_STANDALONE_WORK_LEASE_TTL=0.2", "from 1 to 86400"},
		{nil, "SYMCC_STANDALONE_WORK_LEASE_TTL=-5", "from 1 to 86400"},
		{nil, "SYMCC_STANDALONE_WORK_LEASE_TTL=5s", "number of seconds"},
		{nil, "SYMCC_STANDALONE_WORK_LOCK_TTL=0", "from 1 to 3600"},
		{nil, "SYMCC_STANDALONE_WORK_LOCK_ACQUIRE_TIMEOUT=inf", "from 0.001 to 3600"},
		{nil, "SYMCC_STANDALONE_WORK_SCAN_INTERVAL=31", "from 0.01 to 30"},
		{nil, "SYMCC_STANDALONE_WORK_LEASE_SHARDS=4097", "from 1 to 4096"},
		{nil, "SYMCC_STANDALONE_WORK_LEASE_SHARDS=4.0", "whole number"},
		{nil, "SYMCC_STANDALONE_WORK_EPOCH=ABC", "exactly 64 lower-case hexadecimal digits"},
		{nil, "SYMCC_STANDALONE_RESULT_MAX_OBJECTS=0", "from 1 to 1000000"},
		{nil, "SYMCC_STANDALONE_RESULT_MAX_BYTES=268435457", "more than SYMCC_STANDALONE_INPUT_MAX_BYTES"},
		{nil, "SYMCC_STANDALONE_INPUT_MAX_BYTES=x", "whole number"},
		{nil, "SYMCC_SHUTDOWN_GRACE_SEC=3601", "from 0 to 3600"},
		{nil, "SYMCC_FINALIZE_GRACE_SEC=-1", "from 0 to 3600"},
	} {
		f := flags()
		if c.change != nil {
			c.change(&f)
		}
		name, value, _ := strings.Cut(c.env, "=")
		_, err := NewOptions(f, lookup(map[string]string{name: value}))
		if err == nil || !strings.Contains(err.Error(), c.want) || name != "" && !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want %q", c.env, err, c.want)
		}
		if budget := strings.Contains(name, "_MAX_"); errors.Is(err, ErrBudget) != budget {
			t.Errorf("%s: is a budget error: %t", c.env, !budget)
		}
	}
}

func TestTheTTLIsAtLeastThreeHeartbeats(t *testing.T) {
	for _, ttl := range []string{"1", "1.5", "89", "90", "91", "86400"} {
		o, err := NewOptions(flags(), lookup(map[string]string{"SYMCC_STANDALONE_WORK_LEASE_TTL": ttl}))
		if err != nil || o.LeaseTTL < 3*o.HeartbeatInterval() {
			t.Errorf("TTL %s: %v", ttl, err)
		}
	}
}
