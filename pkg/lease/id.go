package lease

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"io/fs"
	"strconv"
	"strings"
)

// ID names a work item: 32 bytes, 64 lower-case hex digits in text. The shard of an ID is its first 4 bytes, big endian,
// modulo the shard count, so IDs should be evenly spread: SumID makes them so.
type ID [32]byte

// ParseID reads 64 lower-case hex digits. Upper case is refused, since two spellings of one ID would be two file names.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 2*len(id) || strings.ToLower(s) != s {
		return ID{}, fmt.Errorf("lease: id %.80q is not 64 lower-case hex digits: %w", s, fs.ErrInvalid)
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return ID{}, fmt.Errorf("lease: id %.80q is not 64 lower-case hex digits: %w", s, fs.ErrInvalid)
	}
	return id, nil
}

// SumID is the ID of the item whose whole content is data: its SHA-256.
func SumID(data []byte) ID { return sha256.Sum256(data) }

// TargetID is the ID of a branch target: the SHA-256 of the text "target:<decimal>".
func TargetID(target uint64) ID {
	return sha256.Sum256(strconv.AppendUint([]byte("target:"), target, 10))
}

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText and UnmarshalText let IDs be JSON strings and JSON object keys.
func (id ID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, id[:]), nil }

func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := ParseID(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}

func compareIDs(a, b ID) int { return bytes.Compare(a[:], b[:]) }

func (id ID) shard(shards int) int {
	return int(binary.BigEndian.Uint32(id[:4]) % uint32(shards))
}

// lockKey is the record's number in its shard's lock file: a 63-bit hash of the whole ID (byte-range offsets are signed), so that
// IDs with a common prefix do not wait for each other. A collision costs waiting, never exclusion.
func (id ID) lockKey() uint64 {
	h := fnv.New64a()
	h.Write(id[:])
	return h.Sum64() >> 1
}

// Token is what a holder presents. Fence rises with each claim of one ID and never restarts, so whoever keeps the highest fence
// seen can refuse a stale holder. Nonce is random and tells two holders apart even if a record was restored from an old copy.
// The zero Token is never issued.
type Token struct {
	Fence uint64
	Nonce [16]byte
}

// String is the fence, a dash and the nonce in hex.
func (t Token) String() string {
	return strconv.FormatUint(t.Fence, 10) + "-" + hex.EncodeToString(t.Nonce[:])
}

// MarshalText and UnmarshalText let tokens travel in JSON and in logs in the form of String.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

func (t *Token) UnmarshalText(text []byte) error {
	fence, nonce, ok := strings.Cut(string(text), "-")
	n, err := strconv.ParseUint(fence, 10, 64)
	raw, err2 := hex.DecodeString(nonce)
	if !ok || err != nil || err2 != nil || len(raw) != len(t.Nonce) {
		return fmt.Errorf("lease: token %.80q is not <fence>-<32 hex digits>: %w", text, fs.ErrInvalid)
	}
	t.Fence = n
	copy(t.Nonce[:], raw)
	return nil
}

// Holder says who claims.
type Holder struct {
	// Owner is the name other processes see; "" means host:pid:random, made once for each open table.
	// At most MaxOwner bytes of valid UTF-8.
	Owner string
	// Worker is a number of the owner's choosing, not negative: the executing rank, say.
	Worker int
}
