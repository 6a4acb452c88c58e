// Package nbd serves a recording disk over the NBD protocol (fixed newstyle, one export without a name), so that a virtual machine can
// use it without root. FUA is not offered, so that a forced write arrives as a write and a flush.
package nbd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"shardlease/experiments/powercut/rig/recdisk"
)

const (
	magic        = 0x4e42444d41474943 // "NBDMAGIC"
	optionMagic  = 0x49484156454f5054 // "IHAVEOPT"
	replyMagic   = 0x3e889045565a9
	requestMagic = 0x25609513
	answerMagic  = 0x67446698

	fixedNewstyle, noZeroes = 1, 2

	optExportName, optAbort, optInfo, optGo    = 1, 2, 6, 7
	repAck, repInfo, repUnsupported            = 1, 3, 1<<31 + 1
	hasFlags, sendFlush, sendTrim              = 1, 4, 32
	cmdRead, cmdWrite, cmdStop, cmdFlush, trim = 0, 1, 2, 3, 4

	maxLength = 64 << 20 // of a request or an option
)

// Serve answers clients of l until it is closed. Several may be connected; they share the disk.
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
			if negotiate(c, d) == nil {
				_ = transmit(c, d) // ends when the machine is killed
			}
		}()
	}
}

var order = binary.BigEndian

func write(w io.Writer, fields ...any) error {
	var buf []byte
	for _, f := range fields {
		var err error
		if buf, err = binary.Append(buf, order, f); err != nil {
			return err
		}
	}
	_, err := w.Write(buf)
	return err
}

type option struct {
	Magic       uint64
	Option, Len uint32
}

// negotiate answers options until the client asks for the export.
func negotiate(c net.Conn, d *recdisk.Disk) error {
	if err := write(c, uint64(magic), uint64(optionMagic), uint16(fixedNewstyle|noZeroes)); err != nil {
		return err
	}
	var flags uint32
	if err := binary.Read(c, order, &flags); err != nil {
		return err
	}
	for {
		var o option
		if err := binary.Read(c, order, &o); err != nil {
			return err
		}
		if o.Magic != optionMagic || o.Len > maxLength {
			return fmt.Errorf("nbd: not an option: %+v", o)
		}
		if _, err := io.CopyN(io.Discard, c, int64(o.Len)); err != nil {
			return err
		}
		reply := func(kind uint32, data ...any) error {
			return write(c, append([]any{uint64(replyMagic), o.Option, kind, uint32(binary.Size(packed(data)))}, data...)...)
		}
		size, features := uint64(d.Size()), uint16(hasFlags|sendFlush|sendTrim)
		var err error
		switch o.Option {
		case optExportName:
			err = write(c, size, features)
			if err == nil && flags&noZeroes == 0 {
				err = write(c, make([]byte, 124))
			}
			return err
		case optInfo, optGo:
			err = errors.Join(reply(repInfo, uint16(0), size, features), reply(repAck))
			if err == nil && o.Option == optGo {
				return nil
			}
		case optAbort:
			return errors.Join(reply(repAck), net.ErrClosed)
		default:
			err = reply(repUnsupported)
		}
		if err != nil {
			return err
		}
	}
}

// packed is the data of a reply in one piece, for its size.
func packed(fields []any) []byte {
	var buf []byte
	for _, f := range fields {
		buf, _ = binary.Append(buf, order, f) // of the fixed-size types above
	}
	return buf
}

type request struct {
	Magic  uint32
	Flags  uint16
	Type   uint16
	Handle uint64
	Off    uint64
	Len    uint32
}

func transmit(c net.Conn, d *recdisk.Disk) error {
	buf := make([]byte, 0, 1<<20)
	for {
		var r request
		if err := binary.Read(c, order, &r); err != nil {
			return err
		}
		if r.Magic != requestMagic || r.Len > maxLength {
			return fmt.Errorf("nbd: not a request: %+v", r)
		}
		if int(r.Len) > cap(buf) {
			buf = make([]byte, 0, r.Len)
		}
		data := buf[:0]
		var err error
		switch r.Type {
		case cmdRead:
			data = buf[:r.Len]
			_, err = d.ReadAt(data, int64(r.Off))
		case cmdWrite:
			if _, err := io.ReadFull(c, buf[:r.Len]); err != nil {
				return err
			}
			_, err = d.WriteAt(buf[:r.Len], int64(r.Off))
		case cmdStop:
			return nil
		case cmdFlush:
			err = d.Flush()
		case trim:
			err = d.Discard(int64(r.Off), int64(r.Len))
		default:
			err = syscall.EINVAL
		}
		var errno syscall.Errno
		if errors.As(err, &errno) {
			data = nil
		}
		if err := write(c, uint32(answerMagic), uint32(errno), r.Handle, data); err != nil {
			return err
		}
	}
}
