package main

import (
	"bytes"
	"io"

	"shardlease/pkg/mpirun"
)

// untagged removes the rank tags of the launcher: the campaign's lines name their rank themselves.
type untagged struct{ w io.Writer }

func (u untagged) Write(p []byte) (int, error) {
	var out bytes.Buffer
	for line := range bytes.Lines(p) {
		if _, _, text, ok := mpirun.Untag(string(bytes.TrimSuffix(line, []byte("\n")))); ok {
			out.WriteString(text)
			out.WriteByte('\n')
			continue
		}
		out.Write(line)
	}
	if _, err := u.w.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}
