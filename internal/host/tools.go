package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os/exec"
	"strings"
	"sync"
	"time"

	"shardlease/internal/child"
)

// versions says how each tool tells its version; the first line is kept.
var versions = []struct {
	name string
	argv []string
}{
	{"gcc", []string{"gcc", "--version"}},
	{"libc", []string{"getconf", "GNU_LIBC_VERSION"}},
	{"mpirun", []string{"mpirun", "--version"}},
	{"node", []string{"node", "--version"}},
	{"npm", []string{"npm", "--version"}},
	{"strace", []string{"strace", "--version"}},
	{"rsvg-convert", []string{"rsvg-convert", "--version"}},
	{"chromium", []string{"chromium", "--version"}},
	{"git", []string{"git", "--version"}},
	{"font sans-serif", []string{"fc-match", "DejaVu Sans"}},
	{"font CJK", []string{"fc-match", "Noto Sans CJK SC"}},
}

// slowTool is generous: a browser's first start on a busy machine takes seconds.
const slowTool = 20 * time.Second

func tools(ctx context.Context) map[string]string {
	m := map[string]string{}
	for _, t := range versions {
		m[t.name] = Version(ctx, t.argv...)
	}
	return m
}

// told remembers what each program said: a browser takes a second to tell its version.
var told sync.Map

// Version runs a program that prints its version and returns the first line, or Unavailable. Each program is asked once.
func Version(ctx context.Context, argv ...string) string {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return Unavailable
	}
	key := path + " " + strings.Join(argv[1:], " ")
	if v, ok := told.Load(key); ok {
		return v.(string)
	}
	v := version(ctx, argv)
	if v != Unavailable {
		told.Store(key, v)
	}
	return v
}

func version(ctx context.Context, argv []string) string {
	ctx, cancel := context.WithTimeout(ctx, slowTool)
	defer cancel()
	out, err := child.Output(ctx, argv[0], argv[1:]...)
	line, _, _ := strings.Cut(out, "\n")
	if err != nil || line == "" {
		return Unavailable
	}
	return strings.TrimSpace(line)
}

// Git describes the checkout: commit, whether anything is uncommitted, and a hash of what is. "diff" holds the
// uncommitted changes themselves and is for the run's own file, not for env.json.
func Git(ctx context.Context, root string) map[string]string {
	facts := map[string]string{"commit": Unavailable, "dirty": Unavailable, "diff_sha256": Unavailable, "describe": Unavailable}
	commit, err := child.OutputIn(ctx, root, "git", "rev-parse", "HEAD")
	if err != nil {
		return facts
	}
	facts["commit"] = commit
	status, err := child.OutputIn(ctx, root, "git", "status", "--porcelain")
	if err != nil {
		return facts
	}
	facts["dirty"], facts["diff_sha256"] = "false", ""
	if status != "" {
		facts["dirty"] = "true"
		diff := Diff(ctx, root)
		sum := sha256.Sum256([]byte(status + "\n" + diff))
		facts["diff_sha256"] = hex.EncodeToString(sum[:])
	}
	if tag, err := child.OutputIn(ctx, root, "git", "describe", "--always", "--tags", "--dirty"); err == nil {
		facts["describe"] = tag
	}
	return facts
}

// Diff is what differs from the commit, new files included by name and content hash only.
func Diff(ctx context.Context, root string) string {
	diff, err := child.OutputIn(ctx, root, "git", "diff", "HEAD")
	if err != nil {
		return Unavailable
	}
	const script = `git ls-files --others --exclude-standard -z | xargs -0 -r sha256sum --`
	untracked, err := child.OutputIn(ctx, root, "sh", "-c", script)
	if err != nil {
		untracked = Unavailable
	}
	return diff + "\n# untracked\n" + untracked + "\n"
}
