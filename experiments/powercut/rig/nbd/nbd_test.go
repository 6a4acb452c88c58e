package nbd

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"shardlease/experiments/powercut/rig/recdisk"
)

// client speaks as qemu does: options first, of which some are unknown to the server, then requests.
type client struct {
	*testing.T
	net.Conn
	handle uint64
}

func (c *client) get(v any) {
	c.Helper()
	if err := binary.Read(c.Conn, order, v); err != nil {
		c.Fatal(err)
	}
}

func (c *client) put(fields ...any) {
	c.Helper()
	if err := write(c.Conn, fields...); err != nil {
		c.Fatal(err)
	}
}

func (c *client) option(opt uint32, data []byte) (kind uint32, reply []byte) {
	c.Helper()
	c.put(uint64(optionMagic), opt, uint32(len(data)), data)
	return c.reply(opt)
}

func (c *client) reply(opt uint32) (kind uint32, data []byte) {
	c.Helper()
	var head struct {
		Magic          uint64
		Opt, Kind, Len uint32
	}
	c.get(&head)
	if head.Magic != replyMagic || head.Opt != opt {
		c.Fatalf("reply %+v", head)
	}
	data = make([]byte, head.Len)
	c.get(data)
	return head.Kind, data
}

func (c *client) request(kind uint16, off uint64, n uint32, data []byte) (syscall.Errno, []byte) {
	c.Helper()
	c.handle++
	c.put(uint32(requestMagic), uint16(0), kind, c.handle, off, n, data)
	var head struct {
		Magic, Errno uint32
		Handle       uint64
	}
	c.get(&head)
	if head.Magic != answerMagic || head.Handle != c.handle {
		c.Fatalf("answer %+v", head)
	}
	if kind != cmdRead || head.Errno != 0 {
		return syscall.Errno(head.Errno), nil
	}
	got := make([]byte, n)
	c.get(got)
	return 0, got
}

func dial(t *testing.T, d *recdisk.Disk) *client {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "nbd"))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- Serve(l, d) }()
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		l.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return &client{T: t, Conn: conn}
}

func TestAClientNegotiatesAndItsRequestsReachTheLog(t *testing.T) {
	d, err := recdisk.New(16 * recdisk.BlockSize)
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, d)
	var hello struct {
		Magic, Option uint64
		Flags         uint16
	}
	c.get(&hello)
	if hello.Magic != magic || hello.Option != optionMagic {
		t.Fatalf("hello %+v", hello)
	}
	c.put(uint32(fixedNewstyle | noZeroes))
	if kind, _ := c.option(8, nil); kind != repUnsupported { // structured replies
		t.Errorf("unknown option: reply %d", kind)
	}
	kind, info := c.option(optGo, []byte{0, 0, 0, 0, 0, 0})
	if kind != repInfo || order.Uint64(info[2:]) != uint64(d.Size()) || order.Uint16(info[10:]) != hasFlags|sendFlush|sendTrim {
		t.Fatalf("reply %d, %v", kind, info)
	}
	if kind, _ := c.reply(optGo); kind != repAck {
		t.Fatalf("reply %d", kind)
	}
	d.StartLog(recdisk.Faults{FailFlushAt: 2})
	content := bytes.Repeat([]byte("x"), 1024)
	steps := []struct {
		kind uint16
		n    uint32
		data []byte
		want syscall.Errno
	}{{cmdWrite, 1024, content, 0}, {cmdFlush, 0, nil, 0}, {cmdFlush, 0, nil, syscall.EIO}, {trim, 512, nil, 0}, {99, 0, nil, syscall.EINVAL}}
	for i, s := range steps {
		if errno, _ := c.request(s.kind, 0, s.n, s.data); errno != s.want {
			t.Errorf("request %d: %v, want %v", i, errno, s.want)
		}
	}
	if errno, _ := c.request(cmdRead, uint64(d.Size()), 512, nil); errno != syscall.EINVAL {
		t.Errorf("a read beyond the end: %v", errno)
	}
	if _, got := c.request(cmdRead, 0, 1024, nil); !bytes.Equal(got, append(make([]byte, 512), content[512:]...)) {
		t.Error("read something else than was written")
	}
	var kinds []recdisk.Kind
	for _, e := range d.StopLog().Events {
		kinds = append(kinds, e.Kind)
	}
	if want := []recdisk.Kind{recdisk.Write, recdisk.Flush, recdisk.Fault, recdisk.Discard}; !slices.Equal(kinds, want) {
		t.Errorf("the log holds %v, want %v", kinds, want)
	}
	c.put(uint32(requestMagic), uint16(0), uint16(cmdStop), uint64(0), uint64(0), uint32(0))
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
}
