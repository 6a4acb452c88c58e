package lease

import (
	"io/fs"
	"math/bits"
	"os"
	"sync/atomic"
	"time"

	"shardlease/pkg/groupcommit/vfs"
)

// Stats counts what one open table has done. It costs no allocation and a few atomic additions per operation.
type Stats struct {
	// Batches are the calls of HeartbeatMany and Heartbeat (and HeartbeatGroup) without a failure, Failures those with one.
	Batches, Failures uint64
	// Renewals and DirectorySyncs are the records renewed and the barriers run by Batches, so that their difference is what batching
	// has saved. FileSyncs are the content syncs of Batches.
	Renewals, DirectorySyncs, FileSyncs uint64

	// Nanoseconds of each wait for a record's lock, and of each content sync and barrier, of all operations, failed ones included. Locks
	// that are taken together share the time of the call.
	LockWait, FileSync, DirectorySync Histogram
	// BatchRecords and BatchShards are N and K of the report's section 7 for each batch that renewed something: records renewed, and
	// barriers run.
	BatchRecords, BatchShards Histogram
}

// A Histogram counts values in buckets: one for each value below 8, then 8 of equal width for each power of two, so a bucket is at most
// 12.5 % wide. Values of 2^41 (as nanoseconds: 36 minutes) and more are in the last one.
type Histogram struct {
	Counts [HistogramBuckets]uint64
}

const (
	subBits          = 3
	subBuckets       = 1 << subBits
	maxExponent      = 41
	HistogramBuckets = (maxExponent-subBits)*subBuckets + subBuckets
)

func bucket(v uint64) int {
	if v < subBuckets {
		return int(v)
	}
	e := bits.Len64(v) - 1
	if e >= maxExponent {
		return HistogramBuckets - 1
	}
	return (e-subBits)*subBuckets + int(v>>(e-subBits))
}

// UpperBound returns the largest value of bucket i.
func (h Histogram) UpperBound(i int) uint64 {
	if i < 2*subBuckets {
		return uint64(i)
	}
	shift := i/subBuckets - 1
	return uint64(i%subBuckets+subBuckets+1)<<shift - 1
}

// Total returns the number of values.
func (h Histogram) Total() uint64 {
	var n uint64
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Quantile returns a value that the fraction q (0 to 1) of the values does not exceed: the largest value of the bucket that holds the
// quantile, so at most 12.5 % too high. 0 without values.
func (h Histogram) Quantile(q float64) uint64 {
	total := h.Total()
	if total == 0 {
		return 0
	}
	rank := max(1, uint64(min(max(q, 0), 1)*float64(total)+0.999999999)) // the smallest rank that covers q
	var seen uint64
	for i, c := range h.Counts {
		if seen += c; seen >= rank {
			return h.UpperBound(i)
		}
	}
	return h.UpperBound(HistogramBuckets - 1)
}

type histogram [HistogramBuckets]atomic.Uint64

func (h *histogram) add(v uint64) { h[bucket(v)].Add(1) }

func (h *histogram) snapshot() (s Histogram) {
	for i := range h {
		s.Counts[i] = h[i].Load()
	}
	return s
}

type counters struct {
	batches, failures, renewals, directorySyncs, fileSyncs atomic.Uint64
	lockWait, fileSync, directorySync                      histogram
	batchRecords, batchShards                              histogram
}

func (c *counters) snapshot() Stats {
	return Stats{
		Batches: c.batches.Load(), Failures: c.failures.Load(), Renewals: c.renewals.Load(),
		DirectorySyncs: c.directorySyncs.Load(), FileSyncs: c.fileSyncs.Load(),
		LockWait: c.lockWait.snapshot(), FileSync: c.fileSync.snapshot(), DirectorySync: c.directorySync.snapshot(),
		BatchRecords: c.batchRecords.snapshot(), BatchShards: c.batchShards.snapshot(),
	}
}

// batch counts a batch that renewed records with fileSyncs content syncs and shards barriers.
func (c *counters) batch(records, fileSyncs, shards int) {
	c.batches.Add(1)
	if records == 0 {
		return
	}
	c.renewals.Add(uint64(records))
	c.fileSyncs.Add(uint64(fileSyncs))
	c.directorySyncs.Add(uint64(shards))
	c.batchRecords.add(uint64(records))
	c.batchShards.add(uint64(shards))
}

// beat counts renewals that one flush has made durable together.
func (c *counters) beat(records int) {
	if records > 0 {
		c.renewals.Add(uint64(records))
		c.fileSyncs.Add(1)
		c.batchRecords.add(uint64(records))
	}
}

// meter times the syncs that pass through it.
type meter struct {
	vfs.FS
	c *counters
}

func (m *meter) SyncDir(name string) error {
	defer m.c.directorySync.since(time.Now())
	return m.FS.SyncDir(name)
}

func (m *meter) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := m.FS.OpenFile(name, flag, perm)
	if err != nil || flag&(os.O_WRONLY|os.O_RDWR) == 0 {
		return f, err
	}
	return &meteredFile{f, m.c}, nil
}

func (h *histogram) since(start time.Time) { h.add(uint64(time.Since(start))) }

type meteredFile struct {
	vfs.File
	c *counters
}

func (f *meteredFile) Sync() error {
	defer f.c.fileSync.since(time.Now())
	return f.File.Sync()
}

func (f *meteredFile) Datasync() error {
	defer f.c.fileSync.since(time.Now())
	return f.File.Datasync()
}

func (f *meteredFile) SyncFS() error {
	defer f.c.fileSync.since(time.Now())
	return f.File.SyncFS()
}
