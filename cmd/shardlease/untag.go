package main

import (
	"bytes"
	"io"

	"shardlease/pkg/mpirun"
)

// launcherOutput passes the lines of ranks on without the launcher's tags: they name their rank themselves. mpirun's own lines are passed on too, or
// kept until flush.
type launcherOutput struct {
	w    io.Writer
	pass bool
	own  bytes.Buffer
}

// maxOwn bounds what is kept; further lines are passed on.
const maxOwn = 64 << 10

func (o *launcherOutput) Write(p []byte) (int, error) {
	var out bytes.Buffer
	for line := range bytes.Lines(p) {
		if _, _, text, ok := mpirun.Untag(string(bytes.TrimSuffix(line, []byte("\n")))); ok {
			out.WriteString(text)
			out.WriteByte('\n')
		} else if o.pass || o.own.Len() > maxOwn {
			out.Write(line)
		} else {
			o.own.Write(line)
		}
	}
	if _, err := o.w.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (o *launcherOutput) flush() error {
	_, err := o.own.WriteTo(o.w)
	return err
}
