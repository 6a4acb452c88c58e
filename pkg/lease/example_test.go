package lease_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"shardlease/pkg/lease"
)

// One worker's way through one item: claim, renew, commit, publish.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	table, err := lease.Open(filepath.Join(dir, "work"), &lease.Options{TTL: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer table.Close()
	ctx := context.Background()
	item := lease.SumID([]byte("the item's content"))

	tok, err := table.Claim(ctx, item, json.RawMessage(`{"seed":1}`), lease.Holder{Owner: "worker 1"})
	if err != nil {
		log.Fatal(err) // ErrHeld, ErrCommitting and ErrDone: choose another item
	}
	_, err = table.Claim(ctx, item, nil, lease.Holder{Owner: "worker 2"})
	fmt.Println("second claim:", errors.Is(err, lease.ErrHeld))

	// At a third of the TTL, for as long as the work takes. All leases of a process go into one call.
	batch, err := table.HeartbeatMany(ctx, map[lease.ID]lease.Token{item: tok})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("renewed:", len(batch.Renewed), "barriers:", batch.DirectorySyncs)

	if err := table.BeginCommit(ctx, item, tok, json.RawMessage(`{"result":42}`)); err != nil {
		log.Fatal(err) // ErrLost: somebody else has the item; throw the result away
	}
	first, err := table.Complete(ctx, item, tok, func(_ context.Context, manifest json.RawMessage) error {
		fmt.Println("publish", string(manifest)) // may happen again after a crash, with the same manifest
		return nil
	})
	fmt.Println("completed:", first, err)
	// Output:
	// second claim: true
	// renewed: 1 barriers: 1
	// publish {"result":42}
	// completed: true <nil>
}

// After an error the batch says which leases are safe all the same.
func ExampleBatchError() {
	err := error(&lease.BatchError{
		Durable: []lease.ID{lease.SumID([]byte("good"))},
		Failed:  map[lease.ID]error{lease.SumID([]byte("bad")): lease.ErrLocked},
	})
	var batch *lease.BatchError
	if errors.As(err, &batch) {
		fmt.Println(len(batch.Durable), "renewed,", len(batch.Failed), "to try again")
	}
	fmt.Println(errors.Is(err, lease.ErrLocked), errors.Is(err, os.ErrDeadlineExceeded))
	// Output:
	// 1 renewed, 1 to try again
	// true true
}

// A group of branch targets is leased as a whole or not at all.
func ExampleTargetTable() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	targets, err := lease.OpenTargets(filepath.Join(dir, "targets"), nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	tok, err := targets.ClaimGroup(ctx, []uint64{101, 102}, nil, lease.Holder{Owner: "solver 1"})
	if err != nil {
		log.Fatal(err)
	}
	_, err = targets.ClaimGroup(ctx, []uint64{102, 103}, nil, lease.Holder{Owner: "solver 2"})
	fmt.Println("overlapping claim:", errors.Is(err, lease.ErrHeld))
	fmt.Println("released:", targets.ReleaseGroup(ctx, []uint64{101, 102}, tok))
	tok, err = targets.ClaimGroup(ctx, []uint64{102, 103}, nil, lease.Holder{Owner: "solver 2"})
	fmt.Println("fence", tok.Fence, err)
	// Output:
	// overlapping claim: true
	// released: <nil>
	// fence 2 <nil>
}
