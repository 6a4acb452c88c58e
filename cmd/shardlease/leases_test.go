package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shardlease/internal/campaign"
	"shardlease/pkg/lease"
)

// Only what has ended and is named by no record goes: the holder that lives keeps its files, and so does the record of the one that has ended.
func TestSweepRemovesTheFilesOfEndedHolders(t *testing.T) {
	dir := t.TempDir()
	open := func() *lease.Table {
		table, err := lease.Open(dir, &lease.Options{Shards: 4, Renewals: lease.OneFlush})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = table.Close() }) // again, for some
		return table
	}
	// renew claims an item and renews it, upon which its record names the session.
	renew := func(table *lease.Table, name string) (lease.ID, lease.Token) {
		id := lease.SumID([]byte(name))
		tok, err := table.Claim(t.Context(), id, json.RawMessage(`{}`), lease.Holder{Owner: name})
		if err == nil {
			_, err = table.HeartbeatMany(t.Context(), map[lease.ID]lease.Token{id: tok})
		}
		if err != nil {
			t.Fatal(err)
		}
		return id, tok
	}
	living, ended, tidy := open(), open(), open()
	renew(living, "living")
	renew(ended, "ended")
	id, tok := renew(tidy, "tidy")
	if err := errors.Join(tidy.Abandon(t.Context(), id, tok), tidy.Close(), ended.Close()); err != nil {
		t.Fatal(err)
	}
	strict, err := lease.Open(dir, nil)
	if err == nil {
		_, err = strict.Claim(t.Context(), id, json.RawMessage(`{}`), lease.Holder{Owner: "next"})
	}
	if err = errors.Join(err, strict.Close()); err != nil {
		t.Fatal(err)
	}
	files := func() int {
		names, err := filepath.Glob(filepath.Join(dir, "renewals", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	if n := files(); n != 6 {
		t.Fatalf("%d files of 3 sessions", n)
	}
	stdout, stderr, code := output(t, program(t, "leases", "sweep", dir))
	if code != 0 || stdout != "removed 1\n" || stderr != "" || files() != 4 {
		t.Errorf("code %d, %q, %q, %d files left", code, stdout, stderr, files())
	}
	if stdout, stderr, code = output(t, program(t, "leases", "sweep", "--json", dir)); code != 0 || stdout != `{"removed":0}`+"\n" || files() != 4 {
		t.Errorf("code %d, %q, %q, %d files left", code, stdout, stderr, files())
	}

	records, err := filepath.Glob(filepath.Join(dir, "*", id.String()+".json"))
	if err != nil || len(records) != 1 {
		t.Fatalf("%v, %v", records, err)
	}
	if err := os.WriteFile(records[0], []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code = output(t, program(t, "leases", "sweep", dir)); code != campaign.ExitIncomplete || !strings.Contains(stderr, "corrupt") || strings.Count(stderr, "\n") != 1 || files() != 4 {
		t.Errorf("corrupt record: code %d, %q, %d files left", code, stderr, files())
	}
	if _, stderr, code = output(t, program(t, "leases", "sweep", t.TempDir())); code != campaign.ExitNoInput || !strings.Contains(stderr, "is not a lease table") {
		t.Errorf("no table: code %d, %q", code, stderr)
	}
}
