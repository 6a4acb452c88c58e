package sysfault_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"shardlease/internal/sysfault"
	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
	"shardlease/pkg/lease"
)

// The kill sweep: real processes run one operation of the libraries each, and for every k the process is killed before its k-th
// file-system call. Afterwards another process, this one, opens the same root and checks what it finds. A killed process loses
// its locks and its memory; what it wrote is still there (a power cut is the business of crashfs and of the powercut experiment).

const (
	killTTL    = time.Hour
	killShards = 2
	killItems  = 4
)

func killID(i int) lease.ID { return lease.SumID([]byte{byte(i)}) }

var killGroup = []uint64{101, 102, 103, 104}

func openTable(dir string) (*lease.Table, error) {
	return lease.Open(filepath.Join(dir, "work"), &lease.Options{Shards: killShards, TTL: killTTL})
}

func openTargets(dir string) (*lease.TargetTable, error) {
	return lease.OpenTargets(filepath.Join(dir, "targets"), &lease.Options{Shards: killShards, TTL: killTTL})
}

// operation is one thing that a process is killed in.
type operation struct {
	name    string
	prepare func(ctx context.Context, dir string) error // by this process, before
	run     func(ctx context.Context, dir string) error // by the process that is killed
	// check looks at what is left; acknowledged says that run had returned nil.
	check func(ctx context.Context, dir string, acknowledged bool) error
}

// tokens are handed to the process that is killed in a file.
func saveTokens(dir string, held map[string]lease.Token) error {
	b, err := json.Marshal(held)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "tokens"), b, 0o600)
}

func loadTokens(dir string) (map[lease.ID]lease.Token, error) {
	b, err := os.ReadFile(filepath.Join(dir, "tokens"))
	if err != nil {
		return nil, err
	}
	var named map[string]lease.Token
	if err := json.Unmarshal(b, &named); err != nil {
		return nil, err
	}
	held := map[lease.ID]lease.Token{}
	for name, tok := range named {
		id, err := lease.ParseID(name)
		if err != nil {
			return nil, err
		}
		held[id] = tok
	}
	return held, nil
}

func claimAll(ctx context.Context, dir string) error {
	t, err := openTable(dir)
	if err != nil {
		return err
	}
	defer t.Close()
	held := map[string]lease.Token{}
	for i := range killItems {
		tok, err := t.Claim(ctx, killID(i), nil, lease.Holder{Owner: "first"})
		if err != nil {
			return err
		}
		held[killID(i).String()] = tok
	}
	return saveTokens(dir, held)
}

func withTable(f func(ctx context.Context, dir string, t *lease.Table, held map[lease.ID]lease.Token) error) func(context.Context, string) error {
	return func(ctx context.Context, dir string) error {
		t, err := openTable(dir)
		if err != nil {
			return err
		}
		defer t.Close()
		held, err := loadTokens(dir)
		if err != nil {
			return err
		}
		return f(ctx, dir, t, held)
	}
}

func publishResult(dir string) func(context.Context, json.RawMessage) error {
	return func(context.Context, json.RawMessage) error {
		return groupcommit.WriteFile(vfs.OS, filepath.Join(dir, "result"), []byte("result"), 0o600)
	}
}

// statusOneOf checks that the record is whole and in one of the states; acknowledged work must be in the last.
func statusOneOf(dir string, acknowledged bool, states ...lease.Status) error {
	t, err := openTable(dir)
	if err != nil {
		return err
	}
	defer t.Close()
	r, err := t.Lookup(killID(0))
	if errors.Is(err, fs.ErrNotExist) {
		r.Status = ""
	} else if err != nil {
		return err
	}
	for i, s := range states {
		if r.Status == s && (!acknowledged || i == len(states)-1) {
			return nil
		}
	}
	return fmt.Errorf("status %q, acknowledged %v, allowed %q", r.Status, acknowledged, states)
}

var operations = []operation{
	{
		name: "claim",
		run: func(ctx context.Context, dir string) error {
			t, err := openTable(dir)
			if err != nil {
				return err
			}
			defer t.Close()
			_, err = t.Claim(ctx, killID(0), nil, lease.Holder{Owner: "killed"})
			return err
		},
		check: func(ctx context.Context, dir string, acked bool) error {
			if err := statusOneOf(dir, acked, "", lease.Leased); err != nil {
				return err
			}
			t, err := openTable(dir)
			if err != nil {
				return err
			}
			defer t.Close()
			before, err := t.Lookup(killID(0))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			tok, err := t.TakeOver(ctx, killID(0), nil, lease.Holder{Owner: "next"})
			if err == nil && tok.Fence <= before.Token.Fence {
				err = fmt.Errorf("fence %d after %d", tok.Fence, before.Token.Fence)
			}
			return err
		},
	},
	{
		name:    "batch",
		prepare: claimAll,
		run: withTable(func(ctx context.Context, _ string, t *lease.Table, held map[lease.ID]lease.Token) error {
			_, err := t.HeartbeatMany(ctx, held)
			return err
		}),
		check: func(ctx context.Context, dir string, _ bool) error {
			return withTable(func(ctx context.Context, _ string, t *lease.Table, held map[lease.ID]lease.Token) error {
				b, err := t.HeartbeatMany(ctx, held) // the same holder, back again
				if err == nil && len(b.Renewed) != killItems {
					err = fmt.Errorf("renewed %d of %d", len(b.Renewed), killItems)
				}
				return err
			})(ctx, dir)
		},
	},
	{
		name:    "begin-commit",
		prepare: claimAll,
		run: withTable(func(ctx context.Context, _ string, t *lease.Table, held map[lease.ID]lease.Token) error {
			return t.BeginCommit(ctx, killID(0), held[killID(0)], json.RawMessage(`{"result":1}`))
		}),
		check: func(ctx context.Context, dir string, acked bool) error {
			return errors.Join(statusOneOf(dir, acked, lease.Leased, lease.Committing), finish(ctx, dir))
		},
	},
	{
		name: "complete",
		prepare: func(ctx context.Context, dir string) error {
			if err := claimAll(ctx, dir); err != nil {
				return err
			}
			return withTable(func(ctx context.Context, _ string, t *lease.Table, held map[lease.ID]lease.Token) error {
				return t.BeginCommit(ctx, killID(0), held[killID(0)], json.RawMessage(`{"result":1}`))
			})(ctx, dir)
		},
		run: withTable(func(ctx context.Context, dir string, t *lease.Table, held map[lease.ID]lease.Token) error {
			_, err := t.Complete(ctx, killID(0), held[killID(0)], publishResult(dir))
			return err
		}),
		check: func(ctx context.Context, dir string, acked bool) error {
			if err := statusOneOf(dir, acked, lease.Committing, lease.Done); err != nil {
				return err
			}
			if err := statusOneOf(dir, true, lease.Done); err == nil {
				if _, err := os.Stat(filepath.Join(dir, "result")); err != nil {
					return fmt.Errorf("done without its result: %w", err)
				}
			}
			return finish(ctx, dir)
		},
	},
	{
		name:    "abandon",
		prepare: claimAll,
		run: withTable(func(ctx context.Context, _ string, t *lease.Table, held map[lease.ID]lease.Token) error {
			return t.Abandon(ctx, killID(0), held[killID(0)])
		}),
		check: func(_ context.Context, dir string, acked bool) error {
			return statusOneOf(dir, acked, lease.Leased, lease.Abandoned)
		},
	},
	{
		name: "group-claim",
		run: func(ctx context.Context, dir string) error {
			t, err := openTargets(dir)
			if err != nil {
				return err
			}
			defer t.Close()
			_, err = t.ClaimGroup(ctx, killGroup, nil, lease.Holder{Owner: "killed"})
			return err
		},
		check: checkGroup,
	},
	{
		name: "promotion",
		prepare: func(_ context.Context, dir string) error {
			for _, d := range []string{"stage", "public"} {
				if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
					return err
				}
			}
			return groupcommit.WriteFile(vfs.OS, filepath.Join(dir, "stage", "child"), []byte("child"), 0o600)
		},
		run: func(_ context.Context, dir string) error {
			return groupcommit.Replace(vfs.OS, filepath.Join(dir, "stage", "child"), filepath.Join(dir, "public", "child"))
		},
		check: func(_ context.Context, dir string, acked bool) error {
			_, atSource := os.Stat(filepath.Join(dir, "stage", "child"))
			got, atPublic := os.ReadFile(filepath.Join(dir, "public", "child"))
			if (atSource == nil) == (atPublic == nil) || acked && atPublic != nil || atPublic == nil && string(got) != "child" {
				return fmt.Errorf("source %v, public %q %v, acknowledged %v", atSource, got, atPublic, acked)
			}
			return nil
		},
	},
}

// finish redoes the commit of item 0, as whoever finds it would.
func finish(ctx context.Context, dir string) error {
	return withTable(func(ctx context.Context, dir string, t *lease.Table, held map[lease.ID]lease.Token) error {
		id, tok := killID(0), held[killID(0)]
		if err := t.BeginCommit(ctx, id, tok, json.RawMessage(`{"result":1}`)); err != nil && !errors.Is(err, lease.ErrDone) {
			return err
		}
		if _, err := t.Complete(ctx, id, tok, publishResult(dir)); err != nil {
			return err
		}
		return statusOneOf(dir, true, lease.Done)
	})(ctx, dir)
}

// checkGroup wants the whole group held, or all of it free at once.
func checkGroup(ctx context.Context, dir string, acked bool) error {
	t, err := openTargets(dir)
	if err != nil {
		return err
	}
	defer t.Close()
	_, err = t.ClaimGroup(ctx, killGroup, nil, lease.Holder{Owner: "next"})
	switch {
	case err == nil && acked:
		return errors.New("an acknowledged group was given away")
	case err == nil:
		return nil
	case !errors.Is(err, lease.ErrHeld):
		return err
	}
	for _, target := range killGroup {
		if r, err := t.Lookup(target); err != nil || r.Status != lease.Leased {
			return fmt.Errorf("the group is held, but target %d is %q: %w", target, r.Status, err)
		}
	}
	return nil
}

// runOperation is the role of the process that is killed.
func runOperation(dir string) error {
	name, err := os.ReadFile(filepath.Join(dir, "operation"))
	if err != nil {
		return err
	}
	for _, op := range operations {
		if op.name == string(name) {
			return op.run(context.Background(), dir)
		}
	}
	return fmt.Errorf("unknown operation %q", name)
}

func runKilled(t *testing.T, op operation, before uint64) (string, sysfault.Result) {
	t.Helper()
	dir := t.TempDir()
	if op.prepare != nil {
		if err := op.prepare(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "operation"), []byte(op.name), 0o600); err != nil {
		t.Fatal(err)
	}
	job := sysfault.Job{Watch: append(sysfault.DefaultWatch(), "write", "lock")}
	if before > 0 {
		job.Rules = []sysfault.Rule{{Nth: before, Kill: true}}
	}
	return dir, run(t, "kill", dir, job)
}

func TestAProcessKilledBeforeAnyCallLeavesOldOrNewAndNothingInBetween(t *testing.T) {
	for _, op := range operations {
		t.Run(op.name, func(t *testing.T) {
			dir, whole := runKilled(t, op, 0)
			if whole.ExitCode != 0 || whole.Counted < 3 {
				t.Fatalf("unkilled run: exit code %d after %d calls", whole.ExitCode, whole.Counted)
			}
			if err := op.check(t.Context(), dir, true); err != nil {
				t.Fatalf("unkilled run: %v", err)
			}
			for k := uint64(1); k <= whole.Counted; k++ {
				dir, res := runKilled(t, op, k)
				if res.Signal != syscall.SIGKILL {
					t.Fatalf("before call %d of %d: the process was not killed (exit code %d)", k, whole.Counted, res.ExitCode)
				}
				if err := op.check(t.Context(), dir, false); err != nil {
					t.Errorf("killed before call %d of %d: %v", k, whole.Counted, err)
				}
			}
			t.Logf("%d kill points", whole.Counted)
		})
	}
}
