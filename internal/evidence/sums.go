package evidence

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// SumsFile lists every other file of a run: hash, two spaces, path with slashes, LF; sorted by the bytes of the path.
// GNU, Perl and busybox tools read it alike, because names that any of them would escape are refused.
const SumsFile = "SHA256SUMS"

// Sum is one line of SumsFile.
type Sum struct{ Path, SHA256 string }

var (
	safePart = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
	sumLine  = regexp.MustCompile(`^([0-9a-f]{64})  (\S+)$`)
)

// safePath reports whether a slash path is relative, clean and made of safe parts.
func safePath(p string) bool {
	if p != path.Clean(p) || path.IsAbs(p) {
		return false
	}
	for part := range strings.SplitSeq(p, "/") {
		if !safePart.MatchString(part) || part == ".." || part == "." {
			return false
		}
	}
	return true
}

// files lists the regular files below dir as slash paths in byte order. Links, special files and unsafe names are errors.
func files(dir string) ([]string, error) {
	var list []string
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		switch {
		case !safePath(rel):
			return fmt.Errorf("%q: a file name in evidence has only letters, digits, dot, underscore and dash", rel)
		case d.IsDir():
		case !d.Type().IsRegular():
			return fmt.Errorf("%s: evidence holds regular files only, this is %s", rel, d.Type())
		default:
			list = append(list, rel)
		}
		return nil
	})
	slices.Sort(list)
	return list, err
}

// HashFile gives the SHA-256 of a file in lower-case hex.
func HashFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close() // nothing was written
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// sums hashes every file of dir but those named in except.
func sums(dir string, except ...string) ([]Sum, error) {
	list, err := files(dir)
	if err != nil {
		return nil, err
	}
	var out []Sum
	for _, name := range list {
		if slices.Contains(except, name) {
			continue
		}
		hash, err := HashFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		out = append(out, Sum{name, hash})
	}
	return out, nil
}

func formatSums(list []Sum) []byte {
	var buf bytes.Buffer
	for _, s := range list {
		fmt.Fprintf(&buf, "%s  %s\n", s.SHA256, s.Path)
	}
	return buf.Bytes()
}

// parseSums is as strict as formatSums: what this project did not write, it does not accept.
func parseSums(data []byte) ([]Sum, error) {
	switch {
	case len(data) == 0:
		return nil, errors.New(SumsFile + " is empty: nothing was verified")
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		return nil, errors.New(SumsFile + " begins with a byte order mark: it was edited or converted")
	case bytes.ContainsRune(data, '\r'):
		return nil, errors.New(SumsFile + " has CRLF line ends: it was converted; check it out with the repository's .gitattributes")
	case data[len(data)-1] != '\n':
		return nil, errors.New(SumsFile + " does not end with a line end: it was cut short")
	}
	var out []Sum
	for i, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		m := sumLine.FindStringSubmatch(line)
		switch {
		case m == nil || !safePath(m[2]):
			return nil, fmt.Errorf("%s:%d: not a hash, two spaces and a safe path: %q", SumsFile, i+1, line)
		case m[2] == SumsFile:
			return nil, fmt.Errorf("%s:%d: lists itself", SumsFile, i+1)
		case i > 0 && out[i-1].Path >= m[2]:
			return nil, fmt.Errorf("%s:%d: %s is out of order or given twice", SumsFile, i+1, m[2])
		}
		out = append(out, Sum{m[2], m[1]})
	}
	return out, nil
}
