package lease

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strconv"
	"time"

	"shardlease/pkg/groupcommit/vfs"
)

// A record file is one JSON object and a newline. Its last member is "checksum", spelled exactly as appendRecord does: the CRC-32C
// of all bytes before it. So a damaged byte anywhere is seen, and members of a later minor version are covered and kept.
const (
	recordFormat = "shardlease-record-v1"
	checksumHead = `,"checksum":"`
	checksumTail = "\"}\n"
	trailerLen   = len(checksumHead) + 8 + len(checksumTail)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type field int

const (
	fFormat field = iota
	fID
	fStatus
	fFence
	fNonce
	fOwner
	fWorker
	fPreviousOwner
	fAttempts
	fSteals
	fPayload // this and the next are optional, as are the last four but the checksum
	fManifest
	fUpdated
	fTTL
	fCompleted
	fTarget
	fTargets
	fSession
	fChecksum
	numFields
)

var fieldNames = [numFields]string{"format", "id", "status", "fence", "nonce", "owner", "worker", "previous_owner", "attempts",
	"steals", "payload", "manifest", "updated_ns", "ttl_ns", "completed_ns", "target", "targets", "session", "checksum"}

func (f field) optional() bool {
	return f == fPayload || f == fManifest || f == fCompleted || f == fTarget || f == fTargets || f == fSession
}

// appendRecord appends r's file to dst. r must pass check.
func appendRecord(dst []byte, r *Record) []byte {
	start := len(dst)
	dst = append(dst, `{"format":"`+recordFormat+`","id":"`...)
	dst = hex.AppendEncode(dst, r.ID[:])
	dst = append(dst, `","status":"`...)
	dst = append(dst, r.Status...)
	dst = append(dst, `","fence":`...)
	dst = strconv.AppendUint(dst, r.Token.Fence, 10)
	dst = append(dst, `,"nonce":"`...)
	dst = hex.AppendEncode(dst, r.Token.Nonce[:])
	dst = append(dst, `","owner":`...)
	dst = appendString(dst, r.Holder.Owner)
	dst = append(dst, `,"worker":`...)
	dst = strconv.AppendInt(dst, int64(r.Holder.Worker), 10)
	dst = append(dst, `,"previous_owner":`...)
	dst = appendString(dst, r.PreviousOwner)
	dst = append(dst, `,"attempts":`...)
	dst = strconv.AppendInt(dst, int64(r.Attempts), 10)
	dst = append(dst, `,"steals":`...)
	dst = strconv.AppendInt(dst, int64(r.Steals), 10)
	if r.Payload != nil {
		dst = append(dst, `,"payload":`...)
		dst = append(dst, r.Payload...)
	}
	if r.Manifest != nil {
		dst = append(dst, `,"manifest":`...)
		dst = append(dst, r.Manifest...)
	}
	dst = append(dst, `,"updated_ns":`...)
	dst = strconv.AppendInt(dst, r.Updated.UnixNano(), 10)
	dst = append(dst, `,"ttl_ns":`...)
	dst = strconv.AppendInt(dst, int64(r.TTL), 10)
	if !r.Completed.IsZero() {
		dst = append(dst, `,"completed_ns":`...)
		dst = strconv.AppendInt(dst, r.Completed.UnixNano(), 10)
	}
	if r.Targets != nil {
		dst = append(dst, `,"target":`...)
		dst = strconv.AppendUint(dst, r.Target, 10)
		sep := byte('[')
		dst = append(dst, `,"targets":`...)
		for _, target := range r.Targets {
			dst = strconv.AppendUint(append(dst, sep), target, 10)
			sep = ','
		}
		dst = append(dst, ']')
	}
	if r.session != (sessionID{}) {
		dst = append(dst, `,"session":"`...)
		dst = append(hex.AppendEncode(dst, r.session[:]), '"')
	}
	dst = append(dst, r.extra...)
	return appendTrailer(dst, dst[start:])
}

// appendTrailer appends the member with the checksum of body, which ends the file.
func appendTrailer(dst, body []byte) []byte {
	sum := crc32.Checksum(body, castagnoli)
	dst = append(dst, checksumHead...)
	dst = hex.AppendEncode(dst, []byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
	return append(dst, checksumTail...)
}

// appendString appends a JSON string. Owner names are plain as a rule; the rest goes through encoding/json.
func appendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s) // a string always marshals
			return append(dst, quoted...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

// decodeRecord reads the file of id, strictly. The record aliases data. Every error matches ErrCorrupt.
func decodeRecord(data []byte, id ID, limit int) (Record, error) {
	r, err := parseRecord(data, limit)
	if err == nil && r.ID != id {
		err = fmt.Errorf("it names the id %s", r.ID)
	}
	if err == nil {
		err = r.check()
	}
	if err != nil {
		return Record{}, fmt.Errorf("%w: %s: %w", ErrCorrupt, id, err)
	}
	return r, nil
}

// unpadded takes off the white space that some content strategies add after the newline that ends a record.
func unpadded(data []byte) []byte {
	if end := len(bytes.TrimRight(data, " \t\n")); end < len(data) && data[end] == '\n' {
		return data[:end+1]
	}
	return data
}

func parseRecord(data []byte, limit int) (Record, error) {
	data = unpadded(data)
	if len(data) > limit {
		return Record{}, fmt.Errorf("%d bytes: %w", len(data), vfs.ErrTooLarge)
	}
	var p parser
	var extra []byte
	if !splitCanonical(data, &p.values) {
		p.values = [numFields][]byte{}
		if !json.Valid(data) {
			return Record{}, errors.New("not one JSON value")
		}
		var err error
		if extra, err = splitMembers(data, &p.values); err != nil {
			return Record{}, err
		}
	}
	if format := p.text(fFormat); p.err == nil && format != recordFormat { // first: all else may differ in another version
		return Record{}, fmt.Errorf("format %.40q is unknown, this version reads %q", format, recordFormat)
	}
	for f := range p.values {
		if p.values[f] == nil && !field(f).optional() {
			return Record{}, fmt.Errorf("member %q is missing", fieldNames[f])
		}
	}
	p.checksum(data)
	r := Record{
		Status: Status(p.text(fStatus)),
		Holder: Holder{Owner: p.text(fOwner), Worker: int(p.number(fWorker, math.MaxInt))},
		Token:  Token{Fence: p.number(fFence, maxFence)},

		PreviousOwner: p.text(fPreviousOwner),
		Attempts:      int(p.number(fAttempts, maxCount)),
		Steals:        int(p.number(fSteals, maxCount)),
		Payload:       p.values[fPayload],
		Manifest:      p.values[fManifest],
		Updated:       time.Unix(0, int64(p.number(fUpdated, math.MaxInt64))).UTC(),
		TTL:           time.Duration(p.number(fTTL, math.MaxInt64)),
		extra:         extra,
	}
	p.hex(fID, r.ID[:])
	p.hex(fNonce, r.Token.Nonce[:])
	if p.values[fCompleted] != nil {
		r.Completed = time.Unix(0, int64(p.number(fCompleted, math.MaxInt64))).UTC()
	}
	if p.values[fSession] != nil {
		p.hex(fSession, r.session[:])
	}
	if p.values[fTarget] != nil || p.values[fTargets] != nil {
		r.Target = p.number(fTarget, math.MaxUint64)
		r.Targets = p.numbers(fTargets)
	}
	return r, p.err
}

// splitMembers sorts the members of the object into values, and the unknown ones into extra. data is valid JSON.
func splitMembers(data []byte, values *[numFields][]byte) (extra []byte, err error) {
	i := skipSpace(data, 0)
	if data[i] != '{' {
		return nil, errors.New("not an object")
	}
	var unknown []string
	for i = skipSpace(data, i+1); data[i] != '}'; i = skipSpace(data, i) {
		if data[i] == ',' {
			i = skipSpace(data, i+1)
		}
		start := i
		i = skipValue(data, i)
		name := data[start+1 : i-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			var s string
			if err := json.Unmarshal(data[start:i], &s); err != nil {
				return nil, err
			}
			name = []byte(s)
		}
		i = skipSpace(data, skipSpace(data, i)+1) // the colon
		from := i
		i = skipValue(data, i)
		f := slices.Index(fieldNames[:], string(name))
		if f < 0 {
			if slices.Contains(unknown, string(name)) {
				return nil, fmt.Errorf("member %.40q twice", name)
			}
			unknown = append(unknown, string(name))
			extra = append(append(extra, ','), data[start:i]...)
			continue
		}
		if values[f] != nil {
			return nil, fmt.Errorf("member %q twice", name)
		}
		values[f] = data[from:i:i]
	}
	return extra, nil
}

func skipSpace(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\t' || data[i] == '\n' || data[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns the end of the JSON value that starts at i, some index up to len(data) if there is none.
func skipValue(data []byte, i int) int {
	depth := 0
	for ; i < len(data); i++ {
		switch c := data[i]; c {
		case '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		case ',', ':', ' ', '\t', '\n', '\r':
			continue
		default: // number, true, false, null
			for i+1 < len(data) && bytes.IndexByte([]byte(",]} \t\n\r"), data[i+1]) < 0 {
				i++
			}
		}
		if depth == 0 {
			return min(i+1, len(data))
		}
	}
	return len(data)
}

// parser turns raw members into typed values and keeps the first error.
type parser struct {
	values [numFields][]byte
	err    error
}

func (p *parser) fail(f field, want string) {
	if p.err == nil {
		p.err = fmt.Errorf("member %q is %.40q, want %s", fieldNames[f], p.values[f], want)
	}
}

// checksum also sees to it that the checksum is the last member and that nothing follows the object.
func (p *parser) checksum(data []byte) {
	if len(data) < trailerLen {
		p.fail(fChecksum, "it at the end")
		return
	}
	body, trailer := data[:len(data)-trailerLen], data[len(data)-trailerLen:]
	var buf [trailerLen]byte
	if !bytes.Equal(trailer, appendTrailer(buf[:0], body)) {
		p.fail(fChecksum, fmt.Sprintf("the file to end in %q", appendTrailer(nil, body)))
	}
}

func (p *parser) text(f field) string {
	raw := p.values[f]
	if len(raw) < 2 || raw[0] != '"' {
		p.fail(f, "a string")
		return ""
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return plainText(raw[1 : len(raw)-1])
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		p.fail(f, "a string")
	}
	return s
}

// plainText spares the allocation for the texts that are in every record.
func plainText(raw []byte) string {
	switch string(raw) {
	case recordFormat:
		return recordFormat
	case string(Leased):
		return string(Leased)
	case string(Committing):
		return string(Committing)
	}
	return string(raw)
}

func (p *parser) number(f field, limit uint64) uint64 {
	n, ok := parseUint(p.values[f], limit)
	if !ok {
		p.fail(f, fmt.Sprintf("an integer from 0 to %d", limit))
	}
	return n
}

// parseUint accepts JSON's plain integers only: no sign, fraction, exponent or leading zero.
func parseUint(raw []byte, limit uint64) (uint64, bool) {
	n, err := strconv.ParseUint(string(raw), 10, 64)
	return n, err == nil && n <= limit
}

func (p *parser) numbers(f field) []uint64 {
	raw := p.values[f]
	if len(raw) < 2 || raw[0] != '[' {
		p.fail(f, "a list of integers")
		return nil
	}
	list := []uint64{}
	for part := range bytes.SplitSeq(raw[1:len(raw)-1], []byte{','}) {
		n, ok := parseUint(bytes.TrimSpace(part), math.MaxUint64)
		if !ok || len(list) == MaxGroup {
			p.fail(f, fmt.Sprintf("a list of at most %d integers", MaxGroup))
			return nil
		}
		list = append(list, n)
	}
	return list
}

func (p *parser) hex(f field, dst []byte) {
	raw := p.values[f]
	ok := len(raw) == 2*len(dst)+2 && raw[0] == '"' && !bytes.ContainsAny(raw, "ABCDEF")
	if ok {
		_, err := hex.Decode(dst, raw[1:len(raw)-1])
		ok = err == nil
	}
	if !ok {
		p.fail(f, fmt.Sprintf("%d lower-case hex digits", 2*len(dst)))
	}
}
