// Package mpirun starts programs under Open MPI's mpirun and leaves nothing behind:
// when Run returns, no process of the job is left on this machine, nor a session
// directory, nor a shared-memory segment, however the job ended.
//
// It does not restart jobs, does not know MPI itself (see package mpi below it) and
// works on Linux only, since it looks for processes in /proc. It supports Open MPI 4
// and 5 (5 by its documented options; tests run against the installed version).
//
// # Exit codes of mpirun
//
//	0        every rank finalised MPI and exited with 0; no success if Run returns an
//	         error all the same (ErrSurvivors)
//	1        also: a rank exited with 0 but did not finalise MPI; mpirun refused to start the job
//	n        a rank exited with n, or called Abort(n); the other ranks were ended
//	110      mpirun's own --timeout, a backstop behind Job.Timeout
//	132      the program could not be started
//	128 + s  a rank, or mpirun itself, was ended by signal s: 137 is SIGKILL
//	205      the daemon on a remote machine was lost
//
// What mpirun prints about a failure varies from run to run: judge by codes and by
// what the program itself wrote, never by the text. A job that was stopped has the
// code its ranks gave it after SIGUSR1, or 1 after SIGTERM.
//
// # Limits
//
//   - Processes on other machines (HostFile) are ended by mpirun and its daemons, not
//     by Run.
//   - When this process is killed by SIGKILL, the kernel kills mpirun, and ranks that
//     called mpi.Run die with it. Ranks that do not use package mpi, and tools started
//     without Pdeathsig, outlive it. The job's directory in TempDir stays until the
//     next Run of the same user, unless such processes are still there.
//   - A process that left both mpirun's session and the job's environment, or that
//     changed its user, is not found.
package mpirun
