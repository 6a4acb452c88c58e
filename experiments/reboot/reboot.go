// Package reboot kills virtual machines in the middle of their work on lease tables and boots them again (beyond the report's section
// 10.1). It is the power cut for those who have no root: qemu emulates the processor, and the disk is the rig's.
package reboot

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
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
	FileSystems []string `yaml:"file_systems"`
	Cycles      int      `yaml:"cycles"` // machines killed on each disk
	Batches     int      `yaml:"batches"`
	Acks        int      `yaml:"acks"` // cut positions right after acknowledgements, and as many anywhere
	TwinAcks    int      `yaml:"twin_acks"`
}

// Reboot is the experiment.
type Reboot struct {
	spec   *experiment.Spec
	params map[experiment.Scale]params
}

// New reads the experiment's file.
func New() *Reboot {
	spec, p := experiment.MustLoad[params]("reboot", files)
	return &Reboot{spec, p}
}

// Spec returns the experiment's declaration.
func (x *Reboot) Spec() *experiment.Spec { return x.spec }

const rig = "reboot-rig"

// Programs names the rig, linked statically: it is the machine's init as well.
func (x *Reboot) Programs() []experiment.Program {
	return []experiment.Program{{Name: rig, Module: "experiments/powercut/rig", Package: ".", Tags: "netgo,osusergo"}}
}

// Run kills and boots machines. Where there is no qemu or no kernel, the reason is recorded instead.
func (x *Reboot) Run(ctx context.Context, env *experiment.Env) error {
	p := x.params[env.Scale]
	out := Raw{Scale: string(env.Scale)}
	kernel, err := kernel(ctx, env)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		out.Skipped = err.Error()
		fmt.Fprintln(env.Log, out.Skipped)
	default:
		if out.Runs, err = x.runAll(ctx, env, p, kernel); err != nil {
			return err
		}
	}
	data, err := experiment.EncodeJSON(out)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(env.Dir, rawFile), data, 0o644)
}

func (x *Reboot) runAll(ctx context.Context, env *experiment.Env, p params, kernel string) ([]Run, error) {
	var runs []Run
	for _, fs := range p.FileSystems {
		runs = append(runs, Run{FileSystem: fs, Kind: product})
	}
	runs = append(runs, Run{FileSystem: p.FileSystems[0], Kind: nodir}, Run{FileSystem: p.FileSystems[0], Kind: lying})
	for i := range runs {
		r := &runs[i]
		env.Progress(experiment.Tick{Done: i, Total: len(runs), What: r.FileSystem + ", " + r.Kind})
		result := filepath.Join(env.Work, fmt.Sprintf("result-%d.json", i))
		args := []string{"reboot", "-kernel", kernel, "-dir", filepath.Join(env.Work, "bench"), "-out", result, "-fs", r.FileSystem,
			"-seed", strconv.FormatUint(env.Seed, 10), "-batches", strconv.Itoa(p.Batches)}
		switch r.Kind {
		case product:
			args = append(args, "-cycles", strconv.Itoa(p.Cycles), "-acks", strconv.Itoa(p.Acks), "-points", strconv.Itoa(p.Acks))
		case nodir:
			args = append(args, "-cycles", "1", "-acks", strconv.Itoa(p.TwinAcks), "-twin", nodir)
		case lying:
			args = append(args, "-cycles", "1", "-acks", strconv.Itoa(p.TwinAcks), "-lying")
		}
		if err := child.Run(ctx, child.Cmd{Name: filepath.Join(env.Bin, rig), Args: args, Stderr: env.Log}); err != nil {
			return nil, fmt.Errorf("%s, %s: %w", r.FileSystem, r.Kind, err)
		}
		if err := experiment.ReadJSON(result, &r.Result); err != nil {
			return nil, err
		}
	}
	env.Progress(experiment.Tick{Done: len(runs), Total: len(runs), What: "done"})
	return runs, nil
}

// kernel returns the folder with an unpacked kernel package, which it downloads once into the build folder. Nothing is installed.
func kernel(ctx context.Context, env *experiment.Env) (string, error) {
	for _, name := range []string{"qemu-system-x86_64", "apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(name); err != nil {
			return "", fmt.Errorf("%s is missing: install qemu-system-x86 on a Debian system", name)
		}
	}
	cache := filepath.Join(env.Root, ".build", "kernel")
	unpacked := filepath.Join(cache, "unpacked")
	if _, err := os.Stat(unpacked); err == nil {
		return unpacked, nil
	}
	depends, err := child.Output(ctx, "apt-cache", "depends", "linux-image-cloud-amd64")
	if err != nil {
		return "", fmt.Errorf("find the newest kernel package: %w", err)
	}
	_, name, _ := strings.Cut(depends, "Depends: ")
	name, _, _ = strings.Cut(name, "\n")
	if name == "" {
		return "", errors.New("apt-cache names no kernel package: run apt-get update")
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	partial := filepath.Join(cache, "partial")
	if err := child.Run(ctx, child.Cmd{Name: "apt-get", Args: []string{"download", "-qq", name}, Dir: cache, Stdout: env.Log, Stderr: env.Log}); err != nil {
		return "", fmt.Errorf("download %s (is the mirror reachable?): %w", name, err)
	}
	packages, err := filepath.Glob(filepath.Join(cache, name+"_*.deb"))
	if err != nil || len(packages) == 0 {
		return "", fmt.Errorf("apt-get has downloaded no %s", name)
	}
	if err := os.RemoveAll(partial); err != nil {
		return "", err
	}
	if err := child.Run(ctx, child.Cmd{Name: "dpkg-deb", Args: []string{"-x", packages[len(packages)-1], partial}, Stdout: env.Log, Stderr: env.Log}); err != nil {
		return "", err
	}
	return unpacked, os.Rename(partial, unpacked) // whole or not at all
}
