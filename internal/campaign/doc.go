// Package campaign runs a target program on all inputs of a campaign, with several masters and many workers that share nothing but a directory.
//
// # Parts
//
// A rank is a [Master] or a [Worker] ([ComputeRoles]). Both are actors: state machines that are stepped with the time and an event and return
// what they want done ([Actor], [Actions]). They start no goroutine, wait for nothing, read no clock and draw randomness from [Env] only, so that a
// campaign can be simulated and replayed. [Run] is the loop around one actor on the real clock; it carries messages over a [Transport]:
// [OverMPI], or a [Network] in one process. An [Executor] runs the target; package target has the real one. All files are reached
// through vfs.FS.
//
// A master renews its leases in a [Lane] of its own, which never waits for scans, hashing or shutdown.
//
// # Life of an item
//
// An item is an input; its id is the SHA-256 of its content. Each has one owner among the masters ([WorkOwner]), which publishes the seed or adopts the
// child, claims its lease and sends it to a worker. The worker leaves the outputs in a stage. The master checks the stage, makes the
// manifest durable (BeginCommit), links the outputs into the corpus, marks the record done (Complete) and removes the stage. From BeginCommit on
// the result will be published, by whoever finds the record. A crash at any point leaves an item that is analysed again (leased) or a commit that is redone
// (committing); an item is done at most once in the records, though a target may have run on it more than once.
//
// Work moves between masters only when a lease has expired, or when an epoch is resumed.
//
// # End
//
// The masters agree on the end by a question, answers after another look at the disk, and a commit. Rank 0 then reads from the records
// whether every object has been analysed; only that makes a campaign complete and retires its epoch. A campaign that stops early keeps its epoch, and a
// later run with the same epoch finishes it.
//
// # Differences from the reference
//
//   - Bad environment values are refused rather than replaced or moved into their range: a campaign that silently runs with another TTL than
//     the one its user wrote is worse than one that doesn't start.
//   - Heartbeats have their own timer and go on during the worker shutdown. A master leases no more items than its heartbeats can renew in half of
//     their time limit; the others wait in the corpus.
//   - Publication happens under the record's lock and by links: a rename across directories may lose the object in a power cut.
//   - An object that somebody else has published, in this run or an earlier one, is published anew by whoever is going to rely on it.
//   - A wall timeout with unfinished work is not a success, and neither is quiescence over an object without a done record.
//   - The final statistics come from the records, so those of a resumed epoch cover all its runs.
//   - An item that exceeds the budgets is given up by name instead of costing the campaign its workers.
//   - An epoch has one campaign at a time.
package campaign
