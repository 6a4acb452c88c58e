// Package control is the wire between the process that serves a recording disk, the driver and the workload: one request line and
// one answer line each, over a unix socket. A mark is answered once it is in the log, so that its place among the writes is exact.
package control

import (
	"bufio"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"

	"shardlease/experiments/powercut/rig/recdisk"
)

// Serve answers requests for d until the listener is closed.
func Serve(l net.Listener, d *recdisk.Disk) error {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			lines := bufio.NewScanner(c)
			for lines.Scan() {
				answer := "ok"
				if err := handle(d, lines.Text()); err != nil {
					answer = "error " + strings.ReplaceAll(err.Error(), "\n", " ")
				}
				if _, err := fmt.Fprintln(c, answer); err != nil {
					return
				}
			}
		}()
	}
}

func handle(d *recdisk.Disk, line string) error {
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "mark":
		d.Mark(rest)
		return nil
	case "start":
		var f recdisk.Faults
		if err := json.Unmarshal([]byte(rest), &f); err != nil {
			return err
		}
		d.StartLog(f)
		return nil
	case "stop":
		return save(rest, d.StopLog())
	}
	return fmt.Errorf("unknown request %q", verb)
}

// Client talks to a Serve. It may be used by several goroutines.
type Client struct {
	mu    sync.Mutex
	conn  net.Conn
	lines *bufio.Scanner
}

// Dial connects to the socket.
func Dial(socket string) (*Client, error) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	return &Client{conn: c, lines: bufio.NewScanner(c)}, nil
}

func (c *Client) call(line string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := fmt.Fprintln(c.conn, line); err != nil {
		return err
	}
	if !c.lines.Scan() {
		return fmt.Errorf("the disk's process is gone: %w", errors.Join(c.lines.Err(), net.ErrClosed))
	}
	if answer := c.lines.Text(); answer != "ok" {
		return errors.New(strings.TrimPrefix(answer, "error "))
	}
	return nil
}

// Mark puts v as JSON into the disk's log and returns once it is there.
func (c *Client) Mark(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.call("mark " + string(b))
}

// Start begins the log; what the disk holds now is durable.
func (c *Client) Start(f recdisk.Faults) error {
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return c.call("start " + string(b))
}

// Stop ends the log and has it saved to a file, which Load reads.
func (c *Client) Stop(file string) error { return c.call("stop " + file) }

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

func save(file string, r *recdisk.Recording) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(gob.NewEncoder(f).Encode(r), f.Close())
}

// Load reads what Stop has saved.
func Load(file string) (*recdisk.Recording, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var r recdisk.Recording
	if err := gob.NewDecoder(f).Decode(&r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &r, nil
}
