package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"shardlease/pkg/groupcommit/vfs/crashfs"
	"shardlease/pkg/lease"
)

// checkDisk checks what a disk holds against what masters were told.
func (w *world) checkDisk(disk *crashfs.FS, where string) {
	s := w.look(disk)
	if s.wrong != nil {
		w.violate(5, "%s: %v", where, s.wrong)
		return
	}
	if w.retired != nil && !s.epoch {
		for _, r := range w.retired.records {
			w.checkChildren(s, r, where)
		}
		return
	}
	w.checkPromises(s, where)
	w.checkRecords(s, where)
}

func (w *world) checkPromises(s *snapshot, where string) {
	for _, id := range sorted(w.acked) {
		p, r := w.acked[id], s.records[id]
		switch {
		case r.Token.Fence < p.fence:
			w.violate(5, "%s: %s has fence %d, but %d was granted", where, id, r.Token.Fence, p.fence)
		case p.commit > 0 && (r.Token.Fence != p.commit || string(r.Manifest) != p.manifest):
			w.violate(5, "%s: %s was committed under fence %d with %s, and is %s under %d with %s", where, id, p.commit, p.manifest, r.Status, r.Token.Fence, r.Manifest)
		case p.done && r.Status != lease.Done:
			w.violate(5, "%s: %s was done, and is %s", where, id, r.Status)
		}
	}
}

func (w *world) checkRecords(s *snapshot, where string) {
	declaredBy := map[string]bool{}
	for _, id := range sorted(s.records) {
		r := s.records[id]
		if r.Status == lease.Done {
			w.checkChildren(s, r, where)
		}
		for _, h := range declared(r) {
			declaredBy[h] = true
		}
	}
	for _, id := range sorted(s.objects) {
		if text := w.contents[id]; !declaredBy[id.String()] && (!strings.HasPrefix(text, "seed") || strings.Contains(text, "/")) {
			w.violate(3, "%s: %q is public, but no committed record declares it", where, text)
		}
	}
}

// checkChildren checks that a done record declares what its executions write, all of one execution, and that it is public.
func (w *world) checkChildren(s *snapshot, r lease.Record, where string) {
	hashes := declared(r)
	if !s.objects[r.ID] {
		w.violate(2, "%s: %s is done, but not public", where, r.ID)
	}
	for _, h := range hashes {
		id, err := lease.ParseID(h)
		if err != nil || !s.objects[id] {
			w.violate(2, "%s: child %s of %s, which is done, is not public", where, h, r.ID)
		}
	}
	text := w.contents[r.ID]
	for _, child := range w.children(text) {
		if !has(hashes, lease.SumID([]byte(child))) {
			w.violate(2, "%s: %q is done without its child %q", where, text, child)
		}
	}
	marks := 0
	for _, h := range hashes {
		if id, err := lease.ParseID(h); err == nil && strings.HasSuffix(w.contents[id], " of "+r.ID.String()) {
			marks++
		}
	}
	if want := 1; !strings.HasPrefix(text, "mark") && marks != want {
		w.violate(3, "%s: %q is done with the results of %d executions", where, text, marks)
	}
}

// checkRetirement is called just before the epoch's directory gets its retired name.
func (j *job) checkRetirement() {
	s := j.look(j.disk)
	for _, id := range sorted(s.records) {
		if st := s.records[id].Status; st != lease.Done {
			j.violate(8, "the epoch is retired while %s is %s", id, st)
		}
	}
	for _, id := range sorted(s.objects) {
		if _, ok := s.records[id]; !ok {
			j.violate(8, "the epoch is retired while %s has no record", id)
		}
	}
	for n := range j.plan.Seeds {
		if id := lease.SumID(fmt.Appendf(nil, "seed %d", n+1)); !s.objects[id] {
			j.violate(1, "the epoch is retired without seed %d", n+1)
		}
	}
	j.checkPromises(s, "at the retirement")
	j.checkRecords(s, "at the retirement")
	j.retired = s
}

// checkEnd checks the campaign as a whole.
//
// The bound of executions: one is repeated only if its result did not reach a begun commit. A job that is cut off loses at most what its workers
// have on their way, one execution or result each; one that ends in order drains them. Else the result was refused, either because the lease had lapsed,
// which takes a pause, a clock jump or a hang, and each lease is executed once, whether its master had sent it out before or sends it out before the next
// heartbeat finds it lost; or because of an error of the disk on the way, of which each refuses one result.
func (w *world) checkEnd() {
	if w.Violation != "" {
		return
	}
	if w.retired == nil || len(w.epochs()) > 0 {
		w.violate(10, "the job that was left alone has not finished the campaign: epochs %v", w.epochs())
		return
	}
	w.Items = len(w.retired.records)
	w.Bound = w.Items + w.workers*w.Disorderly + w.AtRisk + w.Errors
	if w.executions > w.Bound {
		w.violate(6, "%d executions, but the bound is %d = %d items + %d workers x %d jobs cut off + %d leases at risk + %d errors",
			w.executions, w.Bound, w.Items, w.workers, w.Disorderly, w.AtRisk, w.Errors)
	}
	again := 0
	for id, n := range w.runs {
		again += max(0, n-int(w.retired.records[id].Token.Fence))
	}
	if again > w.Errors {
		w.violate(6, "%d executions more than there were claims, but only %d errors", again, w.Errors)
	}
}

func sorted[V any](m map[lease.ID]V) []lease.ID {
	return slices.SortedFunc(maps.Keys(m), func(a, b lease.ID) int { return cmp.Compare(a.String(), b.String()) })
}
