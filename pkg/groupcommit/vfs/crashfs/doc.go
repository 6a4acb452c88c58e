// Package crashfs is an in-memory vfs.FS that knows what is on stable storage, and yields every file system that a
// power cut may leave behind. It needs no root and no disk, and serves anyone's tests of code written against vfs.FS.
//
// # What is on stable storage
//
//   - Content: what File.Sync or File.Datasync covered when it returned nil.
//   - Names: what SyncDir of the directory that holds them covered. A new directory is a name of its parent: until the
//     parent is synced it may vanish with everything in it, synced or not.
//   - Both, for the whole file system: SyncFS.
//
// Reads see the page cache: everything that was done, durable or not. Permissions and times are durable at once; they
// decide nothing in the model.
//
// # What a power cut may do
//
// Names, under [Strict]: of the operations that no barrier covered, each directory on its own keeps any subset. The one
// bond is that an operation which moves or removes a name needs the pending operation that put it there. POSIX promises
// no more: fsync(2) speaks of the file, not of its directory, and no standard orders one directory after another. A
// rename within a directory, an exchange, a link, a creation or a removal is one operation: rename(2) never leaves a
// name missing that it replaces. A rename across directories is two, an arrival and a departure, so that it may leave
// both names or, with the source synced first, none.
//
// Names, under [Journal]: the operations of all directories survive in their order up to some point, and a barrier
// commits everything before it, also that of other directories. That is how the metadata journals of ext4 and XFS
// behave. Each of these states is one of Strict's too; they are few, so that they stay exhaustive where Strict needs
// sampling.
//
// Content, under both, for each file with writes that no sync covered, one of:
//
//   - dropped: nothing was written back;
//   - emptied: the truncation reached the disk, the writes did not (delayed allocation);
//   - zeros: the new length reached the disk, the bytes did not (XFS, ext4 data=writeback);
//   - torn: the first half of what changed was written back, the rest was not;
//   - kept: all of it was written back.
//
// These five stand for the very many mixtures of pages that are legal; they are equal for small changes, and equal ones
// count once. Overwritten bytes never read as zeros: blocks that were allocated keep the old bytes or get the new ones.
//
// A sync that fails (see WithFaults) leaves what it should have covered in doubt: it may be on the disk or not. The
// next sync that succeeds forgets it, though reads go on showing it. That is Linux since 4.13, where a failed write-back
// marks its pages clean, so that calling fsync again "succeeds" and loses the data. The same holds for a directory
// whose sync failed. A process that ends loses its locks and its open files and nothing else; see [FS.Process].
//
// # What the model leaves out
//
// Symbolic links, permission checks, other users, a full disk (inject ENOSPC with WithFaults or faultfs), a disk that
// lies, rot of durable bytes, and the ordering between a rename and the content of the renamed file that some file
// systems add. Renaming a directory into another one is refused with EXDEV, as overlayfs does: two independent halves
// would leave a directory with two parents, which no file system allows.
package crashfs
