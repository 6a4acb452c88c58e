package lease

import (
	"bytes"
	"encoding/json"
)

// memberHeads are the members' names as appendRecord spells them, with what stands before and after.
var memberHeads = func() (heads [numFields][]byte) {
	for f, name := range fieldNames {
		heads[f] = []byte(`,"` + name + `":`)
	}
	heads[0][0] = '{'
	return heads
}()

// maxFastJSON bounds the payloads and manifests that splitCanonical looks at. JSON this short is not nested too deeply within a record
// if it is not so on its own.
const maxFastJSON = 4096

// splitCanonical is json.Valid and splitMembers in one pass over a file that is spelled exactly as appendRecord spells it, and so is
// nearly every file: known members in their order, no blanks, no escapes. It reports false for anything else, which says nothing
// about the file.
func splitCanonical(data []byte, values *[numFields][]byte) bool {
	i := 0
	for f := range numFields {
		if !bytes.HasPrefix(data[i:], memberHeads[f]) {
			if f.optional() {
				continue
			}
			return false
		}
		i += len(memberHeads[f])
		n := canonicalValue(f, data[i:])
		if n == 0 {
			return false
		}
		values[f] = data[i : i+n : i+n]
		i += n
	}
	return string(data[i:]) == "}\n"
}

// canonicalValue returns the length of the value at the start of data, 0 if it is to be left to the general way.
func canonicalValue(f field, data []byte) int {
	switch {
	case len(data) == 0:
		return 0
	case f == fPayload || f == fManifest || f == fTargets:
		n := 0
		if data[0] > ' ' {
			n = skipValue(data, 0)
		}
		if n > maxFastJSON || !json.Valid(data[:n]) {
			return 0
		}
		return n
	case data[0] == '"':
		for i, c := range data[1:] {
			if c == '"' {
				return i + 2
			}
			if c < ' ' || c == '\\' {
				return 0
			}
		}
		return 0
	}
	n := 0
	for n < len(data) && '0' <= data[n] && data[n] <= '9' {
		n++
	}
	if n > 1 && data[0] == '0' {
		return 0
	}
	return n
}
