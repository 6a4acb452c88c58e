// Package filesystems renews the same leases with every content strategy on ext4, XFS, btrfs, overlayfs and tmpfs, and on a store whose syncs
// take longer. It uses the bench of the peers experiment without its databases.
package filesystems

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"shardlease/internal/child"
	"shardlease/internal/experiment"
)

//go:embed experiment.yaml
var files embed.FS

// params are the parameters of experiment.yaml.
type params struct {
	WarmUp        int      `yaml:"warm_up_rounds"`
	Rounds        int      `yaml:"rounds"`
	LatencyRounds int      `yaml:"latency_rounds"`
	Records       int      `yaml:"records"`
	Active        int      `yaml:"active"`
	FileSystems   []string `yaml:"file_systems"`
	Latencies     []int    `yaml:"latencies_ms"`
}

// FileSystems is the experiment.
type FileSystems struct {
	spec   *experiment.Spec
	params map[experiment.Scale]params
}

// New reads the experiment's file.
func New() *FileSystems {
	spec, p := experiment.MustLoad[params]("filesystems", files)
	return &FileSystems{spec, p}
}

// Spec returns the experiment's declaration.
func (x *FileSystems) Spec() *experiment.Spec { return x.spec }

const bench = "peers-bench"

// Programs names the bench.
func (x *FileSystems) Programs() []experiment.Program {
	return []experiment.Program{{Name: bench, Module: "experiments/peers/bench", Package: "."}}
}

// The systems that are run: no databases, and with slow syncs only those whose number of syncs differs in kind.
const (
	ownSystems     = "scalar,batch,strict-overlapped,strict-wholefs,strict-spare,strict-spare-overlapped,strict-spare-wholefs,strict-auto,strict-spare-wholefs-again,one-flush,one-flush-again,limit-fdatasync"
	latencySystems = "scalar,batch,strict-spare-wholefs,one-flush,limit-fdatasync"
)

// Run makes each file system on a file of its own and mounts it in a mount namespace of the bench, so that the mounts go with its last
// process, however it ends.
func (x *FileSystems) Run(ctx context.Context, env *experiment.Env) error {
	if os.Geteuid() != 0 {
		return errors.New("this experiment mounts file systems: run it as root")
	}
	p := x.params[env.Scale]
	if env.Rounds > 0 {
		p.Rounds = env.Rounds
	}
	total := len(p.FileSystems) + len(p.Latencies)
	for i, name := range p.FileSystems {
		env.Progress(experiment.Tick{Done: i, Total: total, What: name})
		mount, err := prepare(ctx, env, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		args := p.args(env, filepath.Join(mount.dir, "bench"), p.Rounds, ownSystems)
		if err := run(ctx, env, name+".jsonl", mount.command(filepath.Join(env.Bin, bench), args)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.RemoveAll(mount.scratch); err != nil {
			return err
		}
	}
	for i, ms := range p.Latencies {
		env.Progress(experiment.Tick{Done: len(p.FileSystems) + i, Total: total, What: fmt.Sprintf("%d ms a sync", ms)})
		args := append(p.args(env, filepath.Join(env.Work, fmt.Sprintf("lat%d", ms)), p.LatencyRounds, latencySystems),
			"-latency", fmt.Sprintf("%dms", ms), "-budget", "0")
		if err := run(ctx, env, fmt.Sprintf("lat%d.jsonl", ms), append([]string{filepath.Join(env.Bin, bench)}, args...)); err != nil {
			return fmt.Errorf("%d ms a sync: %w", ms, err)
		}
	}
	env.Progress(experiment.Tick{Done: total, Total: total, What: "done"})
	return nil
}

func (p params) args(env *experiment.Env, dir string, rounds int, systems string) []string {
	return []string{
		"-dir", dir, "-records", strconv.Itoa(p.Records), "-active", strconv.Itoa(p.Active), "-rounds", strconv.Itoa(rounds),
		"-warmup", strconv.Itoa(p.WarmUp), "-seed", strconv.FormatUint(env.Seed, 10), "-systems", systems,
	}
}

func run(ctx context.Context, env *experiment.Env, file string, argv []string) error {
	out, err := os.Create(filepath.Join(env.Dir, file))
	if err != nil {
		return err
	}
	defer out.Close()
	if err := child.Run(ctx, child.Cmd{Name: argv[0], Args: argv[1:], Stdout: out, Stderr: env.Log}); err != nil {
		return err
	}
	return out.Close()
}

// mounted says how one file system is to be mounted.
type mounted struct {
	kind, options, source, dir string
	scratch                    string // holds all of it
}

// imageBytes is the size of a disk image; mkfs.xfs refuses less than 300 MB. The file is sparse.
const imageBytes = 512 << 20

// prepare makes what the mount needs, on the file system under test.
func prepare(ctx context.Context, env *experiment.Env, name string) (mounted, error) {
	m := mounted{kind: name, scratch: filepath.Join(env.Work, name)}
	m.dir = filepath.Join(m.scratch, "mnt")
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return m, err
	}
	switch name {
	case "tmpfs":
		m.source, m.options = "tmpfs", "size=256m"
		return m, nil
	case "overlay":
		m.source = "overlay"
		var parts []string
		for _, d := range []string{"lower", "upper", "work"} {
			dir := filepath.Join(m.scratch, d)
			if err := os.Mkdir(dir, 0o755); err != nil {
				return m, err
			}
			parts = append(parts, d+"dir="+dir)
		}
		m.options = strings.Join(parts, ",")
		return m, nil
	}
	makers := map[string][]string{
		"ext4": {"mkfs.ext4", "-q", "-F"}, "xfs": {"mkfs.xfs", "-q", "-f"}, "btrfs": {"mkfs.btrfs", "-q", "-f"},
	}
	maker, ok := makers[name]
	if !ok {
		return m, fmt.Errorf("unknown file system; known are ext4, xfs, btrfs, overlay, tmpfs")
	}
	m.source, m.options = filepath.Join(m.scratch, "image"), "loop"
	f, err := os.Create(m.source)
	if err != nil {
		return m, err
	}
	if err := errors.Join(f.Truncate(imageBytes), f.Close()); err != nil {
		return m, err
	}
	return m, child.Run(ctx, child.Cmd{Name: maker[0], Args: append(maker[1:], m.source), Stdout: env.Log, Stderr: env.Log,
		Env: []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin"}})
}

// command runs the bench in a mount namespace of its own. The shell sees the paths as arguments only.
func (m mounted) command(program string, args []string) []string {
	script := `mount -t "$1" -o "$2" "$3" "$4"; shift 4; exec "$@"`
	return append([]string{"unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh",
		m.kind, m.options, m.source, m.dir, program}, args...)
}
