package host

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// fileSystem finds the mount that holds dir, by device number, and the block device below it.
func fileSystem(dir string) (fsFacts, device map[string]string) {
	fsFacts = map[string]string{"source": Unavailable, "type": Unavailable, "options": Unavailable, "super_options": Unavailable}
	device = map[string]string{"name": Unavailable}
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return fsFacts, device
	}
	number := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fsFacts, device
	}
	best := ""
	for scan := bufio.NewScanner(bytes.NewReader(data)); scan.Scan(); {
		m, ok := parseMount(scan.Text())
		if ok && m.device == number && len(m.point) >= len(best) && within(dir, m.point) {
			best = m.point
			fsFacts["source"], fsFacts["type"], fsFacts["options"], fsFacts["super_options"] = m.source, m.kind, m.options, m.super
		}
	}
	return fsFacts, blockDevice(number, device)
}

type mount struct{ device, point, options, kind, source, super string }

// parseMount reads one line of mountinfo: fixed fields, optional ones, a dash, three more (proc(5)).
func parseMount(line string) (mount, bool) {
	head, tail, ok := strings.Cut(line, " - ")
	h, t := strings.Fields(head), strings.Fields(tail)
	if !ok || len(h) < 6 || len(t) < 3 {
		return mount{}, false
	}
	return mount{device: h[2], point: h[4], options: h[5], kind: t[0], source: t[1], super: t[2]}, true
}

func within(dir, point string) bool {
	rel, err := filepath.Rel(point, dir)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// blockDevice reads the queue of the whole disk when number is that of a partition.
func blockDevice(number string, facts map[string]string) map[string]string {
	dir, err := filepath.EvalSymlinks("/sys/dev/block/" + number)
	if err != nil {
		return facts
	}
	facts["name"] = filepath.Base(dir)
	if _, err := os.Stat(filepath.Join(dir, "partition")); err == nil {
		dir = filepath.Dir(dir)
	}
	for _, name := range []string{"rotational", "scheduler", "write_cache", "fua", "logical_block_size", "nr_requests"} {
		facts[name] = read(filepath.Join(dir, "queue", name))
	}
	facts["model"] = read(filepath.Join(dir, "device", "model"))
	return facts
}

// FreeBytes is what an ordinary user may still write on the file system of dir.
func FreeBytes(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return st.Bavail * uint64(st.Bsize), nil
}
