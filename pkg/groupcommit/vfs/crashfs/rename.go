package crashfs

import "syscall"

// rename moves a name. Within a directory it is one operation, across directories two: see the package comment.
func (d *disk) rename(oldname, newname string, replace bool) error {
	from, to, err := d.findBoth(oldname, newname)
	if err != nil {
		return err
	}
	switch {
	case from.dir == 0 || to.dir == 0:
		return syscall.EBUSY
	case from.ino == 0:
		return from.missing()
	case len(to.base) > maxName:
		return syscall.ENAMETOOLONG
	case to.ino != 0 && !replace:
		return syscall.EEXIST
	case to.ino == from.ino:
		return nil // two names of one file: rename(2) does nothing
	}
	if err := d.movable(from, to); err != nil {
		return err
	}
	if to.ino != 0 {
		if err := d.replaceable(from, to); err != nil {
			return err
		}
	}
	arrival, departure := entry{to.base, from.ino}, entry{from.base, 0}
	takes := []string{from.base}
	if from.dir == to.dir {
		d.names(to.dir, "rename "+from.base+" to "+to.base, takes, arrival, departure)
		return nil
	}
	d.names(to.dir, "arrival of "+to.base, nil, arrival)
	d.namesWithSeq(from.dir, "departure of "+from.base, takes, departure)
	return nil
}

// findBoth resolves the directories of both names before anybody looks at the names, as rename(2) does.
func (d *disk) findBoth(name1, name2 string) (p1, p2 place, err error) {
	if p1, err = d.resolve(name1); err == nil {
		p2, err = d.resolve(name2)
	}
	return p1, p2, err
}

// movable says whether the inode may get a name in the directory of to.
func (d *disk) movable(from, to place) error {
	if !d.inodes[from.ino].dir || from.dir == to.dir {
		return nil
	}
	if d.holds(from.ino, to.dir) {
		return syscall.EINVAL
	}
	return syscall.EXDEV
}

// holds says whether dir is or contains the directory below.
func (d *disk) holds(dir, below int) bool {
	if dir == below {
		return true
	}
	for _, child := range d.inodes[dir].names {
		if d.inodes[child].dir && d.holds(child, below) {
			return true
		}
	}
	return false
}

func (d *disk) replaceable(from, to place) error {
	old, new := d.inodes[from.ino], d.inodes[to.ino]
	switch {
	case new.dir && !old.dir:
		return syscall.EISDIR
	case old.dir && !new.dir:
		return syscall.ENOTDIR
	case new.dir && len(new.names) > 0:
		return syscall.ENOTEMPTY
	}
	return nil
}

func (d *disk) exchange(name1, name2 string) error {
	a, b, err := d.findBoth(name1, name2)
	if err != nil {
		return err
	}
	switch {
	case a.dir == 0 || b.dir == 0:
		return syscall.EBUSY
	case a.ino == 0:
		return a.missing()
	case b.ino == 0:
		return b.missing()
	case a.ino == b.ino:
		return nil
	}
	if err := d.movable(a, b); err != nil {
		return err
	}
	if err := d.movable(b, a); err != nil {
		return err
	}
	if a.dir == b.dir {
		d.names(a.dir, "exchange "+a.base+" and "+b.base, []string{a.base, b.base}, entry{a.base, b.ino}, entry{b.base, a.ino})
		return nil
	}
	d.names(a.dir, "exchange of "+a.base, []string{a.base}, entry{a.base, b.ino})
	d.namesWithSeq(b.dir, "exchange of "+b.base, []string{b.base}, entry{b.base, a.ino})
	return nil
}
