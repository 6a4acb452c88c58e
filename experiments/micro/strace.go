package micro

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"

	"shardlease/experiments/micro/raw"
)

var (
	straceMark = regexp.MustCompile(`"/shardlease-mark/(begin|end):(\d+):(scalar|batch)"`)
	// A call that another thread interrupts is printed in two lines; the first has the path, the second the result.
	straceSync = regexp.MustCompile(`^(\d+)\s+(fsync|fdatasync|syncfs)\(\d+<([^>]*)>(\)\s+= 0| <unfinished)`)
	straceRest = regexp.MustCompile(`^(\d+)\s+<\.\.\. (fsync|fdatasync|syncfs) resumed>\)\s+= 0`)
)

// parseStrace lists the syncs that succeeded between the marks. isDir tells a folder from a file, which is gone by now if
// it was a temporary one.
func parseStrace(r io.Reader, isDir func(path string) bool) ([]raw.Kernel, error) {
	var list []raw.Kernel
	open := map[string]raw.Kernel{} // thread -> its unfinished call
	var active int
	var side string
	marks := 0
	for scan := bufio.NewScanner(r); scan.Scan(); {
		line := scan.Text()
		if m := straceMark.FindStringSubmatch(line); m != nil {
			marks++
			active, side = 0, ""
			if m[1] == "begin" {
				side = m[3]
				active, _ = strconv.Atoi(m[2]) // digits by the pattern
			}
			continue
		}
		if m := straceSync.FindStringSubmatch(line); m != nil && side != "" {
			k := raw.Kernel{Active: active, Side: side, Call: m[2], Kind: "file", Path: m[3]}
			switch {
			case m[2] == "syncfs":
				k.Kind = "fs"
			case isDir(m[3]):
				k.Kind = "dir"
			}
			if m[4] == " <unfinished" {
				open[m[1]] = k
			} else {
				list = append(list, k)
			}
			continue
		}
		if m := straceRest.FindStringSubmatch(line); m != nil {
			if k, ok := open[m[1]]; ok {
				list = append(list, k)
				delete(open, m[1])
			}
		}
	}
	if marks == 0 || marks%4 != 0 {
		return nil, fmt.Errorf("strace shows %d marks, which is no whole number of scenarios: the count is worthless", marks)
	}
	return list, nil
}
