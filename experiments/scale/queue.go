package scale

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"shardlease/experiments/scale/raw"
)

// A store serves the syncs of all masters in the order in which they arrive, so many at a time. Each master renews its leases every third
// of their TTL: it repeats measured calls of the library, one after the other, each drawn at random. A sync takes the store as long
// as it took when it was measured, alone; what the master did between two syncs (processor, locks, names) it does again, beside the
// others. So a store that serves one sync at a time is a disk that gains nothing from concurrency, and more servers stand for what it gains.
//
// As in the library, a lease has lapsed if the call that renews it begins a TTL or more after the one before it began, or if the call itself
// takes that long: then others may have taken it, or could before its renewal was durable. A call's beginning stands for the instant at
// which it reads the clock, which later leases of a batch do a little later. Whoever loses a lease claims another, so the load stays.
//
// It is a closed system: a master that is late renews again as soon as it is done, and has one heartbeat in flight at most.
type store struct {
	masters, servers int
	ttl              int64      // ns
	calls            []raw.Call // to draw from
	perHeartbeat     int        // calls that renew all leases of a master
	seed, stream     uint64
}

// carried is what became of the masters after the first two TTLs, in which the queue reaches its level.
type carried struct {
	utilisation float64 // of the servers
	lapsed      float64 // part of the renewals that came too late
	done        []int64 // ns from when a heartbeat was due until all of it was durable
}

// Length of a simulation in TTLs.
const (
	settleTTLs  = 2
	measureTTLs = 2
)

type master struct {
	at    int64 // when its next sync reaches the store
	call  *raw.Call
	sync  int     // of the call
	slot  int     // of the call in the heartbeat
	due   int64   // of the heartbeat
	late  bool    // the call began too late
	begun []int64 // by slot: the last call
}

func (s store) run() carried {
	rng := rand.New(rand.NewPCG(s.seed, s.stream))
	period := s.ttl / 3
	q := make(queue, s.masters)
	for i := range q {
		m := &master{due: rng.Int64N(period), begun: make([]int64, s.perHeartbeat)}
		for slot := range m.begun {
			m.begun[slot] = m.due - period
		}
		s.begin(m, m.due, rng)
		q[i] = m
	}
	slices.SortFunc(q, func(x, y *master) int { return cmp.Compare(x.at, y.at) })
	from, until := settleTTLs*s.ttl, (settleTTLs+measureTTLs)*s.ttl
	free := make([]int64, s.servers)
	var busy, renewals, lapses int64
	var out carried
	for ; len(q) > 0 && q[0].at < until; q.down() {
		m := q[0]
		server := 0
		for i := range free {
			if free[i] < free[server] {
				server = i
			}
		}
		start := max(m.at, free[server])
		end := start + m.call.Syncs[m.sync].Took
		free[server] = end
		busy += max(0, min(end, until)-max(start, from))
		if m.sync++; m.sync < len(m.call.Syncs) {
			m.at = end + m.call.Syncs[m.sync].Before
			continue
		}
		if end += m.call.After; end >= until {
			m.at = end // still under way
			continue
		}
		measured := end >= from
		if measured {
			renewals++
			if m.late || end-m.begun[m.slot] >= s.ttl {
				lapses++
			}
		}
		if m.slot++; m.slot < s.perHeartbeat {
			s.begin(m, end, rng)
			continue
		}
		if measured {
			out.done = append(out.done, end-m.due)
		}
		m.slot, m.due = 0, max(m.due+period, end)
		s.begin(m, m.due, rng)
	}
	for _, m := range q { // what was too late already when the simulation ended
		for _, begun := range m.begun {
			if until-begun >= s.ttl {
				renewals++
				lapses++
			}
		}
	}
	out.utilisation = float64(busy) / float64((until-from)*int64(s.servers))
	out.lapsed = float64(lapses) / float64(max(renewals, 1))
	return out
}

// begin draws a master's next call, which begins at the time given.
func (s store) begin(m *master, at int64, rng *rand.Rand) {
	m.call, m.sync = &s.calls[rng.IntN(len(s.calls))], 0
	m.late = at-m.begun[m.slot] >= s.ttl
	m.begun[m.slot] = at
	m.at = at + m.call.Syncs[0].Before
}

// queue is a heap of masters by the time of their next sync. None comes or goes, so it needs one operation only.
type queue []*master

// down restores the order after the first has got a later time.
func (q queue) down() {
	m, i := q[0], 0
	for {
		child := 2*i + 1
		if child+1 < len(q) && q[child+1].at < q[child].at {
			child++
		}
		if child >= len(q) || m.at <= q[child].at {
			break
		}
		q[i], i = q[child], child
	}
	q[i] = m
}

// tolerated is the part of renewals that may be late before leases are said to lapse.
const tolerated = 0.001

// capacity is the largest number of masters whose leases do not lapse, to 5 % or to 1.
func (s store) capacity() int {
	var demand int64 // of the store's time by one heartbeat
	for _, c := range s.calls {
		for _, y := range c.Syncs {
			demand += y.Took
		}
	}
	mean := max(1, float64(demand)/float64(len(s.calls))*float64(s.perHeartbeat))
	low, high := 0, int(1.5*float64(s.ttl)*float64(s.servers)/mean)+1 // for so many the store needs one and a half TTLs
	for high-low > max(1, high/20) {
		s.masters = (low + high) / 2
		if s.run().lapsed > tolerated {
			high = s.masters
		} else {
			low = s.masters
		}
	}
	return low
}

// resampled draws as many rounds as there are, with replacement, and returns their calls. The same replicate gives the same rounds for
// each way, so that ways are compared under the same conditions.
func resampled(byRound [][]raw.Call, seed, replicate uint64) []raw.Call {
	rng := rand.New(rand.NewPCG(seed, replicate))
	var calls [][]raw.Call
	for range byRound {
		calls = append(calls, byRound[rng.IntN(len(byRound))])
	}
	return slices.Concat(calls...)
}
