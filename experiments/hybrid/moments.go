package hybrid

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"shardlease/internal/hybrid"
	"shardlease/internal/hybrid/afl"
	"shardlease/pkg/groupcommit/vfs"
)

// The moments at which something is done to an arm are conditions, not times: on a busy machine a job may take seconds to start, and what
// would be killed or counted then is not what the claims are about.

// startLimit bounds the wait for a job's first event.
const startLimit = time.Minute

// killVictim sends SIGKILL to the coordinator of the second job, whose process its event log names, when that has been at work for a.kill seconds
// and its workers are busy.
func (a *arm) killVictim(ctx context.Context) error {
	for began := time.Now(); ; {
		events, err := eventsSoFar(filepath.Join(a.dir, victim+eventsSuffix))
		if err != nil {
			return err
		}
		if len(events) == 0 && time.Since(began) > startLimit {
			return fmt.Errorf("the job to be killed has not started within %s: see %s", startLimit, victim+logSuffix)
		}
		due, err := a.killDue(events, time.Now())
		if err != nil {
			return err
		}
		if due {
			owner := events[0].Owner
			pid, err := strconv.Atoi(owner[strings.LastIndexByte(owner, ':')+1:])
			if err != nil {
				return fmt.Errorf("coordinator %q: %w", owner, err)
			}
			return syscall.Kill(pid, syscall.SIGKILL)
		}
		if err := sleep(ctx, 0.02); err != nil {
			return err
		}
	}
}

// killDue tells whether the time to kill the job has come: it has renewed leases, and all of its workers are busy, so that it has something to
// leave. Where not all of them find work, one is enough after a while. What is left of the arm must suffice for its leases to expire and to be taken over.
func (a *arm) killDue(events []hybrid.Event, now time.Time) (bool, error) {
	if len(events) == 0 {
		return false, nil
	}
	busy, renewed := map[int]bool{}, false
	for _, ev := range events {
		switch ev.Event {
		case hybrid.EventClaim, hybrid.EventRecover:
			busy[ev.Worker] = true
		case hybrid.EventDone, hybrid.EventFailed, hybrid.EventStale:
			delete(busy, ev.Worker)
		case hybrid.EventHeartbeat:
			renewed = renewed || ev.Counters != nil && ev.Counters.WorkOK > 0
		case hybrid.EventStop:
			return false, fmt.Errorf("the job to be killed has ended before (%s)", ev.Detail)
		}
	}
	at := float64(now.UnixMicro())/1e6 - events[0].TimeS
	wanted := a.Workers
	switch rest := a.seconds - a.kill; {
	case at > a.kill+rest/2:
		return false, fmt.Errorf("the job to be killed had nothing to leave between %g and %g s after its start: see %s", a.kill, a.kill+rest/2, victim+logSuffix)
	case at > a.kill+rest/4:
		wanted = 1
	}
	return at >= a.kill && renewed && len(busy) >= wanted, nil
}

// eventsSoFar reads the event log of a running job, whose last line may not be whole yet.
func eventsSoFar(name string) (events []hybrid.Event, err error) {
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = parseLines(name, data[:bytes.LastIndexByte(data, '\n')+1], &events)
	}
	return events, err
}

// A fresh afl-fuzz -M looks at its peers after each input of its own that it has worked on. The first takes it about a second, by
// when little or nothing is published; the second may take it twenty. An arm that ended in between would say nothing about what AFL++ imports.
const (
	lookLimit  = 2 * time.Minute
	enoughSeen = 8 // inputs, out of which AFL++ chooses
)

// awaitLook lets afl-fuzz go on until it has looked at some of what the jobs have published, as it does in nearly all runs before they end. If it does
// not within the limit, that is a result too.
func (a *arm) awaitLook(ctx context.Context) error {
	published := 0
	for _, peer := range a.jobs {
		sums, err := afl.PublishedBy(vfs.OS, a.sync(), peer)
		if err != nil {
			return err
		}
		for _, kind := range sums {
			if kind == afl.Queue {
				published++
			}
		}
	}
	for deadline := time.Now().Add(lookLimit); time.Now().Before(deadline); {
		seen, err := a.seen()
		if err != nil || seen >= min(enoughSeen, published) {
			return err
		}
		if err := sleep(ctx, 0.1); err != nil {
			return err
		}
	}
	return nil
}

// seen is how many inputs of the jobs AFL++ has looked at: for each peer it keeps the number of the next in a file.
func (a *arm) seen() (n int, err error) {
	for _, peer := range a.jobs {
		data, err := os.ReadFile(filepath.Join(a.sync(), fuzzerName, ".synced", peer))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		if len(data) >= 4 {
			n += int(binary.NativeEndian.Uint32(data))
		}
	}
	return n, nil
}
