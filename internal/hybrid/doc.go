// Package hybrid runs a solver program beside a running AFL++ instance, on the lease tables and the transport of the standalone campaign.
//
// # What it does
//
// Rank 0 coordinates; all other ranks are workers. The coordinator attaches to the instance through its own files (package afl), measures the inputs
// that are there, and then, until it is stopped: looks for new inputs in AFL's queue and in its own, gives each free worker the most
// promising one, and publishes those outputs that cover something new in <out>/<name>/queue, from where AFL++ imports them like from any
// other instance. Outputs on which the target crashes or hangs go to <out>/<name>/crashes and hangs.
//
// A worker runs the solver program once on its input, measures the outputs with afl-showmap, drops what the coordinator's coverage has
// already (each dispatch brings the difference to the worker's copy), and stages the rest durably.
//
// # The solver program
//
// Any program that follows the contract of package campaign/target, in particular one compiled with SymCC, unchanged. It gets the
// input on standard input, or, where one of its arguments contains @@, as a file that SYMCC_INPUT_FILE names too; it writes new test cases as
// files into SYMCC_OUTPUT_DIR; its exit status and what it prints change nothing; after the timeout it is ended. To use SymCC, build the target
// twice, with afl-cc for AFL++ and with symcc for the solver:
//
//	afl-cc -o target.afl target.c          afl-fuzz -M main -i seeds -o sync -- ./target.afl
//	symcc  -o target.sym target.c          mpirun -n 4 shardlease hybrid -a main -o sync -n symcc -- ./target.sym
//
// With "-- ./target.sym @@" SymCC reads the file; without "@@" standard input. SYMCC_ENABLE_LINEARIZATION is set, which keeps SymCC from
// solving the same branch again within a run. SymCC's QSYM backend is the one that writes files.
//
// # Ownership
//
// With SYMCC_MULTI_MASTER_LEASES=1 each input is claimed in a lease table before it is dispatched, so that several coordinators, in jobs of their
// own, share the work on one queue: none is done twice, and what a dead coordinator had is taken over when its lease expires. Point
// them at one root with SYMCC_MULTI_MASTER_LEASE_DIR (and _TARGET_LEASE_DIR), and give each a name of its own, for each is an AFL peer
// of its own. The root pins the shard count: a coordinator with another SYMCC_MULTI_MASTER_LEASE_SHARDS is refused. The item is the content, not the file
// name; so one root is for one solver program.
//
// Besides, the branches that an input is aimed at (those that it was the first to cover, 64 at most) are leased as a group, so that two
// coordinators do not solve for the same new branch from two inputs at one time. That is an optimisation; results are protected by the
// work lease.
//
// A commit carries a manifest. A crash before it leaves a lease that expires; a crash after it leaves a begun commit, which this or
// any other coordinator finishes, without measuring anything again.
//
// # What it does not promise
//
// An input is not analysed twice by coordinators that keep their leases; one that stops for longer than its TTL loses them, and
// its results are refused. AFL++ decides by itself what it imports and when: every few inputs, and at least once in AFL_SYNC_TIME
// minutes.
//
// # Differences from the reference
//
//   - There is no private journal of leases (SYMCC_WORK_LEASES) beside the shared table: a record with its manifest is what a coordinator or
//     its successor needs. Without lease tables a restarted coordinator runs its inputs again, and publishes nothing twice.
//   - There is no --afl-sync-dir: inputs are the queue of the instance and the coordinator's own. What other peers find comes through the instance,
//     which imports it.
package hybrid
