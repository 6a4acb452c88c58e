package powercut

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"shardlease/internal/child"
	"shardlease/internal/experiment"
)

// unusable says why this host can't cut the power of the file system, or "".
func unusable(ctx context.Context, fs string) string {
	if os.Geteuid() != 0 {
		return "mounting file systems needs root: run it as root (mage exp:reboot does the same without, in a virtual machine)"
	}
	for _, dev := range []string{"/dev/fuse", "/dev/loop-control"} {
		if _, err := os.Stat(dev); err != nil {
			return fmt.Sprintf("%s is missing: the kernel, or the container, offers no such device", dev)
		}
	}
	make := "mkfs." + fs
	if _, err := exec.LookPath(make); err != nil {
		if _, err := os.Stat("/usr/sbin/" + make); err != nil {
			return fmt.Sprintf("%s is not installed: run go tool mage setup", make)
		}
	}
	if !known(fs) {
		_ = child.Run(ctx, child.Cmd{Name: "modprobe", Args: []string{fs}}) // the second look says whether it helped
		if !known(fs) {
			return fmt.Sprintf("this kernel has no %s", fs)
		}
	}
	return ""
}

func known(fs string) bool {
	list, err := os.ReadFile("/proc/filesystems")
	return err == nil && strings.Contains(string(list), "\t"+fs+"\n")
}

// progress turns the rigs' lines "progress 3/40" into one count over all jobs, in percent of a job.
type progress struct {
	mu    sync.Mutex
	env   *experiment.Env
	parts []int
	told  time.Time
}

func newProgress(env *experiment.Env, jobs int) *progress {
	return &progress{env: env, parts: make([]int, jobs)}
}

func (p *progress) of(i int, name string) *progressWriter {
	return &progressWriter{p: p, i: i, name: name}
}

func (p *progress) set(i, percent int, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parts[i] = percent
	sum := 0
	for _, n := range p.parts {
		sum += n
	}
	if percent < 100 && time.Since(p.told) < 2*time.Second { // where no terminal is, each tick is a line of the log
		return
	}
	p.told = time.Now()
	p.env.Progress(experiment.Tick{Done: sum, Total: 100 * len(p.parts), What: name})
}

// progressWriter is the standard error of one rig: progress lines are told, all others logged.
type progressWriter struct {
	p    *progress
	i    int
	name string
	rest []byte
}

func (w *progressWriter) done() { w.p.set(w.i, 100, w.name) }

func (w *progressWriter) Write(b []byte) (int, error) {
	w.rest = append(w.rest, b...)
	for {
		line, rest, ok := bytes.Cut(w.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		var done, total int
		if n, _ := fmt.Sscanf(string(line), "progress %d/%d", &done, &total); n == 2 && total > 0 {
			w.p.set(w.i, 99*done/total, w.name)
		} else {
			w.p.log(w.name, line)
		}
		w.rest = rest
	}
}

func (p *progress) log(name string, line []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.env.Log, "%s: %s\n", name, line)
}
