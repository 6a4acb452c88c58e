// Package lease hands out work items among processes that share nothing but a directory: a lease per item, fencing tokens that never
// restart, and durable renewals at one directory barrier per shard and batch.
//
// # What it does not promise
//
// It does not keep two workers from computing the same item: a holder that is slow, asleep or cut off loses its lease by the clock while
// it still computes. It promises that only one of them commits. It does not detect holders that are alive but make no progress. It is no
// transaction over several items: other processes see a batch's renewals one by one. It does not publish results itself: Complete calls
// the holder, who must be able to publish the same thing twice. It does not defend against processes that write into the root without it.
//
// # What it promises
//
// Whatever a call has acknowledged with a nil error survives a power cut, under the assumptions of package groupcommit and those below. Of all
// tokens ever issued for an item at most one can begin its commit, and only with that token and its one manifest can it be completed. Fences of one ID
// rise strictly with each claim, also across abandon, crash and take-over; records are never deleted, since that would restart them. A
// failure is never reported as the loss of a lease, nor as success; "visible, but perhaps not durable" is an outcome of its own
// (groupcommit.ErrUnknown). Invariants G1 to G9, which tests cite, are numbered in package groupcommit after the report's section 6.
//
// # States
//
//	                      heartbeat (same token, not lapsed)
//	                           +--+
//	                           |  v
//	(none) ----- claim ----> leased --- begin commit ---> committing --- complete ---> done
//	                          | ^ ^     (same token,       (never taken over)        (for ever)
//	                          | | |      not lapsed)
//	                          | | +-- claim by another, if lapsed: fence + 1, attempts + 1
//	                   abandon| |
//	                          v | claim, at once: fence + 1, attempts + 1
//	                        abandoned (keeps its fence)
//
// Transitions is the complete table, and the code obeys it. TakeOver is a claim that does not wait for the lapse. Whoever finds a committing record
// may redo its commit: it carries token and manifest.
//
// # The clock rule
//
// The wall clock is read under the record's lock, after the record. A lease is alive in [updated, updated+ttl), by the ttl in the record;
// at updated+ttl it has lapsed, and so has one that was updated further in the future than Options.MaxSkew. A lapsed lease is dead for everybody
// alike: others may claim it, and its holder can neither renew it nor begin a commit, even if nobody has taken it. The fence alone
// would make later renewals safe; but then an answer would depend on whether somebody happened to look, and a holder that slept for
// hours could go on with work that was already handed to others in their plans. It claims again and gets a new token. A record that
// is being committed does not lapse. A renewal never shortens a lease and never moves updated back. A claim or renewal whose own I/O outlasts the TTL
// is reported as lost. A holder should count its time from before the call.
//
// A clock that steps back by more than MaxSkew makes all live leases lapse, and one that steps forward by more than the TTL too: that costs
// duplicate work, never a second commit.
//
// # The lock rule
//
// Each read-decide-write of a record happens under an exclusive lock of that record: a byte of <root>/locks/<shard>.lock, at the offset
// of a 63-bit hash of the whole ID. The kernel frees it when its holder dies, so no lock is ever broken by age; lock files are never deleted
// and are as many as there are shards. Waiting is bounded, with random pauses. A group's locks are taken in the order of the IDs. HeartbeatMany
// holds as many locks as its content strategy writes at once, takes those without waiting, and comes back for busy ones holding no other.
// Locks lie outside of the directories that barriers cover: they are volatile, and stay so.
//
// # On disk
//
//	<root>/layout.json         format, kind (work or targets), shard count; linked into place once, compared at each Open
//	<root>/locks/<shard>.lock  empty
//	<root>/<shard>/<id>.json   one record; <id>.json.tmp while it is written, or left by a killed writer until the next write of that record,
//	                           or kept as the record's spare by Options.Strategy
//
// Directories are zero-padded decimals; the shard of an ID is its first 4 bytes, big endian, modulo the shard count. All directories are made
// and synced before the layout file is linked. Files get mode 0666 and directories 0777 less the umask, which is the place to
// decide who shares a root.
//
// A record is one JSON object whose last member is a CRC-32C of all before it. The decoder is strict: unknown formats, duplicate or missing
// members, wrong types, numbers that are not plain integers in range, a foreign ID, or anything but white space after the object's newline (strategies with spares pad records) make the record corrupt (ErrCorrupt): it
// is listed, and never overwritten. A reader without the lock may meet a spare that is being overwritten; it looks again before it calls a record corrupt. Members it does not know are kept through every rewrite.
//
// # Assumptions
//
//   - The file system honours open file description locks between all processes on the root; if it does not, two holders may each
//     believe in their lease, one of which finds its token gone at its next operation.
//   - The clocks of the machines agree within MaxSkew, and within what the TTL leaves after the renewal period.
//   - A1 to A6 of package groupcommit.
package lease
