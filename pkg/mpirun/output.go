package mpirun

import (
	"bytes"
	"io"
	"regexp"
	"strconv"
	"sync"
)

// tag is what mpirun puts before each line of a rank: [job,rank]<stream>:
var tag = regexp.MustCompile(`^\[[^,\]]*,([0-9]+)\]<(stdout|stderr)>: ?`)

// Untag takes a line of Job.Stdout or Job.Stderr apart. ok is false for a line of
// mpirun itself. mpirun prefixes each piece of output it reads; a line that a rank
// writes in several pieces, or one of more than 4 KiB, has tags in its middle.
func Untag(line string) (rank int, stream, text string, ok bool) {
	m := tag.FindStringSubmatch(line)
	if m == nil {
		return 0, "", line, false
	}
	rank, err := strconv.Atoi(m[1])
	if err != nil {
		return 0, "", line, false
	}
	return rank, m[2], line[len(m[0]):], true
}

const (
	maxLine   = 64 << 10 // longer lines are passed on in pieces
	tailBytes = 4 << 10
)

// drain copies r to w by whole lines until r ends, even when w fails, and returns
// w's first error. The lock keeps the two streams of a job from overlapping.
func drain(w io.Writer, r io.Reader, lock *sync.Mutex) error {
	var first error
	put := func(p []byte) {
		if w == nil || first != nil || len(p) == 0 {
			return
		}
		lock.Lock()
		defer lock.Unlock()
		_, first = w.Write(p)
	}
	var line []byte
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		line = append(line, buf[:n]...)
		if end := bytes.LastIndexByte(line, '\n') + 1; end > 0 {
			put(line[:end])
			line = append(line[:0], line[end:]...)
		}
		if len(line) >= maxLine || err != nil {
			put(line)
			line = line[:0]
		}
		if err != nil {
			return first
		}
	}
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
