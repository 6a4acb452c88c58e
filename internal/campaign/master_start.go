package campaign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/lease"
)

// begin is rank 0's start: it opens the epoch and tells all others.
func (m *Master) begin(ctx context.Context) {
	if m.opts.StatsJSON != "" {
		if err := ClearStats(m.env.FS, m.opts.StatsJSON); err != nil {
			m.opts.StatsJSON = ""
			m.giveUp(ExitCantCreate, err)
			return
		}
	}
	start := startMsg{Schema: schemaStart, Resumed: m.opts.Epoch != "", OutputDir: m.opts.OutputDir, Settings: m.opts.fingerprint()}
	var err error
	if start.Epoch = m.opts.Epoch; start.Epoch == "" {
		start.Epoch, err = RandomHex(m.env.Rand, 32)
	}
	if err == nil {
		start.ShutdownEpoch, err = RandomHex(m.env.Rand, 32)
	}
	if err == nil {
		start.StatsToken, err = RandomHex(m.env.Rand, 32)
	}
	if err == nil && m.opts.OutputDir == "" {
		m.temporary = true
		m.opts.OutputDir = filepath.Join(os.TempDir(), "symcc_shared_"+start.Epoch[:16])
		start.OutputDir = m.opts.OutputDir
	}
	if err == nil {
		err = groupcommit.MkdirAll(m.env.FS, m.opts.OutputDir, 0o777)
	}
	if err == nil {
		err = CollectRetired(m.env.FS, m.opts.OutputDir)
	}
	if err != nil {
		m.giveUp(ExitCantCreate, fmt.Errorf("output directory %s: %w", m.opts.OutputDir, err))
		return
	}
	if err := m.enter(ctx, start); err != nil {
		m.giveUp(startCode(err), err)
		return
	}
	for rank := 1; rank < m.size(); rank++ {
		m.send(rank, TagStart, start)
	}
	printHeader(m.env.Stdout, m.opts, m.roles, m.size(), start.Epoch, start.Resumed)
}

func (m *Master) size() int { return m.roles.Masters + m.roles.WorkerCount() }

func startCode(err error) int {
	switch {
	case errors.Is(err, ErrEpoch), errors.Is(err, lease.ErrLayout):
		return ExitUsage
	case errors.Is(err, groupcommit.ErrNotDurable), errors.Is(err, ErrUnsuitable):
		return ExitNotDurable
	}
	return ExitCantCreate
}

// giveUp ends before the campaign has begun. Rank 0 has not sent START then: it tells the others to end too, so that all end in good order
// and nothing but its own sentence is printed. Another master can't do that, for the others are at work by then.
func (m *Master) giveUp(code int, err error) {
	m.failure = err
	m.reportFailure(err)
	reason := Brief(err.Error())
	if m.rank == 0 {
		m.writeStats(nil, code, reason)
		for rank := 1; rank < m.size(); rank++ {
			m.send(rank, TagHalt, haltMsg{Schema: schemaHalt, Kind: stopStart})
		}
	}
	m.finish(Outcome{Code: code, Orderly: m.rank == 0, Reason: reason})
}

func (m *Master) receiveStart(ctx context.Context, msg Message) error {
	start, err := decodeStart(msg.Data)
	if err != nil || m.phase != waiting || msg.From != 0 {
		return errors.Join(err, errors.New("START"))
	}
	if own := m.opts.fingerprint(); own != start.Settings {
		m.giveUp(ExitUsage, fmt.Errorf("rank %d was started with other settings than rank 0 (give all ranks the same options and environment): %s instead of %s", m.rank, own, start.Settings))
		return nil
	}
	m.opts.OutputDir = start.OutputDir
	if err := m.enter(ctx, start); err != nil {
		m.giveUp(startCode(err), err)
	}
	return nil
}

// enter opens the epoch and queues the start-up work: a resumed epoch first redoes commits and takes over the leases of the earlier run,
// then imports; a new one imports first.
func (m *Master) enter(ctx context.Context, start startMsg) error {
	epoch, err := OpenEpoch(m.env.FS, start.OutputDir, start.Epoch, m.opts.Shards, m.rank == 0)
	if err != nil {
		return err
	}
	m.run, m.epoch, m.resumed = start, epoch, start.Resumed
	if m.rank == 0 {
		if err := Unsuitable(Probe(m.env.FS, filepath.Join(epoch.Dir(), "probe"), m.env.Now)); err != nil {
			return fmt.Errorf("output directory %s: %w", start.OutputDir, err)
		}
	}
	table := lease.Options{Shards: m.opts.Shards, TTL: m.opts.LeaseTTL, LockTimeout: m.opts.LockTimeout, Now: m.env.Now, Rand: m.env.Rand, FS: m.env.FS,
		MaxRecord: lease.DefaultMaxRecord + resultLimit(m.opts.ResultMaxObjects)}
	if m.table, err = m.env.openTable(epoch.Dir(), &table); err != nil {
		return fmt.Errorf("lease table: %w", err)
	}
	// The lane has a handle of its own that waits less for a record's lock than a period, so that one stuck record can't starve the others.
	table.LockTimeout = min(m.opts.LockTimeout, m.opts.HeartbeatInterval()/4)
	if m.laneFile, err = m.env.openTable(epoch.Dir(), &table); err != nil {
		return fmt.Errorf("lease table: %w", err)
	}
	m.lane = NewLane(m.laneFile, m.held, m.opts.HeartbeatInterval(), m.now)
	m.lane.Measure(m.env.Now)
	m.out.Lane = m.lane
	m.corpus = NewCorpus(m.env.FS, start.OutputDir, m.opts.InputMaxBytes, writerName(start.Epoch, m.rank))
	m.stages = NewStages(m.env.FS, epoch.Staging(), m.opts.ResultMaxBytes)
	m.inputs = NewInputs(m.env.FS, m.opts.InputDir)
	m.startTime = m.now
	m.phase = running
	if m.resumed {
		m.backlog = append(m.backlog, m.redoAll, m.takeOverAll)
	}
	m.backlog = append(m.backlog, m.scanInputs)
	if !m.resumed {
		m.backlog = append(m.backlog, m.redoAll)
	}
	m.backlog = append(m.backlog, m.startUpDone)
	return nil
}

// startUpDone runs after the first import. Tasks that the import has queued come first, so it queues itself behind them.
func (m *Master) startUpDone(context.Context) error {
	if len(m.backlog) > 0 {
		m.backlog = append(m.backlog, m.startUpDone)
		return nil
	}
	m.started = true
	m.nextInputs = m.now.Add(time.Second)
	if m.rank == 0 {
		fmt.Fprintf(m.env.Stdout, "[Master] Imported %d initial inputs from %s\n", len(m.origins), m.opts.InputDir)
		fmt.Fprintf(m.env.Stdout, "[Master] Using %d master(s), %d workers in this group\n", m.roles.Masters, len(m.workers))
		fmt.Fprintf(m.env.Stdout, "[Master] Durable work ownership: rendezvous + %d fenced shards, lease=%s\n", m.opts.Shards, seconds(m.opts.LeaseTTL))
	}
	return nil
}

// takeOverAll re-claims the leases that the earlier run left, whatever their age. Each master takes the items that it would own, so that
// no two masters of this run take one lease from each other.
func (m *Master) takeOverAll(ctx context.Context) error {
	var left []lease.Record
	for rec, err := range m.table.Records(ctx) {
		if err != nil {
			return fmt.Errorf("resume: %w", err)
		}
		if _, err := checkPayload(rec); err != nil {
			return fmt.Errorf("resume: %w", err)
		}
		if rec.Status == lease.Done {
			m.corpus.Trust(rec.ID)
		}
		if rec.Status == lease.Leased && WorkOwner(rec.ID, m.roles.Masters) == m.rank {
			left = append(left, rec)
		}
	}
	var tasks []task
	for _, rec := range left {
		tasks = append(tasks, func(ctx context.Context) error { return m.takeBack(ctx, rec, m.table.TakeOver) })
	}
	m.backlog = slices.Insert(m.backlog, 0, tasks...) // before the import
	return nil
}
