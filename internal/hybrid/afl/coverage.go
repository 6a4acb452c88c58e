package afl

import (
	"encoding/binary"
	"fmt"
)

// Cell is one edge of a coverage map and the hit-count classes seen there, one bit each as AFL++ defines them:
// 1, 2, 3, 4-7, 8-15, 16-31, 32-127 and 128 or more hits.
type Cell struct {
	Edge    uint32
	Classes byte
}

// Map is a sparse coverage map: cells in rising order of their edges, none empty.
type Map []Cell

// maxEdge bounds the edge numbers a decoded map may hold; AFL++'s largest map is far below it.
const maxEdge = 1 << 26

// MarshalBinary writes each cell as the distance to the one before, in varint form, and the classes.
func (m Map) MarshalBinary() ([]byte, error) {
	out := make([]byte, 0, 3*len(m))
	prev := int64(-1)
	for _, c := range m {
		gap := int64(c.Edge) - prev
		if gap <= 0 || c.Classes == 0 {
			return nil, fmt.Errorf("coverage map: cell %d is out of order or empty", c.Edge)
		}
		out = append(binary.AppendUvarint(out, uint64(gap)), c.Classes)
		prev = int64(c.Edge)
	}
	return out, nil
}

// UnmarshalBinary reads what MarshalBinary wrote and refuses everything else.
func (m *Map) UnmarshalBinary(data []byte) error {
	var out Map
	prev := int64(-1)
	for len(data) > 0 {
		gap, n := binary.Uvarint(data)
		if n <= 0 || n == len(data) || gap == 0 || gap > maxEdge || data[n] == 0 {
			return fmt.Errorf("coverage map: malformed after %d cells", len(out))
		}
		prev += int64(gap)
		if prev >= maxEdge {
			return fmt.Errorf("coverage map: edge %d is too large", prev)
		}
		out = append(out, Cell{Edge: uint32(prev), Classes: data[n]})
		data = data[n+1:]
	}
	*m = out
	return nil
}

// sparse makes a Map of a raw map as afl-showmap -b writes it.
func sparse(raw []byte) (Map, error) {
	if len(raw) > maxEdge {
		return nil, fmt.Errorf("coverage map of %d bytes is too large", len(raw))
	}
	var m Map
	for i, classes := range raw {
		if classes != 0 {
			m = append(m, Cell{Edge: uint32(i), Classes: classes})
		}
	}
	return m, nil
}

// Coverage is the union of maps, with a version that rises with each change, so that a copy elsewhere can be brought up
// to date by the difference. The zero value is empty, at version 0. It is not safe for concurrent use.
type Coverage struct {
	seen    []byte
	changed []uint64 // version at which the cell last grew
	version uint64
	edges   int
}

// Version is 0 for the empty coverage and rises by one with each Add that found something new.
func (c *Coverage) Version() uint64 { return c.version }

// Edges is the number of covered edges.
func (c *Coverage) Edges() int { return c.edges }

// New returns the part of the map that is not covered yet.
func (c *Coverage) New(m Map) Map {
	var fresh Map
	for _, cell := range m {
		if int(cell.Edge) >= len(c.seen) {
			fresh = append(fresh, cell)
		} else if extra := cell.Classes &^ c.seen[cell.Edge]; extra != 0 {
			fresh = append(fresh, Cell{Edge: cell.Edge, Classes: extra})
		}
	}
	return fresh
}

// Add merges a map and returns what was new in it.
func (c *Coverage) Add(m Map) Map {
	fresh := c.New(m)
	if len(fresh) > 0 {
		c.version++
		c.merge(fresh)
	}
	return fresh
}

func (c *Coverage) merge(fresh Map) {
	if need := int(fresh[len(fresh)-1].Edge) + 1; need > len(c.seen) {
		c.seen = append(c.seen, make([]byte, need-len(c.seen))...)
		c.changed = append(c.changed, make([]uint64, need-len(c.changed))...)
	}
	for _, cell := range fresh {
		if c.seen[cell.Edge] == 0 {
			c.edges++
		}
		c.seen[cell.Edge] |= cell.Classes
		c.changed[cell.Edge] = c.version
	}
}

// Since returns the cells that grew after a version: the delta a copy at that version lacks. Since(0) is everything.
func (c *Coverage) Since(version uint64) Map {
	var delta Map
	for edge, at := range c.changed {
		if at > version {
			delta = append(delta, Cell{Edge: uint32(edge), Classes: c.seen[edge]})
		}
	}
	return delta
}

// Apply brings a copy to a version by the delta that Since gave for the copy's own version.
func (c *Coverage) Apply(delta Map, version uint64) {
	c.version = version
	if len(delta) > 0 {
		c.merge(delta)
	}
}
