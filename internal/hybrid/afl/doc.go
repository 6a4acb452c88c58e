// Package afl reads and feeds an AFL++ output directory: it finds a running instance, measures inputs with afl-showmap,
// scans queues, and writes a queue that AFL++ imports from.
//
// Nothing of AFL++ is linked or changed; the directory is the interface. These are the facts it relies on, seen with
// AFL++ 4.04c:
//
//   - <out>/<instance>/fuzzer_stats has one "key : value" a line. command_line joins the arguments with blanks and
//     quotes nothing, so <out>/<instance>/cmdline, the target's arguments one a line, is preferred where it exists.
//   - Queue entries are named "id:NNNNNN,...". Trimming rewrites an entry in place.
//   - AFL++ imports <out>/<peer>/queue/id:NNNNNN,... of any peer directory, in the order of the numbers, and remembers the
//     highest: a number that is published late is never looked at. It does so every few inputs, and no less than once
//     in AFL_SYNC_TIME minutes. It keeps what covers something new, crashes included.
//   - afl-showmap on one input reports a hang as a crash (exit status 2); on a directory it is right, for the last
//     input. With -Z it leaves the map of a crashing or hanging input empty. "@@" works on directories only.
package afl
