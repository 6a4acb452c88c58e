package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/groupcommit/vfs/crashfs"
	"shardlease/pkg/groupcommit/vfs/faultfs"
	"shardlease/pkg/lease"
)

func disk(t testing.TB, dirs ...string) *crashfs.FS {
	t.Helper()
	fsys := crashfs.New()
	for _, dir := range dirs {
		if err := groupcommit.MkdirAll(fsys, dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return fsys
}

func put(t testing.TB, fsys vfs.FS, name, content string) {
	t.Helper()
	if err := groupcommit.WriteFile(fsys, name, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
}

func TestTheCorpusRefusesWrongContentAndNeverRepairsIt(t *testing.T) {
	fsys := disk(t, "/out")
	c := NewCorpus(fsys, "/out", 100, "w")
	data := []byte("content")
	item := lease.SumID(data)
	put(t, fsys, c.Path(item), "something else")
	if err := c.Add(item, data); !errors.Is(err, ErrDigest) {
		t.Errorf("%v", err)
	}
	if _, err := c.Promote("/out/nothing", item); !errors.Is(err, ErrDigest) {
		t.Errorf("%v", err)
	}
	if got, err := vfs.ReadFile(fsys, c.Path(item), 100); err != nil || string(got) != "something else" {
		t.Errorf("%q, %v", got, err)
	}
	if err := c.Add(lease.SumID(make([]byte, 101)), make([]byte, 101)); err != nil {
		t.Fatal(err)
	}
	if err := c.Verify(lease.SumID(make([]byte, 101))); !errors.Is(err, vfs.ErrTooLarge) {
		t.Errorf("%v", err)
	}
}

func TestTheCorpusListsOnlyObjectsAndNoErrorLooksEmpty(t *testing.T) {
	fsys := disk(t, "/out", "/out/.standalone-work-x")
	c := NewCorpus(fsys, "/out", 100, "w")
	item := lease.SumID([]byte("a"))
	if err := c.Add(item, []byte("a")); err != nil {
		t.Fatal(err)
	}
	put(t, fsys, "/out/README", "x")
	put(t, fsys, "/out/"+strings.Repeat("g", 64), "x")
	if ids, err := c.List(); err != nil || !slices.Equal(ids, []lease.ID{item}) {
		t.Errorf("%v, %v", ids, err)
	}
	faulty := faultfs.New(fsys)
	faulty.Inject(faultfs.Rule{Op: vfs.OpReadDir, Err: syscall.EIO, Sticky: true})
	if _, err := NewCorpus(faulty, "/out", 100, "w").List(); !errors.Is(err, syscall.EIO) {
		t.Errorf("corpus: %v", err)
	}
	if _, err := NewInputs(faulty, "/out").New(); !errors.Is(err, syscall.EIO) {
		t.Errorf("inputs: %v", err)
	}
}

func TestInputsAreListedOnceAndAgainWhenTheyChange(t *testing.T) {
	fsys := disk(t, "/in", "/in/sub")
	put(t, fsys, "/in/a", "1")
	in := NewInputs(fsys, "/in")
	list := func() string {
		names, err := in.New()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(names, " ")
	}
	if got := list(); got != "/in/a" {
		t.Errorf("first: %q", got)
	}
	put(t, fsys, "/in/b", "2")
	if got := list(); got != "/in/b" {
		t.Errorf("second: %q", got)
	}
	put(t, fsys, "/in/a", "11")
	if got := list(); got != "/in/a" {
		t.Errorf("third: %q", got)
	}
}

func TestAStageIsAcceptedOnlyIfItIsExactlyWhatWasDeclared(t *testing.T) {
	for name, spoil := range map[string]func(fsys vfs.FS, dir string, hashes []string) []string{
		"":              func(_ vfs.FS, _ string, h []string) []string { return h },
		"one more":      func(f vfs.FS, dir string, h []string) []string { put(t, f, dir+"/extra", "x"); return h },
		"one less":      func(f vfs.FS, dir string, h []string) []string { _ = f.Remove(dir + "/" + h[0]); return h },
		"not declared":  func(_ vfs.FS, _ string, h []string) []string { return h[1:] },
		"wrong content": func(f vfs.FS, dir string, h []string) []string { put(t, f, dir+"/"+h[1], "x"); return h },
		"a directory": func(f vfs.FS, dir string, h []string) []string {
			_ = f.Remove(dir + "/" + h[0])
			_ = f.Mkdir(dir+"/"+h[0], 0o777)
			return h
		},
		"no stage": func(f vfs.FS, dir string, h []string) []string { _ = groupcommit.RemoveAll(f, dir); return h },
	} {
		fsys := disk(t, "/e/staging")
		s := NewStages(fsys, "/e/staging", 100)
		hashes, err := s.Write(3, stage, []Output{{"x", []byte("one")}, {"y", []byte("two")}, {"z", []byte("one")}})
		if err != nil || len(hashes) != 2 {
			t.Fatalf("%v, %v", hashes, err)
		}
		err = s.Check(3, stage, spoil(fsys, "/e/staging/3/"+stage, hashes))
		if (err == nil) != (name == "") {
			t.Errorf("%q: %v", name, err)
		}
	}
	s := NewStages(disk(t, "/e"), "/e/staging", 100)
	if _, err := s.Write(3, stage, []Output{{"x", []byte("one")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write(3, stage, []Output{{"x", []byte("one")}}); err == nil {
		t.Error("a stage that exists is used again")
	}
	if err := errors.Join(s.Remove(3, stage), s.Remove(3, stage), s.Remove(3, "")); err != nil {
		t.Error(err)
	}
}

// A result whose stage could not be made durable must not be reported as one (FS-2).
func TestEveryInjectedErrorOfTheStageSurfaces(t *testing.T) {
	for _, op := range []vfs.Op{vfs.OpOpen, vfs.OpWrite, vfs.OpSync, vfs.OpRename, vfs.OpMkdir, vfs.OpSyncDir} {
		faulty := faultfs.New(disk(t, "/e"))
		faulty.Inject(faultfs.Rule{Op: op, Err: syscall.EIO, Sticky: true})
		if _, err := NewStages(faulty, "/e/staging", 100).Write(3, stage, []Output{{"x", []byte("one")}}); !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v", op, err)
		}
		if faulty.Injected() == 0 {
			t.Errorf("%s: nothing was injected", op)
		}
	}
}

// Publishing is idempotent from every half-way state (F320, F321): any subset of the children may be public already, and the stage may be gone then.
func TestPublishingCanBeRepeatedFromAnyHalfWayState(t *testing.T) {
	outputs := []Output{{"a", []byte("one")}, {"b", []byte("two")}, {"c", []byte("three")}}
	for done := range 8 {
		for _, gone := range []bool{false, true} {
			fsys := disk(t, "/out", "/e")
			corpus, stages := NewCorpus(fsys, "/out", 100, "w"), NewStages(fsys, "/e/staging", 100)
			hashes, err := stages.Write(3, stage, outputs)
			if err != nil {
				t.Fatal(err)
			}
			want := 3
			for i, o := range outputs {
				if done>>i&1 == 1 {
					put(t, fsys, corpus.Path(lease.SumID(o.Data)), string(o.Data))
					want--
					if gone {
						_ = fsys.Remove("/e/staging/3/" + stage + "/" + lease.SumID(o.Data).String())
					}
				}
			}
			added := 0
			raw := json.RawMessage(mustMarshal(manifest{Schema: manifestSchema, WorkerGlobalRank: 3, StagingID: stage, Hashes: hashes, NumGenerated: 3}))
			if err := stages.publisher(corpus, 10, &added)(context.Background(), raw); err != nil || added != want {
				t.Errorf("state %d, %t: %d added, %v", done, gone, added, err)
			}
			again := 0
			if err := stages.publisher(NewCorpus(fsys, "/out", 100, "w"), 10, &again)(context.Background(), raw); err != nil || again != 0 {
				t.Errorf("state %d, %t again: %d added, %v", done, gone, again, err)
			}
			durable := fsys.Crash(crashfs.Strict, uint64(done))
			for _, o := range outputs {
				if err := NewCorpus(durable, "/out", 100, "w").Verify(lease.SumID(o.Data)); err != nil {
					t.Errorf("state %d, %t: not durable: %v", done, gone, err)
				}
			}
		}
	}
}

func TestPublishingFailsIfAnObjectIsNowhere(t *testing.T) {
	fsys := disk(t, "/out", "/e/staging")
	raw := json.RawMessage(mustMarshal(manifest{Schema: manifestSchema, StagingID: stage, Hashes: []string{hashA}, NumGenerated: 1}))
	added := 0
	err := NewStages(fsys, "/e/staging", 100).publisher(NewCorpus(fsys, "/out", 100, "w"), 10, &added)(context.Background(), raw)
	if !errors.Is(err, fs.ErrNotExist) || added != 0 {
		t.Errorf("%d, %v", added, err)
	}
}

func TestAnEpochIsCreatedOnceReopenedAndRetired(t *testing.T) {
	fsys := disk(t, "/out")
	e, err := OpenEpoch(fsys, "/out", hashA, 4, true)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"epoch":"` + hashA + `","schema":"symcc-standalone-work-state-v1","shard_count":4}` + "\n"
	if data, err := vfs.ReadFile(fsys, e.statePath(), 1000); err != nil || string(data) != want {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := OpenEpoch(fsys, "/out", hashA, 4, true); !errors.Is(err, ErrEpoch) {
		t.Errorf("second campaign: %v", err)
	}
	if _, err := OpenEpoch(fsys, "/out", hashA, 4, false); err != nil {
		t.Errorf("second master: %v", err)
	}
	if _, err := OpenEpoch(fsys, "/out", hashA, 5, false); !errors.Is(err, ErrEpoch) || !strings.Contains(err.Error(), "SHARDS=4") {
		t.Errorf("other shards: %v", err)
	}
	if err := e.Retire(stage); err != nil {
		t.Fatal(err)
	}
	if entries, err := fsys.ReadDir("/out"); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
	put(t, fsys, "/out/damaged", "x")
	if e, err = OpenEpoch(fsys, "/out", hashB, 4, true); err != nil {
		t.Fatal(err)
	}
	put(t, fsys, e.statePath(), "{")
	if _, err := OpenEpoch(fsys, "/out", hashB, 4, false); !errors.Is(err, ErrEpoch) || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("damaged: %v", err)
	}
}

// F323: the link of state.json is visible, but its barrier failed; doing it again must not take it for durable unsynced.
func TestStateIsDurableAfterAFailedBarrierAndARetry(t *testing.T) {
	fsys := disk(t, "/out", "/out/"+epochPrefix+hashA+"/staging")
	faulty := faultfs.New(fsys)
	faulty.Inject(faultfs.Rule{Op: vfs.OpSyncDir, Base: epochPrefix + hashA, Err: syscall.EIO, Sticky: true})
	if _, err := OpenEpoch(faulty, "/out", hashA, 4, true); !errors.Is(err, syscall.EIO) {
		t.Fatalf("%v", err)
	}
	faulty.Clear()
	e, err := OpenEpoch(faulty, "/out", hashA, 4, true)
	if err != nil {
		t.Fatal(err)
	}
	after := fsys.Crash(crashfs.Strict, 1)
	if _, err := after.Lstat(e.statePath()); err != nil {
		t.Error(err)
	}
}

// F335, F336: whatever the retirement was killed at, the epoch is there as a whole or under a retired name, which the next campaign removes.
func TestARetirementThatWasKilledIsFinishedByTheNextCampaign(t *testing.T) {
	for k := 1; k < 40; k++ {
		fsys := disk(t, "/out")
		e, err := OpenEpoch(fsys, "/out", hashA, 4, true)
		if err != nil {
			t.Fatal(err)
		}
		put(t, fsys, e.Staging()+"/x", "x")
		faulty := faultfs.New(fsys)
		faulty.Inject(faultfs.Rule{Nth: k, Err: syscall.EIO, Sticky: true})
		e.fs = faulty
		err = e.Retire(stage)
		after := fsys.Crash(crashfs.Journal, uint64(k))
		_, active := after.Lstat(e.Dir())
		if active == nil {
			if _, err := OpenEpoch(after, "/out", hashA, 4, true); err != nil {
				t.Errorf("kill at %d: %v", k, err)
			}
			continue
		}
		if err := CollectRetired(after, "/out"); err != nil {
			t.Fatal(err)
		}
		if entries, err := after.ReadDir("/out"); err != nil || len(entries) > 0 {
			t.Errorf("kill at %d: %v, %v", k, entries, err)
		}
		if err == nil {
			return
		}
	}
	t.Error("the retirement never succeeded")
}

func TestTheProbeFindsWhatIsMissing(t *testing.T) {
	now := func() time.Time { return time.Unix(0, 0) }
	if checks := Probe(disk(t, "/d"), "/d/probe", now); Unsuitable(checks) != nil || len(checks) != 10 {
		t.Fatalf("%+v", checks)
	}
	for _, c := range []struct {
		op   vfs.Op
		name string
	}{
		{vfs.OpSync, "write and sync file"}, {vfs.OpSyncDir, "sync directory"}, {vfs.OpRename, "replace by rename"},
		{vfs.OpRenameNoReplace, "rename without replacing"}, {vfs.OpLink, "hard link"}, {vfs.OpLock, "exclusive lock"},
	} {
		faulty := faultfs.New(disk(t, "/d"))
		faulty.Inject(faultfs.Rule{Op: c.op, Err: syscall.EOPNOTSUPP, Sticky: true})
		if err := Unsuitable(Probe(faulty, "/d/probe", now)); !errors.Is(err, ErrUnsuitable) || !strings.Contains(fmt.Sprint(err), c.name) {
			t.Errorf("%s: %v", c.op, err)
		}
	}
	readOnly := faultfs.New(disk(t, "/d"))
	readOnly.Inject(faultfs.Rule{Op: vfs.OpMkdir, Err: syscall.EROFS, Sticky: true})
	if checks := Probe(readOnly, "/d/probe", now); len(checks) != 1 || !errors.Is(Unsuitable(checks), syscall.EROFS) {
		t.Errorf("one cause, %d findings: %+v", len(checks), checks)
	}
	faulty := faultfs.New(disk(t, "/d"))
	faulty.Inject(faultfs.Rule{Op: vfs.OpExchange, Err: errors.ErrUnsupported, Sticky: true})
	if err := Unsuitable(Probe(faulty, "/d/probe", now)); err != nil {
		t.Errorf("exchange is not required: %v", err)
	}
}
