package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"shardlease/internal/child"
	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
)

var (
	// ErrNoBrowser is returned when no PDF can be printed. The HTML is complete without it.
	ErrNoBrowser = errors.New("no PDF without Chromium; install it with: apt-get install chromium")
	// ErrNoFont is returned for a Chinese report on a host without a font for it: the PDF would be full of empty boxes.
	ErrNoFont = errors.New("no PDF without a Chinese font; install one with: apt-get install fonts-noto-cjk")
)

// PDF prints an HTML report beside it. The same report gives the same bytes on one host: the dates that Chromium writes are replaced
// by a fixed one.
func PDF(ctx context.Context, report string) error {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(report), ErrNoBrowser)
	}
	text, err := os.ReadFile(report)
	if err != nil {
		return err
	}
	if bytes.Contains(text, []byte(`<html lang="zh`)) && !chineseFont(ctx) {
		return fmt.Errorf("%s: %w", filepath.Base(report), ErrNoFont)
	}
	source, err := filepath.Abs(report)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "report-pdf-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	printed := filepath.Join(work, "report.pdf")
	var log bytes.Buffer
	err = child.Run(ctx, child.Cmd{Name: chromium, Stdout: &log, Stderr: &log, Args: []string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--user-data-dir=" + filepath.Join(work, "profile"),
		"--no-pdf-header-footer", "--print-to-pdf=" + printed, "file://" + source,
	}})
	if err != nil {
		return fmt.Errorf("chromium could not print %s: %w\n%s", filepath.Base(report), err, log.Bytes())
	}
	data, err := os.ReadFile(printed)
	if err != nil {
		return fmt.Errorf("chromium printed nothing: %w\n%s", err, log.Bytes())
	}
	return groupcommit.WriteFile(vfs.OS, strings.TrimSuffix(report, ".html")+".pdf", undated(data), 0o644)
}

func chineseFont(ctx context.Context) bool {
	out, err := exec.CommandContext(ctx, "fc-list", ":lang=zh-cn").Output()
	return err == nil && len(bytes.TrimSpace(out)) > 0
}

var pdfDate = regexp.MustCompile(`/(?:CreationDate|ModDate) \(D:(\d{14})`)

// undated replaces the dates of a PDF by one of the same length, since offsets within the file must stay.
func undated(pdf []byte) []byte {
	out := bytes.Clone(pdf)
	for _, m := range pdfDate.FindAllSubmatchIndex(out, -1) {
		copy(out[m[2]:m[3]], "20000101000000")
	}
	return out
}
