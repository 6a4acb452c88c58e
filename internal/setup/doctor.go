package setup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"shardlease/internal/child"
	"shardlease/internal/experiment"
	"shardlease/internal/host"
	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
)

// Level of a check.
type Level string

const (
	OK   Level = "OK"
	Warn Level = "WARN" // something is left out or less exact
	Bad  Level = "FAIL" // the main job can't be done
)

// Check is one line of the doctor target.
type Check struct {
	Name   string
	Level  Level
	Detail string
	Fix    string // a command or what to do; empty when OK
}

// minFree is far more than a full run writes (some ten megabytes), so that a full disk is not met in the middle.
const minFree = 2 << 30

// Doctor examines the host without changing it. out is the folder runs are written to.
func Doctor(ctx context.Context, root, out string) []Check {
	checks := []Check{
		tool(ctx, "go", Bad, "install Go 1.26 or newer", "go", "version"),
		tool(ctx, "gcc", Bad, "apt-get install gcc libc6-dev", "gcc", "--version"),
		tool(ctx, "git", Bad, packageFix("git"), "git", "--version"),
		tool(ctx, "mpirun", Bad, packageFix("openmpi-bin"), "mpirun", "--version"),
		headers(ctx),
		tool(ctx, "node", Bad, "apt-get install nodejs", "node", "--version"),
		tool(ctx, "npm", Bad, "apt-get install npm", "npm", "--version"),
		charting(root),
		tool(ctx, "strace", Warn, packageFix("strace"), "strace", "--version"),
		tool(ctx, "jq", Warn, packageFix("jq"), "jq", "--version"),
		tool(ctx, "chromium", Warn, packageFix("chromium"), "chromium", "--version"),
		loopback(), disk(out), cores(), rootUser(), cacheFlag(),
	}
	facts := host.Capture(ctx, root, existingParent(out))
	checks = append(checks, directorySync(out, facts), suitable(facts))
	return checks
}

// Worst is the worst level among the checks.
func Worst(checks []Check) Level {
	worst := OK
	for _, c := range checks {
		if c.Level == Bad || c.Level == Warn && worst == OK {
			worst = c.Level
		}
	}
	return worst
}

func packageFix(name string) string {
	for _, p := range packages {
		if p.Name == name {
			return "go tool mage setup, or apt-get install " + name + " (" + p.Why + ")"
		}
	}
	panic("no package " + name + " in the list")
}

func tool(ctx context.Context, name string, missing Level, fix string, argv ...string) Check {
	if v := host.Version(ctx, argv...); v != host.Unavailable {
		return Check{name, OK, v, ""}
	}
	return Check{name, missing, "not found, or it does not run", fix}
}

// headers asks what the compiler will ask.
func headers(ctx context.Context) Check {
	version, err := child.Output(ctx, "pkg-config", "--modversion", "ompi-c")
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return Check{"MPI headers", Bad, "pkg-config is not installed", packageFix("pkg-config")}
	case err != nil:
		return Check{"MPI headers", Bad, "pkg-config does not know ompi-c", packageFix("libopenmpi-dev")}
	}
	return Check{"MPI headers", OK, "ompi-c " + version, ""}
}

// loopback: no other network is needed, but the parts of Open MPI on one machine talk over it.
func loopback() Check {
	list, err := net.Interfaces()
	if err != nil {
		return Check{"loopback", Bad, err.Error(), "ip link set lo up"}
	}
	for _, i := range list {
		if i.Flags&net.FlagLoopback != 0 && i.Flags&net.FlagUp != 0 {
			return Check{"loopback", OK, i.Name + " is up", ""}
		}
	}
	return Check{"loopback", Bad, "no loopback interface is up, and Open MPI does not start without", "ip link set lo up"}
}

func charting(root string) Check {
	if err := CheckScript(root); err != nil {
		return Check{"echarts", Bad, err.Error(), "go tool mage setup"}
	}
	return Check{"echarts", OK, "the pinned bytes", ""}
}

func disk(out string) Check {
	free, err := host.FreeBytes(existingParent(out))
	switch {
	case err != nil:
		return Check{"disk", Bad, err.Error(), "choose another folder with -out"}
	case free < minFree:
		return Check{"disk", Bad, fmt.Sprintf("%d MiB free where evidence is written", free>>20), "free 2 GiB, or choose another folder with -out"}
	}
	return Check{"disk", OK, fmt.Sprintf("%d GiB free where evidence is written", free>>30), ""}
}

func cores() Check {
	if n := runtime.NumCPU(); n < 2 {
		return Check{"cores", Warn, fmt.Sprintf("%d core", n), "expect the campaign to take longer than predicted"}
	}
	return Check{"cores", OK, fmt.Sprint(runtime.NumCPU()), ""}
}

func rootUser() Check {
	if os.Geteuid() == 0 {
		return Check{"user", Warn, "root: mpirun is told --allow-run-as-root, and the run records it", "use an ordinary user outside containers"}
	}
	return Check{"user", OK, "not root", ""}
}

// cacheFlag warns of the setting that makes Mage run an old program after a package changed.
func cacheFlag() Check {
	if v := os.Getenv("MAGEFILE_HASHFAST"); v != "" && v != "0" && v != "false" {
		return Check{"MAGEFILE_HASHFAST", Warn, "set: changes outside magefile.go would not be noticed", "unset MAGEFILE_HASHFAST"}
	}
	return Check{"MAGEFILE_HASHFAST", OK, "not set", ""}
}

// directorySync tries the one operation everything rests on, where evidence will be.
func directorySync(out string, facts *host.Facts) Check {
	where := facts.FileSystem["type"] + " (" + facts.FileSystem["options"] + ")"
	dir, err := os.MkdirTemp(existingParent(out), "doctor-*.partial")
	if err != nil {
		return Check{"file system", Bad, err.Error(), "choose a folder you may write to with -out"}
	}
	err = errors.Join(groupcommit.WriteFile(vfs.OS, filepath.Join(dir, "probe"), []byte("probe"), 0o600), os.RemoveAll(dir))
	if err != nil {
		return Check{"file system", Bad, where + ": " + err.Error(), "choose a folder on a local disk with -out"}
	}
	return Check{"file system", OK, where + ", directory sync works", ""}
}

func suitable(facts *host.Facts) Check {
	if facts.Suitability == experiment.Suitable {
		return Check{"timing", OK, "suitable; governor " + facts.CPU["governor"] + ", load " + facts.Before.LoadAvg, ""}
	}
	return Check{"timing", Warn, string(facts.Suitability), strings.Join(facts.Reasons, "; ")}
}

// existingParent lets doctor examine the place of a folder that is not there yet.
func existingParent(dir string) string {
	for {
		if st, err := os.Stat(dir); err == nil && st.IsDir() {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return up
		}
		dir = up
	}
}
