package scale

import (
	"math"
	"reflect"
	"testing"

	"shardlease/experiments/scale/raw"
)

// sync is a call with one sync, in milliseconds.
func oneSync(before, took, after int64) raw.Call {
	return raw.Call{Syncs: []raw.Sync{{Before: before * 1e6, Took: took * 1e6, Whole: took * 1e6}}, After: after * 1e6}
}

func storeOf(masters, servers, perHeartbeat int, calls ...raw.Call) store {
	return store{masters: masters, servers: servers, ttl: 3e9, calls: calls, perHeartbeat: perHeartbeat, seed: 1}
}

func TestALoneMasterWaitsForNobody(t *testing.T) {
	got := storeOf(1, 1, 2, oneSync(3, 10, 7)).run()
	if got.lapsed != 0 || len(got.done) != 6 { // two TTLs are six periods
		t.Fatalf("%+v", got)
	}
	for _, ns := range got.done {
		if ns != 40e6 {
			t.Errorf("a heartbeat took %d ns", ns)
		}
	}
	if want := 0.020; math.Abs(got.utilisation-want) > 1e-9 {
		t.Errorf("utilisation %v, want %v", got.utilisation, want)
	}
}

// The utilisation law: what arrives times what it takes, as long as the store keeps up.
func TestTheStoreIsBusyForWhatArrives(t *testing.T) {
	for _, servers := range []int{1, 4} {
		got := storeOf(60, servers, 1, oneSync(1, 5, 0), oneSync(1, 15, 0)).run()
		want := 60 * 0.010 / float64(servers)
		if got.lapsed != 0 || math.Abs(got.utilisation-want) > 0.1*want {
			t.Errorf("%d servers: %+v, want utilisation %v", servers, got, want)
		}
		if len(got.done) < 355 || len(got.done) > 365 {
			t.Errorf("%d servers: %d heartbeats in six periods of 60 masters", servers, len(got.done))
		}
	}
}

// In a closed system a store that takes D for a heartbeat serves each of n masters once in nD, which may be a TTL at most.
func TestCapacityIsTheTTLOverTheDemand(t *testing.T) {
	for _, c := range []struct {
		servers, perHeartbeat int
		calls                 []raw.Call
		want                  float64
	}{
		{1, 1, []raw.Call{oneSync(0, 10, 0)}, 300},
		{4, 1, []raw.Call{oneSync(0, 10, 0)}, 1200},
		{1, 5, []raw.Call{oneSync(0, 10, 0)}, 60},
		{1, 1, []raw.Call{{Syncs: append(oneSync(1, 10, 0).Syncs, oneSync(1, 20, 0).Syncs...)}}, 100},
	} {
		s := storeOf(0, c.servers, c.perHeartbeat, c.calls...)
		if got := float64(s.capacity()); got < 0.9*c.want || got > 1.1*c.want {
			t.Errorf("%d servers, %d calls: %v masters, want about %v", c.servers, c.perHeartbeat, got, c.want)
		}
	}
}

func TestLeasesLapseWhenTheStoreIsOverloadedOrACallOutlastsThem(t *testing.T) {
	if got := storeOf(900, 1, 1, oneSync(0, 10, 0)).run(); got.lapsed < 0.9 || got.utilisation < 0.99 {
		t.Errorf("three times what the store can carry: %v lapsed, utilisation %v", got.lapsed, got.utilisation)
	}
	if got := storeOf(1, 1, 1, oneSync(2000, 10, 1500)).run(); got.lapsed != 1 {
		t.Errorf("calls longer than the TTL: %v lapsed", got.lapsed)
	}
	if got := storeOf(1, 1, 1, oneSync(1, 60_000, 0)).run(); got.lapsed != 1 {
		t.Errorf("a call that never ends: %v lapsed", got.lapsed)
	}
}

func TestASeedReplaysTheSimulation(t *testing.T) {
	s := storeOf(50, 1, 1, oneSync(0, 5, 0), oneSync(2, 9, 1))
	a, b := s.run(), s.run()
	if !reflect.DeepEqual(a, b) {
		t.Error("two runs of one seed differ")
	}
	s.stream = 1
	if c := s.run(); reflect.DeepEqual(a, c) {
		t.Error("another stream gives the same run")
	}
	rounds := [][]raw.Call{{oneSync(1, 1, 1)}, {oneSync(2, 2, 2)}, {oneSync(3, 3, 3)}}
	if !reflect.DeepEqual(resampled(rounds, 1, 2), resampled(rounds, 1, 2)) || len(resampled(rounds, 1, 2)) != 3 {
		t.Error("a replicate draws different rounds")
	}
}

func TestFitFindsThePlaneAndNoNegativeCost(t *testing.T) {
	plane := func(a, b float64) (list []point) {
		for _, n := range []float64{1, 8, 64, 4096} {
			for _, k := range []float64{1, 8} {
				list = append(list, point{n, k, a*n + b*k})
			}
		}
		return list
	}
	for _, want := range [][2]float64{{0.3, 0.2}, {0.001, 5}} {
		if a, b := fit(plane(want[0], want[1])); math.Abs(a-want[0]) > 1e-9 || math.Abs(b-want[1]) > 1e-9 {
			t.Errorf("fitted %v and %v, want %v", a, b, want)
		}
	}
	if a, b := fit([]point{{1, 1, 1}, {2, 4, 1.5}}); a <= 0 || b != 0 {
		t.Errorf("fitted %v and %v where more shards cost less", a, b)
	}
	if a, b := fit([]point{{1, 1, 2}, {2, 2, 4}}); math.Abs(a-2) > 1e-9 || b != 0 {
		t.Errorf("fitted %v and %v to one line", a, b)
	}
	if got := farthest([]point{{1, 0, 1}, {1, 0, 0.4}, {1, 0, 2}}, 1, 0); got != 0.4 {
		t.Errorf("farthest from 1 is %v", got)
	}
}
