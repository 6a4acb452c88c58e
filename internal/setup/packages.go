// Package setup installs what the project needs beyond Go, gcc, node and npm, and tells what is missing or unsuitable.
package setup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"shardlease/internal/child"
	"shardlease/internal/figures"
)

// Package is one Debian package. This list is the only place that names any.
type Package struct {
	Name   string
	Needed bool   // without it the two README lines fail
	Why    string // said by doctor when it is missing
}

var packages = []Package{
	{"openmpi-bin", true, "mpirun starts the campaign"},
	{"libopenmpi-dev", true, "the MPI binding is compiled against its headers"},
	{"pkg-config", true, "tells the compiler where the headers are"},
	{"afl++", true, "the fuzzer beside which the hybrid campaign runs; brings clang"},
	{"git", true, "a run is named after its commit"},
	{"strace", false, "the kernel's own count of syncs"},
	{"jq", false, "checking evidence by hand as EVIDENCE.md shows"},
	{"librsvg2-bin", false, "PNG copies of figures"},
	{"fonts-dejavu-core", false, "the font of the figures"},
	{"fonts-noto-cjk", false, "the font of the Chinese report"},
	{"e2fsprogs", false, "power cuts on ext4"},
	{"xfsprogs", false, "power cuts on XFS"},
	{"btrfs-progs", false, "power cuts on btrfs"},
	{"qemu-system-x86", false, "machines that are killed and boot again"},
	{"postgresql-15", false, "one of the databases beside which renewals are timed"},
	{"chromium", false, "prints the report to PDF"},
}

// Modules are the folders of the project's Go modules: the product's, and those of programs whose dependencies are kept out of it.
var Modules = []string{".", "experiments/powercut/rig", "experiments/peers/bench"}

func names(needed bool) []string {
	var out []string
	for _, p := range packages {
		if p.Needed == needed {
			out = append(out, p.Name)
		}
	}
	return out
}

// Run installs what is missing, says what it does, and does nothing when nothing is missing. Optional packages that
// can't be installed are a warning.
func Run(ctx context.Context, root string, out io.Writer) error {
	if err := Toolchain(); err != nil {
		return err
	}
	if err := debian(ctx, names(true), out); err != nil {
		return err
	}
	if err := debian(ctx, names(false), out); err != nil {
		fmt.Fprintf(out, "warning: optional packages: %v\n", err)
	}
	if err := script(ctx, root, out); err != nil {
		return err
	}
	fmt.Fprintln(out, "Go modules: downloading what go.sum names")
	for _, module := range Modules {
		if err := child.Run(ctx, child.Cmd{Name: "go", Args: []string{"mod", "download"}, Dir: filepath.Join(root, module), Stdout: out, Stderr: out}); err != nil {
			return fmt.Errorf("download the Go modules (is the network or GOPROXY reachable?): %w", err)
		}
	}
	fmt.Fprintln(out, "setup: everything is there")
	return nil
}

// Toolchain checks what setup does not install: those who run it have it, or get it from where they got Go.
func Toolchain() error {
	for _, name := range []string{"go", "gcc", "node", "npm"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%s is not installed; on Debian: apt-get install %s", name,
				map[string]string{"go": "golang-go (1.26 or newer)", "gcc": "gcc libc6-dev", "node": "nodejs", "npm": "npm"}[name])
		}
	}
	return nil
}

// debian installs the packages that are missing, as root; others are told the line to run.
func debian(ctx context.Context, wanted []string, out io.Writer) error {
	missing, err := Missing(ctx, wanted)
	if err != nil {
		return err
	}
	if len(missing) == 0 {
		fmt.Fprintf(out, "Debian packages: %s are installed\n", strings.Join(wanted, ", "))
		return nil
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%s missing; run: %s", strings.Join(missing, ", "), InstallLine(missing))
	}
	fmt.Fprintf(out, "Debian packages: installing %s\n", strings.Join(missing, ", "))
	env := []string{"DEBIAN_FRONTEND=noninteractive"}
	apt := func(args ...string) error {
		args = append([]string{"-q", "-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Options::=--force-confold"}, args...)
		return child.Run(ctx, child.Cmd{Name: "apt-get", Args: args, Env: env, Stdout: out, Stderr: out})
	}
	if slices.Contains(missing, "postgresql-15") {
		if err := noCluster(); err != nil {
			return err
		}
	}
	if err := apt("update"); err != nil {
		fmt.Fprintf(out, "warning: the package lists could not be renewed: %v\n", err)
	}
	if err := apt(append([]string{"install", "-y", "--no-install-recommends"}, missing...)...); err != nil {
		return fmt.Errorf("install %s: %w", strings.Join(missing, ", "), err)
	}
	return nil
}

// noCluster keeps Debian from starting a database server: the experiment starts one of its own, for itself. A configuration that is
// there already is left alone.
func noCluster() error {
	const name = "/etc/postgresql-common/createcluster.conf"
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, []byte("create_main_cluster = false\n"), 0o644)
}

// InstallLine is what a user without root rights has to run.
func InstallLine(missing []string) string {
	return "sudo apt-get update && sudo apt-get install -y --no-install-recommends " + strings.Join(missing, " ")
}

// Missing asks dpkg which of the packages are not installed.
func Missing(ctx context.Context, wanted []string) ([]string, error) {
	if _, err := exec.LookPath("dpkg-query"); err != nil {
		return nil, fmt.Errorf("this is no Debian system: install what these packages hold by other means, then leave setup out: %s",
			strings.Join(wanted, " "))
	}
	var stdout bytes.Buffer
	args := append([]string{"-W", "-f", "${db:Status-Status} ${Package}\n"}, wanted...)
	err := child.Run(ctx, child.Cmd{Name: "dpkg-query", Args: args, Stdout: &stdout})
	var exit *child.ExitError
	if err != nil && !errors.As(err, &exit) { // it exits 1 when a package is unknown to it
		return nil, err
	}
	installed := strings.Split(stdout.String(), "\n")
	return slices.DeleteFunc(slices.Clone(wanted), func(name string) bool { return slices.Contains(installed, "installed "+name) }), nil
}

// script installs the charting script by npm ci unless the pinned bytes are there already.
func script(ctx context.Context, root string, out io.Writer) error {
	err := CheckScript(root)
	if err == nil {
		fmt.Fprintln(out, "charting script: the pinned bytes are installed")
		return nil
	}
	if os.Getenv("ECHARTS_JS") != "" {
		return fmt.Errorf("ECHARTS_JS: %w", err)
	}
	fmt.Fprintln(out, "charting script: npm ci")
	dir := filepath.Join(root, "internal", "figures", "npm")
	args := []string{"ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"}
	if err := child.Run(ctx, child.Cmd{Name: "npm", Args: args, Dir: dir, Stdout: out, Stderr: out}); err != nil {
		return fmt.Errorf("install the charting script (is the npm registry reachable?): %w", err)
	}
	return CheckScript(root)
}

// CheckScript compares the charting script with the pinned hash.
func CheckScript(root string) error {
	_, err := figures.NewRenderer(figures.ScriptPath(root))
	return err
}
