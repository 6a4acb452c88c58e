package groupcommit

import (
	"math/rand/v2"
	"sync"
)

// A spare is the second file of a record, under its temp name. It may be overwritten in place only if the disk can't still know it
// under the live name, that is, if a barrier has succeeded that began after the exchange which retired it. Otherwise a power cut could bring back a
// live name with a half-written content.
//
// Only the process that has seen that barrier succeed can know. So the knowledge is kept in its memory, nowhere else: whoever knows
// nothing of the file under a temp name takes it for the garbage of a killed writer, as Stage does, and writes a new one. That
// covers a holder killed between exchange and barrier, a failed barrier, a change of holder, and writers with another strategy, without any mark on
// disk, and the lock of a record can be released before its barrier. A shared mark would save the new file at a change of holder, and cost two more
// writes for each renewal, or the locks of the whole batch held through its barriers.
//
// What is known names a file by the stamp at its end, 64 random bits that each content gets when it is written. A spare that
// carries the stamp that this process once gave to the live file, and retired, has not been touched since: nobody else overwrites what it
// has not retired itself, they replace it. Inode numbers would not do, they are used again.

// stampLen is the length of a stamp in the file. It ends each content written by a Spare strategy, and is white space, so that
// a JSON document stays one.
const stampLen = 64 + 1

// MaxPadding is how many bytes of white space (blanks, tabs, newlines) a Spare strategy adds at the end of a content at most, unless the
// record has shrunk: it then keeps the size it has had.
const MaxPadding = spareUnit + stampLen - 1

const (
	// spareUnit is what the size of a spare is a multiple of, so that a record may grow a bit in place.
	spareUnit = 512
	// maxSpare bounds the contents written in place. Large ones would be written twice for nothing: their cost is in the bytes.
	maxSpare = 16 << 10
	// maxKnown bounds the memory for spares, at some 200 bytes each. A record beyond it costs what it costs without a spare.
	maxKnown = 1 << 16
)

// mark names a content: the stamp it ends with, and its size. The zero mark names none.
type mark struct {
	stamp uint64
	size  int
}

// pair is what is known of the two files of a record.
type pair struct {
	live  mark // the last content that this process gave it
	spare mark // retired under a good barrier
}

// spares is what one process knows of its spares. It is safe for concurrent use.
type spares struct {
	mu    sync.Mutex
	known map[string]pair
}

// take returns what is known of name and forgets it: until the next barrier nothing is certain.
func (s *spares) take(name string) pair {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.known[name]
	delete(s.known, name)
	return p
}

func (s *spares) put(name string, p pair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = make(map[string]pair)
	}
	if len(s.known) >= maxKnown {
		for other := range s.known {
			delete(s.known, other)
			break
		}
	}
	s.known[name] = p
}

// pad appends to buf the content data, blanks and a new stamp, size bytes in all, or as many as needed if size is less.
func pad(buf, data []byte, size int) ([]byte, mark) {
	if len(data)+stampLen > size {
		size = (len(data) + stampLen + spareUnit - 1) / spareUnit * spareUnit
	}
	m := mark{stamp: rand.Uint64(), size: size}
	buf = append(buf, data...)
	for range size - len(data) - stampLen {
		buf = append(buf, ' ')
	}
	for bit := range 64 {
		buf = append(buf, " \t"[m.stamp>>bit&1])
	}
	return append(buf, '\n'), m
}

// markOf returns the mark of a content, the zero mark if it has no stamp.
func markOf(content []byte) mark {
	if len(content) < stampLen || content[len(content)-1] != '\n' {
		return mark{}
	}
	m := mark{size: len(content)}
	for bit, c := range content[len(content)-stampLen : len(content)-1] {
		switch c {
		case ' ':
		case '\t':
			m.stamp |= 1 << bit
		default:
			return mark{}
		}
	}
	return m
}
