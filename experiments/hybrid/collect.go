package hybrid

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"shardlease/internal/experiment"
	"shardlease/internal/hybrid/afl"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/lease"
)

// collect writes the raw files of an arm that is over.
func (a *arm) collect(ctx context.Context, inst *afl.Instance) error {
	stats, err := inst.Stats(ctx)
	if err != nil {
		return err
	}
	number := func(key string) float64 { n, _ := stats.Number(key); return n }
	a.record.Fuzzer = Fuzzer{Execs: number("execs_done"), Corpus: number("corpus_count"), Found: number("corpus_found"), Imported: number("corpus_imported"),
		Edges: number("edges_found"), Crashes: number("saved_crashes"), Hangs: number("saved_hangs")}
	a.countLeft()
	coverage, err := a.measureQueue(ctx, inst)
	if err != nil {
		return err
	}
	records, err := a.readRecords(ctx)
	if err != nil {
		return err
	}
	published, err := a.listPublished()
	if err != nil {
		return err
	}
	data, err := experiment.EncodeJSON(a.record)
	return errors.Join(err,
		os.WriteFile(filepath.Join(a.dir, armFile), data, 0o644),
		writeLines(filepath.Join(a.dir, coverageFile), coverage), writeLines(filepath.Join(a.dir, recordsFile), records),
		writeLines(filepath.Join(a.dir, publishedFile), published), a.finishFiles())
}

// finishFiles makes sure that the files which only running programs write are there, and hides folders in them.
func (a *arm) finishFiles() error {
	names := []string{runsFile}
	for _, job := range a.record.Jobs {
		names = append(names, job.Name+eventsSuffix, job.Name+statsSuffix)
	}
	for _, name := range names {
		name = filepath.Join(a.dir, name)
		data, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) && strings.HasSuffix(name, statsSuffix) {
			continue // a killed job has none
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.WriteFile(name, []byte(a.hidden(string(data))), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// countLeft waits a moment for what is ending, then counts what is not. Other jobs of this machine come and go meanwhile.
func (a *arm) countLeft() {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		a.record.LeftProcesses, a.record.LeftSegments = a.processes(), a.segments()
		if a.record.LeftProcesses+a.record.LeftSegments == 0 || time.Now().After(deadline) {
			return
		}
	}
}

// segments counts what Open MPI has made in shared memory since the arm began and no process knows any more. Other jobs on this machine
// may have theirs.
func (a *arm) segments() (left int) {
	entries, err := os.ReadDir("/dev/shm")
	if err != nil {
		return 0 // no shared memory, nothing left in it
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), "vader_segment.") && !strings.HasPrefix(entry.Name(), "mpirun-") {
			continue
		}
		info, err := entry.Info()
		if err == nil && info.ModTime().After(a.start) && !known("/dev/shm/"+entry.Name()) {
			left++
		}
	}
	return left
}

// known tells whether a process has the file mapped or names it on its command line.
func known(path string) bool {
	for _, pattern := range []string{"/proc/[0-9]*/maps", "/proc/[0-9]*/cmdline"} {
		files, _ := filepath.Glob(pattern) // the patterns are well-formed
		for _, file := range files {
			if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), path) {
				return true
			}
		}
	}
	return false
}

// processes counts processes whose command line names this arm's folder.
func (a *arm) processes() int {
	links, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	n := 0
	for _, link := range links {
		if line, err := os.ReadFile(link); err == nil && strings.Contains(string(line), a.work+"/") {
			n++
		}
	}
	return n
}

// measureQueue replays AFL's queue in the order in which its entries came.
func (a *arm) measureQueue(ctx context.Context, inst *afl.Instance) ([]Cover, error) {
	type entry struct {
		time     time.Time
		imported bool
		data     []byte
	}
	var entries []entry
	files, err := os.ReadDir(inst.Queue())
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if !file.Type().IsRegular() {
			continue
		}
		info, err := file.Info()
		if err != nil {
			return nil, err
		}
		data, err := os.ReadFile(filepath.Join(inst.Queue(), file.Name()))
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{info.ModTime(), strings.Contains(file.Name(), ",sync:"), data})
	}
	slices.SortStableFunc(entries, func(x, y entry) int { return x.time.Compare(y.time) })
	inputs := make([][]byte, len(entries))
	for i := range entries {
		inputs[i] = entries[i].data
	}
	maps, err := (&afl.Showmap{Instance: inst, TempDir: a.work}).Batch(ctx, inputs)
	if err != nil {
		return nil, err
	}
	var covered afl.Coverage
	coverage := make([]Cover, len(entries))
	for i, e := range entries {
		covered.Add(maps[i])
		at := math.Round(1000*max(0, e.time.Sub(a.start).Seconds())) / 1000
		coverage[i] = Cover{TimeS: at, Imported: e.imported, Edges: covered.Edges()}
	}
	return coverage, nil
}

// readRecords reads the work lease table of the arm, if it has one.
func (a *arm) readRecords(ctx context.Context) ([]Record, error) {
	if a.name != leased {
		return nil, nil
	}
	table, err := lease.Open(a.table(), nil)
	if err != nil {
		return nil, err
	}
	defer table.Close() // only read
	var list []Record
	for rec, err := range table.Records(ctx) {
		if err != nil {
			return nil, err
		}
		var payload struct {
			SHA256 string `json:"sha256"`
		}
		var manifest struct {
			Children []struct {
				SHA256 string `json:"sha256"`
			} `json:"children"`
		}
		err := json.Unmarshal(rec.Payload, &payload)
		if err == nil && len(rec.Manifest) > 0 {
			err = json.Unmarshal(rec.Manifest, &manifest)
		}
		if err != nil {
			return nil, err
		}
		r := Record{SHA256: payload.SHA256, Status: string(rec.Status), Fence: rec.Token.Fence, Attempts: rec.Attempts, Steals: rec.Steals,
			Owner: a.hidden(rec.Holder.Owner), PreviousOwner: a.hidden(rec.PreviousOwner), Children: []string{}}
		for _, c := range manifest.Children {
			r.Children = append(r.Children, c.SHA256)
		}
		list = append(list, r)
	}
	slices.SortFunc(list, func(x, y Record) int { return cmp.Compare(x.SHA256, y.SHA256) })
	return list, nil
}

func (a *arm) listPublished() ([]Published, error) {
	var list []Published
	for _, peer := range a.jobs {
		sums, err := afl.PublishedBy(vfs.OS, a.sync(), peer)
		if err != nil {
			return nil, err
		}
		for sum, kind := range sums {
			list = append(list, Published{Peer: peer, Kind: string(kind), SHA256: lease.ID(sum).String()})
		}
	}
	slices.SortFunc(list, func(x, y Published) int {
		return cmp.Or(strings.Compare(x.SHA256, y.SHA256), strings.Compare(x.Peer, y.Peer))
	})
	return list, nil
}
