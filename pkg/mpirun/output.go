package mpirun

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync"
)

const (
	maxLine   = 1 << 20 // longer lines are passed on in pieces
	tailBytes = 4 << 10
)

// lineTag is what this package puts before a line of a rank.
var lineTag = regexp.MustCompile(`^\[([0-9]+) (stdout|stderr)\] `)

// Untag takes a line of Job.Stdout or Job.Stderr apart: "[3 stdout] text". ok is
// false for a line of mpirun itself, which has no tag.
func Untag(line string) (rank int, stream, text string, ok bool) {
	m := lineTag.FindStringSubmatch(line)
	if m == nil {
		return 0, "", line, false
	}
	rank, err := strconv.Atoi(m[1])
	if err != nil {
		return 0, "", line, false
	}
	return rank, m[2], line[len(m[0]):], true
}

// What mpirun puts before each piece of output it has read from a rank. Version 5
// adds a blank.
var (
	pieceTag4 = regexp.MustCompile(`\[[^,\[\]\s]*,([0-9]+)\]<(stdout|stderr)>:`)
	pieceTag5 = regexp.MustCompile(pieceTag4.String() + " ?")
)

func pieceTag(major int) *regexp.Regexp {
	if major >= 5 {
		return pieceTag5
	}
	return pieceTag4
}

// demux puts the lines of the ranks together again. mpirun reads a few KiB at a time
// and passes each piece on at once, so that a line, however short, may be cut by
// a tag or by a piece of another rank.
type demux struct {
	tag    *regexp.Regexp
	emit   func([]byte)
	begun  []byte            // of what mpirun printed, no newline yet
	pieces map[string][]byte // by "rank stream": lines of ranks, no newline yet
}

// Write never fails.
func (d *demux) Write(p []byte) (int, error) {
	d.begun = append(d.begun, p...)
	for {
		end := bytes.IndexByte(d.begun, '\n') + 1
		if end == 0 {
			if len(d.begun) < maxLine {
				return len(p), nil
			}
			end = len(d.begun)
		}
		d.line(d.begun[:end])
		d.begun = append(d.begun[:0], d.begun[end:]...)
	}
}

// line takes what mpirun printed up to a newline; only its last piece ends a rank's line.
func (d *demux) line(line []byte) {
	tags := d.tag.FindAllSubmatchIndex(line, -1)
	if len(tags) == 0 {
		d.emit(line)
		return
	}
	if first := tags[0][0]; first > 0 {
		d.emit(append(bytes.Clone(line[:first]), '\n'))
	}
	for i, t := range tags {
		end := len(line)
		if i+1 < len(tags) {
			end = tags[i+1][0]
		}
		key := fmt.Sprintf("%s %s", line[t[2]:t[3]], line[t[4]:t[5]])
		d.pieces[key] = append(d.pieces[key], line[t[1]:end]...)
		if text := d.pieces[key]; bytes.HasSuffix(text, []byte("\n")) || len(text) >= maxLine {
			d.flush(key)
		}
	}
}

func (d *demux) flush(key string) {
	text := bytes.TrimSuffix(d.pieces[key], []byte("\n"))
	d.emit(fmt.Appendf(nil, "[%s] %s\n", key, text))
	delete(d.pieces, key)
}

// close passes on the lines that never got their newline.
func (d *demux) close() {
	if len(d.begun) > 0 {
		d.line(d.begun)
	}
	for _, key := range slices.Sorted(maps.Keys(d.pieces)) {
		d.flush(key)
	}
}

// drain copies mpirun's stream r to w line by line until r ends, even when w
// fails, and returns w's first error. The lock keeps the two streams of a job from
// overlapping.
func drain(w io.Writer, r io.Reader, tag *regexp.Regexp, lock *sync.Mutex) error {
	var first error
	d := &demux{tag: tag, pieces: make(map[string][]byte)}
	d.emit = func(line []byte) {
		if w == nil || first != nil {
			return
		}
		lock.Lock()
		defer lock.Unlock()
		_, first = w.Write(line)
	}
	io.Copy(d, r) // ends at the end of r; its error would say nothing but that
	d.close()
	return first
}

// tail keeps the last bytes written to it.
type tail struct{ data []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if len(t.data) > 2*tailBytes {
		t.data = append(t.data[:0], t.data[len(t.data)-2*tailBytes:]...)
	}
	return len(p), nil
}

// bytes returns at most tailBytes, beginning with a whole line if possible.
func (t *tail) bytes() []byte {
	d := t.data
	if len(d) <= tailBytes {
		return bytes.Clone(d)
	}
	d = d[len(d)-tailBytes:]
	if i := bytes.IndexByte(d, '\n'); i >= 0 && i+1 < len(d) {
		d = d[i+1:]
	}
	return bytes.Clone(d)
}
