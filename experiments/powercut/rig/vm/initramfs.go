package vm

import (
	"fmt"
	"io"
	"os"
)

// initramfs writes the newc form of a cpio archive. A device is only a header there, so that no root is needed to make one.
type initramfs struct {
	w   io.Writer
	ino int
	err error
}

func (a *initramfs) add(name string, mode, major, minor uint32, data []byte) {
	if a.err != nil {
		return
	}
	a.ino++
	header := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.ino, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(name)+1, 0)
	a.pad(header + name + "\x00")
	a.pad(string(data))
}

func (a *initramfs) pad(s string) {
	if a.err == nil {
		_, a.err = io.WriteString(a.w, s+"\x00\x00\x00"[:(4-len(s)%4)%4])
	}
}

// WriteInitramfs writes an archive in which the program is /init and the modules lie in /modules, in this order by name.
func WriteInitramfs(name, program string, modules []string) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	a := &initramfs{w: f}
	for _, dir := range []string{"dev", "proc", "sys", "mnt", "modules"} {
		a.add(dir, 0o40755, 0, 0, nil)
	}
	a.add("dev/console", 0o20600, 5, 1, nil)
	init, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	a.add("init", 0o100755, 0, 0, init)
	for i, m := range modules {
		data, err := os.ReadFile(m)
		if err != nil {
			return err
		}
		a.add(fmt.Sprintf("modules/%02d.ko", i), 0o100644, 0, 0, data)
	}
	a.add("TRAILER!!!", 0, 0, 0, nil)
	return a.err
}
