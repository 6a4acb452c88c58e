// Package browsertest opens pages from disk in headless Chromium, for tests.
package browsertest

import (
	"bytes"
	"context"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Open opens a page of the disk, without any network where that can be arranged, and returns the page as it is after its scripts ran,
// what was logged to the console, and a screenshot. The test is skipped where there is no Chromium.
func Open(t *testing.T, page string) (dom, console string, shot []byte) {
	t.Helper()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skipf("needs chromium (apt-get install chromium): %v", err)
	}
	file := filepath.Join(t.TempDir(), "shot.png")
	argv := []string{chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
		"--enable-logging=stderr", "--virtual-time-budget=5000", "--window-size=900,700",
		"--user-data-dir=" + t.TempDir(), "--dump-dom", "--screenshot=" + file, "file://" + page}
	if os.Geteuid() == 0 {
		if unshare, err := exec.LookPath("unshare"); err == nil {
			argv = append([]string{unshare, "-n", "--"}, argv...)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &log, 5*time.Second
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, log.Bytes())
	}
	for line := range strings.SplitSeq(log.String(), "\n") {
		if strings.Contains(line, "CONSOLE") && !strings.Contains(line, "source: chrome://") { // not the browser's own pages
			console += line + "\n"
		}
	}
	if shot, err = os.ReadFile(file); err != nil {
		t.Fatal(err)
	}
	return out.String(), console, shot
}

// Inked is the share of pixels of a PNG that are not white.
func Inked(t *testing.T, data []byte) float64 {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(data)) // a file that is no PNG fails here, whatever its name
	if err != nil {
		t.Fatal(err)
	}
	b, n := img.Bounds(), 0
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			if r, g, bl, _ := img.At(x, y).RGBA(); r+g+bl < 3*0xF000 {
				n++
			}
		}
	}
	return float64(n) / float64(b.Dx()*b.Dy())
}
