package sysfault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// shimEnv tells a re-executed binary that it is the shim: the value is the comma-separated list of watched calls.
const shimEnv = "SHARDLEASE_SYSFAULT_WATCH"

// shimFD is the socket over which the shim hands the listener to its parent.
const shimFD = 3

// start runs this very binary as the shim, which installs the filter, hands its listener back and becomes the program.
func start(ctx context.Context, job Job) (*exec.Cmd, int, error) {
	program, err := exec.LookPath(job.Program)
	if err != nil {
		return nil, 0, fmt.Errorf("sysfault: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, 0, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, 0, err
	}
	ours, theirs := pair[0], os.NewFile(uintptr(pair[1]), "listener")
	defer unix.Close(ours)
	c := exec.CommandContext(ctx, self, append([]string{program}, job.Args...)...)
	c.Env = job.Env
	if c.Env == nil {
		c.Env = os.Environ()
	}
	c.Env = append(c.Env[:len(c.Env):len(c.Env)], shimEnv+"="+strings.Join(job.Watch, ","))
	c.Dir, c.Stdin, c.Stdout, c.Stderr = job.Dir, job.Stdin, job.Stdout, job.Stderr
	c.ExtraFiles = []*os.File{theirs}
	err = c.Start()
	theirs.Close()
	if err != nil {
		return nil, 0, fmt.Errorf("sysfault: %w", err)
	}
	listener, err := receiveFD(ours)
	if err != nil {
		waitErr := c.Wait()
		return nil, 0, fmt.Errorf("sysfault: the filter was not installed (Linux 5.19 with seccomp user notification is needed): %w",
			errors.Join(err, waitErr))
	}
	return c, listener, nil
}

// Shim does nothing in an ordinary process. In the process that Run starts it installs the filter and becomes the program; it doesn't
// return there.
func Shim() {
	watch, ok := os.LookupEnv(shimEnv)
	if !ok {
		return
	}
	os.Unsetenv(shimEnv)
	err := becomeProgram(strings.Split(watch, ","), os.Args[1:])
	fmt.Fprintf(os.Stderr, "sysfault: %v\n", err)
	os.Exit(127)
}

// becomeProgram installs the filter on this thread alone; execve then ends the other threads.
func becomeProgram(watch, argv []string) error {
	if len(argv) == 0 {
		return errors.New("no program")
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	filter := filterFor(watch)
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// WAIT_KILLABLE_RECV: once received, a call is not interrupted by signals that the program handles, or the Go runtime's
	// preemption signal would restart calls and have them counted twice.
	flags := unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, uintptr(flags), uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	if err := unix.Sendmsg(shimFD, []byte{1}, unix.UnixRights(int(fd)), nil, 0); err != nil {
		return fmt.Errorf("hand over the listener: %w", err)
	}
	unix.Close(int(fd))
	unix.Close(shimFD)
	return unix.Exec(argv[0], argv, os.Environ())
}

func receiveFD(socket int) (int, error) {
	data, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := unix.Recvmsg(socket, data, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, errors.New("the shim ended early")
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return 0, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err == nil && len(fds) == 1 {
			return fds[0], nil
		}
	}
	return 0, errors.New("no descriptor arrived")
}

// filterFor builds the classic BPF program: watched calls of this architecture go to the listener, all others run.
func filterFor(watch []string) []unix.SockFilter {
	const (
		offsetNr   = 0
		offsetArch = 4
	)
	load := func(k uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: k}
	}
	ret := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	jeq := func(k uint32, jt, jf uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jt: jt, Jf: jf}
	}
	f := []unix.SockFilter{load(offsetArch), jeq(auditArch, 1, 0), ret(unix.SECCOMP_RET_ALLOW), load(offsetNr)}
	for _, c := range calls {
		for _, w := range watch {
			if c.name == w {
				f = append(f, jeq(uint32(c.nr), 0, 1), ret(unix.SECCOMP_RET_USER_NOTIF))
			}
		}
	}
	return append(f, ret(unix.SECCOMP_RET_ALLOW))
}
