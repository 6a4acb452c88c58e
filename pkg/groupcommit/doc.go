// Package groupcommit makes many small files durable with one directory barrier per touched directory.
//
// # What it does not promise
//
// A batch is not a transaction: other processes see its names change one by one, and a power cut before Flush returns
// leaves any subset of them changed. Nothing is rolled back. A batch starts no timer and waits for no company. It does not
// lock: who may write which name is the caller's business. It does not defend against somebody who swaps directories
// for symbolic links while it works. Parents are compared as cleaned text, so one directory under two spellings counts
// as two: Replace then refuses and Flush runs one barrier more than needed, both safe.
//
// # Contract
//
// When Flush returns nil, every name this batch renamed or removed survives a power cut, and each renamed name holds
// the whole content that was synced before it. The same goes for each primitive ([MkdirAll], [Replace],
// [RenameNoReplace], [Link], [Remove], [RemoveAll], [WriteFile]) when it returns nil.
//
// There are three outcomes, not two. An error that matches [ErrUnknown] means that the change happened, or may have,
// and that nobody can say whether it survives; every other error means that the name is as it was. Unknown is never
// turned into success: not by trying the barrier again (the kernel reports a write-back error once and then forgets
// it, fsync(2)), and not by somebody else's later barrier on the same directory. Read the names again and write anew.
//
// # Assumptions about the disk
//
//   - A1. rename(2), and renameat2(2) with RENAME_EXCHANGE, switch a name atomically, also across a power cut.
//   - A2. fsync(2) of a file that returns nil has made its content durable, drive caches included.
//   - A3. fsync(2) of a directory that returns nil has made every name changed in it before the call started durable.
//     That covers changes made by other processes too. It does not hold on btrfs with Linux 6.18, where the barrier is
//     syncfs(2) therefore; see vfs.OS.
//     After a barrier that failed there is no other that succeeds and lacks what the failed one has lost: who changed names
//     in a directory and has not had its barrier is told as well. File systems with a journal stop at the first such failure.
//   - A4. A failed write-back is reported to at least one fsync of a descriptor that was open when it happened.
//   - A5. A directory that is there already is durable. Who creates it must have finished [MkdirAll] before others
//     publish in it. Whoever may find a directory that a killed creator left syncs its parent once, at start.
//   - A6. Where a file system can't sync directories, it says so ([ErrNotDurable]) rather than pretending.
//   - A7. syncfs(2) does for each file of a file system what A2 and A4 say of fsync. Linux does since 5.8, but not for
//     every file system; see vfs.File.SyncFS.
//
// # Strategies and spares
//
// A Writer makes batches whose contents become durable by a Strategy. Strategies with spares keep each record's previous
// file under its temp name, pad every content with white space to a fixed size, and overwrite that file for the next
// update. It is overwritten only by the process that retired it and has seen a barrier succeed after that; everybody else, and
// the same process after any failure, replaces it by a new file as if it were garbage. So processes with different strategies may
// share a directory, a record may be unlocked before its barrier, and a reader that holds no lock must be able to tell a content that is being
// overwritten, by a checksum in it, and open the name again.
//
// # Invariants
//
// Numbered as in section 6 of the report; tests cite the numbers. G7 and G9 are kept by the users of this package.
//
//   - G1. The content of a record is durable before its name is switched to it.
//   - G2. Each name is switched atomically and on its own.
//   - G3. Success covers every directory in which the batch changed a name.
//   - G4. One barrier per directory, however many names changed in it.
//   - G5. A failure of one update keeps no barrier from the updates before it, nor from those after it.
//   - G6. A failed barrier is never a success, not even a partial one: its directory is reported apart.
//   - G7. A stale token causes neither a write nor a barrier.
//   - G8. A rename between directories never enters a batch: it is refused before anything is done.
//   - G9. A group of targets keeps one token and one expiry.
package groupcommit
