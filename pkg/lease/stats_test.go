package lease

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestHistogramBucketsAreAtMostAnEighthWide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Uint64Max(1<<maxExponent-1).Draw(t, "value")
		i := bucket(v)
		upper := Histogram{}.UpperBound(i)
		if v > upper || i > 0 && v <= (Histogram{}).UpperBound(i-1) || float64(upper) > float64(v)*1.125 {
			t.Fatalf("%d is in bucket %d up to %d", v, i, upper)
		}
	})
	for _, v := range []uint64{1 << maxExponent, math.MaxUint64} {
		if bucket(v) != HistogramBuckets-1 {
			t.Errorf("%d is in bucket %d", v, bucket(v))
		}
	}
}

func TestQuantilesCoverWhatTheyPromise(t *testing.T) {
	if q := (Histogram{}).Quantile(0.5); q != 0 {
		t.Errorf("the median of nothing is %d", q)
	}
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Uint64Max(1<<maxExponent-1), 1, 200).Draw(t, "values")
		var h histogram
		for _, v := range values {
			h.add(v)
		}
		slices.Sort(values)
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		exact := values[max(0, int(math.Ceil(q*float64(len(values))))-1)]
		got := h.snapshot().Quantile(q)
		if got < exact || float64(got) > float64(exact)*1.125 {
			t.Fatalf("quantile %v is %d, exactly %d", q, got, exact)
		}
	})
	var h histogram
	if n := testing.AllocsPerRun(100, func() { h.add(12345) }); n > 0 {
		t.Errorf("adding allocates %v times", n)
	}
}

// Identities of the report's section 7: avoided = renewals - directory syncs, K <= min(N, shards), one content sync a renewal.
func TestStatsOfBatchesObeyTheIdentities(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	held, _ := f.claimMany(table, 12)
	f.trace.Reset()
	for range 3 {
		_, err := table.HeartbeatMany(bg, held)
		f.must(err)
	}
	_, err := table.HeartbeatMany(bg, nil) // counts for nothing
	f.must(err)
	st, seen := table.Stats(), f.trace.Counts()
	if st.Batches != 3 || st.Renewals != 36 || st.FileSyncs != 36 || st.DirectorySyncs != 12 || st.Failures != 0 {
		t.Errorf("%d batches, %d renewals, %d file syncs, %d directory syncs", st.Batches, st.Renewals, st.FileSyncs, st.DirectorySyncs)
	}
	if seen.FileSyncs != int(st.FileSyncs) || seen.DirSyncs != int(st.DirectorySyncs) {
		t.Errorf("the file system saw %d and %d", seen.FileSyncs, seen.DirSyncs)
	}
	if n, k := st.BatchRecords.Quantile(1), st.BatchShards.Quantile(1); n != 12 || k != 4 || st.BatchRecords.Total() != 3 {
		t.Errorf("N %d, K %d", n, k)
	}
	if st.FileSync.Total() < 36+12 || st.DirectorySync.Total() < 12+12 || st.LockWait.Total() < 36+12 {
		t.Errorf("%d, %d, %d latencies", st.FileSync.Total(), st.DirectorySync.Total(), st.LockWait.Total())
	}
}
