package sysfault

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification is struct seccomp_notif, with struct seccomp_data inside.
type notification struct {
	id    uint64
	tid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

// response is struct seccomp_notif_resp.
type response struct {
	id    uint64
	val   int64
	error int32
	flags uint32
}

// supervisor decides what becomes of each watched call.
type supervisor struct {
	job      Job
	listener int

	mu       sync.Mutex
	counted  uint64
	perCall  map[string]uint64
	injected uint64
	traceErr error // the first
	delayed  sync.WaitGroup
}

func newSupervisor(job Job, listener int) *supervisor {
	return &supervisor{job: job, listener: listener, perCall: map[string]uint64{}}
}

func (s *supervisor) result() Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Result{Counted: s.counted, PerCall: maps.Clone(s.perCall), Injected: s.injected}
}

// serve handles notifications until no process under the filter is left, or until abandoned is closed.
func (s *supervisor) serve(abandoned <-chan struct{}) error {
	defer s.delayed.Wait()
	poll := []unix.PollFd{{Fd: int32(s.listener), Events: unix.POLLIN}}
	for {
		select {
		case <-abandoned:
			return nil
		default:
		}
		switch n, err := unix.Poll(poll, 100); {
		case errors.Is(err, unix.EINTR), err == nil && n == 0:
			continue
		case err != nil:
			return fmt.Errorf("sysfault: poll: %w", err)
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			return nil // POLLHUP: all gone
		}
		var n notification
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s.listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n)))
		switch errno {
		case 0:
			s.handle(n)
		case unix.EINTR, unix.ENOENT: // ENOENT: the caller was killed meanwhile
		default:
			return fmt.Errorf("sysfault: receive a notification: %w", errno)
		}
	}
}

// handle counts one call and answers it, after the delay of its rule if it has one.
func (s *supervisor) handle(n notification) {
	c := lookUp(n.nr)
	paths := c.paths(int(n.tid), n.args)
	if c.skip(n.args) || !s.inScope(paths) {
		s.answer(response{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE})
		return
	}
	s.mu.Lock()
	s.counted++
	s.perCall[c.name]++
	number := s.counted
	rule := s.ruleFor(c.name, number, s.perCall[c.name])
	if rule != nil {
		s.injected++
	}
	s.trace(number, c.name, paths, rule)
	s.mu.Unlock()

	r := response{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	switch {
	case rule == nil:
	case rule.Kill:
		killProcess(int(n.tid))
		return
	case rule.Errno != 0:
		r.flags, r.error = 0, -int32(rule.Errno)
	default:
		s.delayed.Add(1)
		go func() {
			defer s.delayed.Done()
			time.Sleep(rule.Delay)
			s.answer(r)
		}()
		return
	}
	s.answer(r)
}

// answer ignores errors: the caller may have been killed while it waited.
func (s *supervisor) answer(r response) {
	unix.Syscall(unix.SYS_IOCTL, uintptr(s.listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&r)))
}

func (s *supervisor) inScope(paths []string) bool {
	if s.job.Under == "" {
		return true
	}
	for _, p := range paths {
		if p == s.job.Under || strings.HasPrefix(p, strings.TrimSuffix(s.job.Under, "/")+"/") {
			return true
		}
	}
	return false
}

// ruleFor returns the first rule that applies to the call: the number-th watched call, the nth of its name.
func (s *supervisor) ruleFor(name string, number, nth uint64) *Rule {
	for i := range s.job.Rules {
		r := &s.job.Rules[i]
		count := number
		if r.Call != "" {
			if r.Call != name {
				continue
			}
			count = nth
		}
		if r.Nth == 0 || count == r.Nth || r.Sticky && count > r.Nth {
			return r
		}
	}
	return nil
}

func (s *supervisor) trace(number uint64, name string, paths []string, rule *Rule) {
	if s.job.Trace == nil {
		return
	}
	verdict := "run"
	switch {
	case rule == nil:
	case rule.Kill:
		verdict = "killed before it"
	case rule.Errno != 0:
		verdict = "failed: " + unix.ErrnoName(rule.Errno)
	default:
		verdict = "delayed " + rule.Delay.String()
	}
	if _, err := fmt.Fprintf(s.job.Trace, "%d\t%s\t%s\t%s\n", number, name, strings.Join(paths, " -> "), verdict); err != nil && s.traceErr == nil {
		s.traceErr = fmt.Errorf("%w: %w", ErrTrace, err)
	}
}

// killProcess kills the whole process to which the thread belongs.
func killProcess(tid int) {
	pid := tid
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid)); err == nil {
		if _, after, ok := bytes.Cut(status, []byte("\nTgid:\t")); ok {
			line, _, _ := bytes.Cut(after, []byte("\n"))
			if n, err := strconv.Atoi(string(line)); err == nil {
				pid = n
			}
		}
	}
	syscall.Kill(pid, syscall.SIGKILL)
}

// call is one watched system call: where its paths and descriptors are among the arguments.
type call struct {
	name string
	nr   uintptr
	fd   int      // argument that is a descriptor, or -1
	path [][2]int // {argument with the directory descriptor or -1, argument with the path}
	lock bool     // fcntl: only the open-file-description lock commands count
}

func lookUp(nr int32) call {
	for _, c := range calls {
		if c.nr == uintptr(nr) {
			return c
		}
	}
	return call{name: strconv.Itoa(int(nr)), fd: -1}
}

func (c call) skip(args [6]uint64) bool {
	if !c.lock {
		return false
	}
	cmd := args[1]
	return cmd != unix.F_OFD_SETLK && cmd != unix.F_OFD_SETLKW && cmd != unix.F_SETLK && cmd != unix.F_SETLKW
}

// paths returns the absolute paths a call touches, cleaned but with links unresolved; unreadable ones are left out.
func (c call) paths(tid int, args [6]uint64) []string {
	var found []string
	if c.fd >= 0 {
		if p, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, int32(args[c.fd]))); err == nil {
			found = append(found, strings.TrimSuffix(p, " (deleted)"))
		}
	}
	for _, p := range c.path {
		name, err := readString(tid, args[p[1]])
		if err != nil {
			continue
		}
		if !filepath.IsAbs(name) {
			dir := "cwd"
			if p[0] >= 0 && int32(args[p[0]]) != unix.AT_FDCWD {
				dir = fmt.Sprintf("fd/%d", int32(args[p[0]]))
			}
			base, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", tid, dir))
			if err != nil {
				continue
			}
			name = filepath.Join(base, name)
		}
		found = append(found, filepath.Clean(name))
	}
	return found
}

// readString reads a NUL-terminated string of the stopped thread.
func readString(tid int, addr uint64) (string, error) {
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", tid))
	if err != nil {
		return "", err
	}
	defer mem.Close()
	buf := make([]byte, unix.PathMax)
	n, err := mem.ReadAt(buf, int64(addr))
	if i := bytes.IndexByte(buf[:n], 0); i >= 0 {
		return string(buf[:i]), nil
	}
	if err == nil {
		err = unix.ENAMETOOLONG
	}
	return "", err
}
