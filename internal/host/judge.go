package host

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"shardlease/internal/experiment"
)

// judge decides whether times measured here mean anything. The limits are coarse on purpose; the A/A control of each
// experiment is the fine one.
func (f *Facts) judge() (experiment.Suitability, []string) {
	verdict, reasons := experiment.Suitable, []string{}
	worse := func(to experiment.Suitability, reason string) {
		if verdict != experiment.Unsuitable {
			verdict = to
		}
		reasons = append(reasons, reason)
	}
	if load, ok := oneMinute(f.Before.LoadAvg); ok && load > float64(runtime.NumCPU())/2 {
		worse(experiment.Noisy, fmt.Sprintf("load average %.2f on %d cores before the start: stop other work", load, runtime.NumCPU()))
	}
	if g := f.CPU["governor"]; g != Unavailable && g != "performance" {
		worse(experiment.Noisy, "the frequency governor is "+g+": set it to performance")
	}
	switch kind := f.FileSystem["type"]; kind {
	case "tmpfs", "ramfs":
		worse(experiment.Unsuitable, "the work folder is on "+kind+", where a sync costs nothing: choose a disk with -out")
	}
	return verdict, reasons
}

func oneMinute(loadavg string) (float64, bool) {
	word, _, _ := strings.Cut(loadavg, " ")
	load, err := strconv.ParseFloat(word, 64)
	return load, err == nil
}
