package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"shardlease/internal/child"
)

// bug is a deliberate mistake in the protocol: text of a source file replaced by other text. It is compiled with the go command's -overlay, so
// that no broken line is ever in the tree, and production code has no switch for it.
type bug struct {
	name  string
	edits []edit
	// seeds is within how many seeds from 0 on it has to be found; measured once, then doubled or more, for the protocol's other code may change.
	seeds int
}

type edit struct{ file, old, new string }

const (
	master  = "internal/campaign/master.go"
	work    = "internal/campaign/master_work.go"
	result  = "internal/campaign/master_result.go"
	quiet   = "internal/campaign/master_quiet.go"
	end     = "internal/campaign/master_end.go"
	begin   = "internal/campaign/master_start.go"
	corpus  = "internal/campaign/corpus.go"
	stage   = "internal/campaign/stage.go"
	machine = "pkg/lease/state.go"
	table   = "pkg/lease/table.go"
)

var bugs = []bug{
	{"no token check at commit", []edit{{machine, "{Leased, OpBeginCommit, IfHeldNow, Committing}", "{Leased, OpBeginCommit, Always, Committing}"}}, 200},
	{"heartbeats stop when the shutdown begins", []edit{{master, "	m.phase = stopping\n", "	m.phase = stopping\n	m.held.Clear()\n"}}, 600},
	{"begun commits are not redone", []edit{
		{work, "	for _, rec := range records {\n		tasks = append(tasks, func(ctx context.Context) error { return m.redo(ctx, rec) })", "	for range records[:0] {\n		tasks = append(tasks, m.scanInputs)"},
		{work, "age >= m.opts.LeaseTTL || age <= -m.opts.LeaseTTL", "age > 1000000*m.opts.LeaseTTL"}}, 200},
	{"the end is agreed on over work in progress", []edit{
		{quiet, "		if w.active != nil {\n			return false\n		}\n", "		_ = w\n"},
		{quiet, "return counts.Leased == 0 && counts.Committing == 0, nil", "return true, nil"}}, 200},
	{"the end is agreed on without a look at the records", []edit{{quiet, "return counts.Leased == 0 && counts.Committing == 0, nil", "return true, nil"}}, 400},
	{"the end is agreed on without another look", []edit{{quiet, "idle := m.started && m.look(ctx)", "idle := m.started"}}, 200},
	{"a stale READY frees a busy worker", []edit{{work, "!w.available || w.active != nil || w.quarantined {\n			continue\n		}\n", "!w.available || w.quarantined {\n			continue\n		}\n		w.active = nil\n"}}, 200},
	{"results are published before the commit has begun", []edit{{result, "	err := m.table.BeginCommit(", "	published := 0\n	_ = m.stages.publisher(m.corpus, m.opts.ResultMaxObjects, &published)(ctx, raw)\n	err := m.table.BeginCommit("}}, 50},
	{"published names get no barrier", []edit{{corpus, "if err := groupcommit.SyncDir(c.fs, c.dir); err != nil {", "if err := error(nil); err != nil {"}}, 50},
	{"the stage is not durable before the commit", []edit{{stage, "	_, err := batch.Flush()\n", "	var err error\n"}}, 1500},
	{"the epoch is retired over unfinished work", []edit{{end, "	case final.Unfinished > 0 || undiscovered:", "	case false:"}}, 50},
	{"every master takes all leases of the earlier run", []edit{{begin, "rec.Status == lease.Leased && WorkOwner(rec.ID, m.roles.Masters) == m.rank", "rec.Status == lease.Leased"}}, 50},
	{"a begun commit is taken over at the resume", []edit{
		{machine, "	{Leased, OpBeginCommit,", "	{Committing, OpTakeOver, Always, Leased},\n	{Leased, OpBeginCommit,"},
		{begin, "m.redoAll, m.takeOverAll)", "m.takeOverAll, m.redoAll)"},
		{begin, "rec.Status == lease.Leased &&", "rec.Status != lease.Done &&"}}, 200},
	{"a done item can be claimed", []edit{{machine, "	{Leased, OpBeginCommit,", "	{Done, OpClaim, Always, Leased},\n	{Leased, OpBeginCommit,"}}, 20},
	{"fences start again", []edit{{table, "			fence = r.Token.Fence\n", "			fence = 0\n"}}, 20},
	{"what others published is taken for durable", []edit{{corpus, "		if !c.named[id] {\n", "		if false {\n"}}, 800},
	{"published children are not looked for", []edit{{work, "	return errors.Join(m.redoOld(ctx), m.scanCorpus(), m.recoverExpired(ctx))", "	return errors.Join(m.redoOld(ctx), m.recoverExpired(ctx))"}}, 20},
}

// Plant is what became of one planted bug.
type Plant struct {
	Bug       string `json:"bug"`
	Seeds     int    `json:"seeds"` // within which it has to be found
	Found     int    `json:"found"` // after how many; 0: not at all
	Violation string `json:"violation"`
}

// plant builds the campaigns program with the bug into dir and runs it until the bug is found.
func (b bug) plant(ctx context.Context, root, dir string) (Plant, error) {
	p := Plant{Bug: b.name, Seeds: b.seeds}
	overlay, err := b.overlay(root, dir)
	if err != nil {
		return p, err
	}
	program := filepath.Join(dir, "campaigns")
	build := []string{"build", "-trimpath", "-buildvcs=false", "-overlay", overlay, "-o", program, "./experiments/sim/campaigns"}
	if err := child.Run(ctx, child.Cmd{Name: "go", Args: build, Dir: root}); err != nil {
		return p, fmt.Errorf("%s: %w", b.name, err)
	}
	var out bytes.Buffer
	run := child.Cmd{Name: program, Args: []string{"-seed=0", fmt.Sprintf("-seeds=%d", b.seeds), "-until-violation"}, Dir: dir, Stdout: &out}
	if err := child.Run(ctx, run); err != nil {
		return p, fmt.Errorf("%s: %w", b.name, err)
	}
	results, err := decode(&out)
	if err != nil {
		return p, fmt.Errorf("%s: %w", b.name, err)
	}
	if last := results[len(results)-1]; last.Violation != "" {
		p.Found, p.Violation = len(results), last.Violation
	}
	return p, nil
}

// overlay writes the broken files and the list of what they stand in for, and returns the list's name.
func (b bug) overlay(root, dir string) (string, error) {
	replace := map[string]string{}
	texts := map[string]string{}
	for i, e := range b.edits {
		name := filepath.Join(root, e.file)
		text, ok := texts[name]
		if !ok {
			data, err := os.ReadFile(name)
			if err != nil {
				return "", err
			}
			text = string(data)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return "", fmt.Errorf("%s: edit %d: the text to replace occurs %d times in %s; follow the code's change in planted.go", b.name, i+1, n, e.file)
		}
		texts[name] = strings.Replace(text, e.old, e.new, 1)
		replace[name] = filepath.Join(dir, strings.ReplaceAll(e.file, "/", "-"))
	}
	for name, text := range texts {
		if err := os.WriteFile(replace[name], []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, data, 0o644)
}
