package sysfault

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

var calls = append(common,
	call{name: "open", nr: unix.SYS_OPEN, fd: -1, path: at(-1, 0)},
	call{name: "open", nr: unix.SYS_CREAT, fd: -1, path: at(-1, 0)},
	call{name: "rename", nr: unix.SYS_RENAME, fd: -1, path: at(-1, 0, -1, 1)},
	call{name: "unlink", nr: unix.SYS_UNLINK, fd: -1, path: at(-1, 0)},
	call{name: "unlink", nr: unix.SYS_RMDIR, fd: -1, path: at(-1, 0)},
	call{name: "mkdir", nr: unix.SYS_MKDIR, fd: -1, path: at(-1, 0)},
	call{name: "link", nr: unix.SYS_LINK, fd: -1, path: at(-1, 0, -1, 1)},
)
