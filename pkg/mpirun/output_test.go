package mpirun

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func drained(t interface{ Fatal(...any) }, major int, text string) string {
	var out bytes.Buffer
	if err := drain(&out, strings.NewReader(text), pieceTag(major), new(sync.Mutex)); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// Both pieces were seen from Open MPI 4.1.4: a tag inside a line, ranks in between.
func TestLinesAreWholeThoughMpirunCutsThem(t *testing.T) {
	for _, c := range []struct {
		major    int
		in, want string
	}{
		{4, "[1,3]<stdout>:hello\n", "[3 stdout] hello\n"},
		{5, "[job-1@1,3]<stderr>:  five\n", "[3 stderr]  five\n"},
		{4, "[1,0]<stdout>:hel[1,0]<stdout>:lo\n", "[0 stdout] hello\n"},
		{4, "[1,0]<stdout>:hel[1,1]<stdout>:other\n[1,0]<stdout>:lo\n", "[1 stdout] other\n[0 stdout] hello\n"},
		{4, "[1,2]<stdout>:no newline", "[2 stdout] no newline\n"},
		{4, "mpirun: own words\n[1,0]<stdout>:\n", "mpirun: own words\n[0 stdout] \n"},
		{4, "mpirun: cut[1,0]<stdout>:x\n", "mpirun: cut\n[0 stdout] x\n"},
		{4, "array[1,2] is fine\n", "array[1,2] is fine\n"},
	} {
		if got := drained(t, c.major, c.in); got != c.want {
			t.Errorf("%q: got %q, want %q", c.in, got, c.want)
		}
	}
}

func TestAnyCutOfTheOutputGivesTheSameLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.StringMatching(`[a-z\[\],<>: ]{0,12}`), 1, 20).Draw(t, "lines")
		want := make(map[int]string)
		rest := make(map[int]string)
		for i, w := range words {
			rank := i % 3
			want[rank] += fmt.Sprintf("[%d stdout] %s.\n", rank, w)
			rest[rank] += w + ".\n"
		}
		var printed strings.Builder
		for len(rest) > 0 {
			rank := rapid.IntRange(0, 2).Draw(t, "rank")
			if rest[rank] == "" {
				delete(rest, rank)
				continue
			}
			// A piece begins with a tag, and mpirun adds one after each newline in it.
			n := rapid.IntRange(1, len(rest[rank])).Draw(t, "cut")
			for _, part := range strings.SplitAfter(rest[rank][:n], "\n") {
				if part != "" {
					fmt.Fprintf(&printed, "[1,%d]<stdout>:%s", rank, part)
				}
			}
			rest[rank] = rest[rank][n:]
		}
		got := make(map[int]string)
		for line := range strings.Lines(drained(t, 4, printed.String())) {
			rank, _, _, ok := Untag(line)
			if !ok {
				t.Fatalf("untagged line %q of %q", line, printed.String())
			}
			got[rank] += line
		}
		for rank, text := range want {
			if got[rank] != text {
				t.Fatalf("rank %d: got %q, want %q from %q", rank, got[rank], text, printed.String())
			}
		}
	})
}

func TestUntagLeavesOtherLinesAlone(t *testing.T) {
	rank, stream, text, ok := Untag("[12 stderr] a [3 stdout] b")
	if rank != 12 || stream != "stderr" || text != "a [3 stdout] b" || !ok {
		t.Errorf("got %d %q %q %v", rank, stream, text, ok)
	}
	if _, _, text, ok := Untag("mpirun: noticed"); ok || text != "mpirun: noticed" {
		t.Errorf("got %q %v", text, ok)
	}
}

func TestDrainGoesOnWhenTheWriterFails(t *testing.T) {
	full := errors.New("disk full")
	in := &countingReader{r: strings.NewReader(strings.Repeat("line\n", 100_000))}
	if err := drain(failingWriter{full}, iotest.HalfReader(in), pieceTag4, new(sync.Mutex)); !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
	if in.n != 500_000 {
		t.Errorf("%d bytes taken, want all 500000: mpirun crashes when it can't print", in.n)
	}
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

type countingReader struct {
	r *strings.Reader
	n int
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

func TestTailKeepsTheLastFourKiB(t *testing.T) {
	var all bytes.Buffer
	tl := new(tail)
	for i := range 5000 {
		line := fmt.Sprintf("line %d\n", i)
		all.WriteString(line)
		tl.Write([]byte(line))
	}
	got := tl.bytes()
	if len(got) > tailBytes || len(got) < tailBytes-20 || !bytes.HasSuffix(all.Bytes(), got) || !bytes.HasPrefix(got, []byte("line ")) {
		t.Errorf("kept %d bytes beginning with %.20q", len(got), got)
	}
}
