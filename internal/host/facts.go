// Package host records what the machine is, as far as it can be read, and judges whether it can measure time. Whatever
// can't be read is recorded as Unavailable, never left out. No user name and no path of a home folder is recorded.
package host

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"shardlease/internal/child"
	"shardlease/internal/experiment"
)

// Unavailable stands for what this host does not tell.
const Unavailable = "unavailable"

// Facts is env.json.
type Facts struct {
	Suitability experiment.Suitability `json:"suitability"`
	Reasons     []string               `json:"reasons"` // why not SUITABLE
	System      map[string]string      `json:"system"`
	CPU         map[string]string      `json:"cpu"`
	Memory      map[string]string      `json:"memory"`
	FileSystem  map[string]string      `json:"file_system"` // of the work folder
	Device      map[string]string      `json:"device"`      // below it
	Go          map[string]string      `json:"go"`
	Modules     map[string]string      `json:"modules"` // path -> version and sum
	Tools       map[string]string      `json:"tools"`
	MPI         map[string]string      `json:"mpi_environment"` // OMPI_* and MCA parameters that are set
	Git         map[string]string      `json:"git"`
	Programs    map[string]string      `json:"programs"` // name -> SHA-256
	Before      Load                   `json:"before"`
	After       *Load                  `json:"after"`
}

// Load is what the machine was doing at one time.
type Load struct {
	Time    time.Time `json:"time"`
	LoadAvg string    `json:"loadavg"`
}

// Now reads the load.
func Now() Load {
	return Load{Time: time.Now().UTC(), LoadAvg: read("/proc/loadavg")}
}

// Capture reads everything. root is the repository, work a folder on the file system under test.
func Capture(ctx context.Context, root, work string) *Facts {
	f := &Facts{
		System: system(), CPU: cpu(), Memory: memory(), Go: goFacts(ctx), Modules: modules(), Git: Git(ctx, root),
		Tools: tools(ctx), MPI: mpiEnvironment(), Programs: map[string]string{}, Before: Now(),
	}
	f.FileSystem, f.Device = fileSystem(work)
	f.Suitability, f.Reasons = f.judge()
	return f
}

func system() map[string]string {
	var u unix.Utsname
	kernel, arch := Unavailable, runtime.GOARCH
	if unix.Uname(&u) == nil {
		kernel = unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Version[:])
		arch = unix.ByteSliceToString(u.Machine[:])
	}
	zone, _ := time.Now().Zone()
	return map[string]string{
		"kernel": kernel, "arch": arch, "distribution": field("/etc/os-release", "PRETTY_NAME", "="),
		"mitigations": mitigations(), "clock_source": read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
		"time_zone": zone, "locale": first(os.Getenv("LC_ALL"), os.Getenv("LC_CTYPE"), os.Getenv("LANG")), "host_sha256": hostHash(),
	}
}

// hostHash tells two machines apart without naming either.
func hostHash() string {
	name, err := os.Hostname()
	if err != nil {
		return Unavailable
	}
	sum := sha256.Sum256([]byte("shardlease host " + name + read("/etc/machine-id")))
	return hex.EncodeToString(sum[:8])
}

func mitigations() string {
	for word := range strings.FieldsSeq(read("/proc/cmdline")) {
		if strings.HasPrefix(word, "mitigations=") {
			return word
		}
	}
	return "default"
}

func cpu() map[string]string {
	const freq = "/sys/devices/system/cpu/cpu0/cpufreq/"
	flags := " " + field("/proc/cpuinfo", "flags", ":") + " "
	hypervisor := "no"
	if strings.Contains(flags, " hypervisor ") {
		hypervisor = "yes"
	}
	return map[string]string{
		"model": field("/proc/cpuinfo", "model name", ":"), "cores": fmt.Sprint(runtime.NumCPU()), "smt": read("/sys/devices/system/cpu/smt/active"),
		"affinity": field("/proc/self/status", "Cpus_allowed_list", ":"), "cgroup_limit": read("/sys/fs/cgroup/cpu.max"),
		"governor": read(freq + "scaling_governor"), "frequency_max_khz": read(freq + "cpuinfo_max_freq"),
		"turbo_off": read("/sys/devices/system/cpu/intel_pstate/no_turbo"), "boost": read("/sys/devices/system/cpu/cpufreq/boost"), "hypervisor": hypervisor,
	}
}

func memory() map[string]string {
	return map[string]string{
		"total": field("/proc/meminfo", "MemTotal", ":"), "available": field("/proc/meminfo", "MemAvailable", ":"),
		"swap_total":            field("/proc/meminfo", "SwapTotal", ":"),
		"transparent_hugepages": read("/sys/kernel/mm/transparent_hugepage/enabled"),
		"dirty_ratio":           read("/proc/sys/vm/dirty_ratio"), "dirty_expire_centisecs": read("/proc/sys/vm/dirty_expire_centisecs"),
	}
}

func goFacts(ctx context.Context) map[string]string {
	facts := map[string]string{"version": runtime.Version(), "maxprocs": fmt.Sprint(runtime.GOMAXPROCS(0)), "gogc": first(os.Getenv("GOGC"), "default")}
	for _, name := range []string{"GOFLAGS", "CGO_ENABLED", "GOAMD64", "GOEXPERIMENT"} {
		value, err := child.Output(ctx, "go", "env", name)
		if err != nil {
			value = Unavailable
		}
		facts[name] = first(value, "default")
	}
	return facts
}

func modules() map[string]string {
	m := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			m[dep.Path] = strings.TrimSpace(dep.Version + " " + dep.Sum)
		}
	}
	return m
}

func mpiEnvironment() map[string]string {
	m := map[string]string{}
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "OMPI_") || strings.HasPrefix(name, "PMIX_") || strings.HasPrefix(name, "PRTE_") {
			m[name] = WithoutHome(value)
		}
	}
	return m
}

// WithoutHome replaces the path of the home folder: evidence is published, and the path often holds a name.
func WithoutHome(text string) string {
	home, err := os.UserHomeDir()
	if err != nil || len(filepath.Clean(home)) < 2 {
		return text
	}
	return strings.ReplaceAll(text, home, "$HOME")
}

func read(name string) string {
	data, err := os.ReadFile(name)
	text := strings.TrimSpace(string(data))
	if err != nil || text == "" {
		return Unavailable
	}
	return text
}

// field finds "key<sep>value" at the beginning of a line.
func field(file, key, sep string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return Unavailable
	}
	for scan := bufio.NewScanner(bytes.NewReader(data)); scan.Scan(); {
		name, value, ok := strings.Cut(scan.Text(), sep)
		if ok && strings.TrimSpace(name) == key {
			return strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return Unavailable
}

func first(values ...string) string {
	if i := slices.IndexFunc(values, func(s string) bool { return s != "" }); i >= 0 {
		return values[i]
	}
	return Unavailable
}
