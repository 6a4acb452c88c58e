package target

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Reaper is a small process beside a worker that outlives it for a moment: when the worker is gone, even by SIGKILL, it kills what is left of the
// targets and removes the worker's private directory. Pdeathsig alone reaches only the target itself, not what the target has started. The reaper
// is told of process groups, and finds the others, among them those of a worker that died before it could tell, by the private directory
// in their environment.
type Reaper struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// StartReaper starts argv with dir appended; that program must call ReaperMain. env is without MPI variables. Package mpirun's mark of the job is taken
// out too: the launcher kills everything that carries it, and the reaper has to outlive that.
func StartReaper(argv []string, dir string, env []string) (*Reaper, error) {
	cmd := exec.Command(argv[0], append(append([]string{}, argv[1:]...), dir)...)
	cmd.Env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, "MPIRUN_JOB_") })
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // mpirun kills the rank's group, which must not take the reaper along
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the process that cleans up after this worker: %w", err)
	}
	return &Reaper{cmd, pipe}, nil
}

// Stop ends the reaper, which removes the private directory, and waits for it.
func (r *Reaper) Stop() error {
	if err := r.pipe.Close(); err != nil {
		return err
	}
	return r.cmd.Wait()
}

func (r *Reaper) add(group int)  { r.tell("+", group) }
func (r *Reaper) done(group int) { r.tell("-", group) }

// tell ignores errors: a reaper that was killed is a worker without one.
func (r *Reaper) tell(what string, group int) {
	if r != nil {
		_, _ = fmt.Fprintf(r.pipe, "%s%d\n", what, group)
	}
}

// ReaperMain is the reaper's program. It returns when in has ended and everything is cleaned up.
func ReaperMain(in io.Reader, dir string) error {
	groups := map[int]bool{}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		line := lines.Text()
		if len(line) < 2 {
			continue
		}
		if group, err := strconv.Atoi(line[1:]); err == nil && group > 1 {
			groups[group] = line[0] == '+'
		}
	}
	for group, running := range groups {
		if running {
			_ = syscall.Kill(-group, syscall.SIGKILL) // gone already is fine
			vanish(group)
		}
	}
	if dir == "" {
		return nil
	}
	killMarked(dir)
	return removeAll(dir)
}

// killMarked kills the processes that were given a run directory in dir, until none is found twice in a row: one may have started another just before it died.
func killMarked(dir string) {
	mark := []byte("\x00SYMCC_OUTPUT_DIR=" + dir + "/")
	for empty, tries := 0, 0; empty < 2 && tries < 100; tries++ {
		names, err := filepath.Glob("/proc/[0-9]*/environ")
		if err != nil {
			return
		}
		empty++
		for _, name := range names {
			environ, err := os.ReadFile(name)
			if err != nil || !bytes.Contains(append([]byte{0}, environ...), mark) {
				continue // gone, not ours to see, or somebody else's
			}
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL) // gone already is fine
				empty = 0
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}
