package campaign

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"shardlease/pkg/lease"
)

// WorkOwner places a work item: the master among 0..masters-1 with the highest rendezvous score, ties to the lower rank. The score is the
// first 16 bytes, big endian, of SHA-256("symcc-work-owner-v1" NUL hash NUL rank), so that a further master takes over only
// the items that it wins.
func WorkOwner(id lease.ID, masters int) int {
	owner, best := 0, []byte(nil)
	for rank := range masters {
		sum := sha256.Sum256([]byte("symcc-work-owner-v1\x00" + id.String() + "\x00" + strconv.Itoa(rank)))
		if score := sum[:16]; best == nil || bytes.Compare(score, best) > 0 {
			owner, best = rank, bytes.Clone(score)
		}
	}
	return owner
}

// ShutdownToken is what a worker and its master prove the end of one run to each other with. groupRank counts from 1; epoch is the run's
// own random shutdown epoch, 64 hex digits, not the work epoch.
func ShutdownToken(epoch string, groupRank int) string {
	sum := sha256.Sum256([]byte("symcc-shutdown-v1\x00" + epoch + "\x00" + strconv.Itoa(groupRank)))
	return hex.EncodeToString(sum[:])
}

// Origins of a work item.
const (
	Initial   = "initial"   // a file of the input directory
	Generated = "generated" // written by a target
)

const payloadSchema = "symcc-standalone-work-v1"

// payload is what a work record carries. Keys are in alphabetical order, so that any canonical re-encoding is the same bytes.
type payload struct {
	Hash   string `json:"hash"`
	Origin string `json:"origin"`
	Schema string `json:"schema"`
}

func encodePayload(id lease.ID, origin string) json.RawMessage {
	return mustMarshal(payload{Hash: id.String(), Origin: origin, Schema: payloadSchema})
}

// checkPayload refuses a record whose payload doesn't describe the record's own item: taking it would analyse one input under the
// name of another.
func checkPayload(rec lease.Record) (payload, error) {
	p, err := DecodeStrict[payload](rec.Payload, controlLimit)
	switch {
	case err != nil:
		return p, fmt.Errorf("work record %s: payload: %w", rec.ID, err)
	case p.Schema != payloadSchema || p.Hash != rec.ID.String():
		return p, fmt.Errorf("work record %s: payload is for item %q, schema %q", rec.ID, p.Hash, p.Schema)
	case p.Origin != Initial && p.Origin != Generated:
		return p, fmt.Errorf("work record %s: unknown origin %q", rec.ID, p.Origin)
	}
	return p, nil
}

const manifestSchema = "symcc-standalone-result-commit-v1"

// manifest is what BeginCommit makes durable: all that is needed to publish a result again after a crash. Keys are in alphabetical order.
type manifest struct {
	Hashes           []string `json:"hashes"` // sorted, unique
	NumGenerated     int      `json:"num_generated"`
	Schema           string   `json:"schema"`
	StagingID        string   `json:"staging_id"` // "" if there is nothing to publish
	WorkerGlobalRank int      `json:"worker_global_rank"`
}

func decodeManifest(raw json.RawMessage, limit int) (manifest, error) {
	m, err := DecodeStrict[manifest](raw, limit)
	if err != nil {
		return m, fmt.Errorf("commit manifest: %w", err)
	}
	if m.Schema != manifestSchema {
		return m, fmt.Errorf("commit manifest: schema is %q instead of %q", m.Schema, manifestSchema)
	}
	if err := checkDeclared(m.Hashes, m.StagingID, m.NumGenerated); err != nil {
		return m, fmt.Errorf("commit manifest: %w", err)
	}
	if m.WorkerGlobalRank < 0 {
		return m, fmt.Errorf("commit manifest: worker rank %d", m.WorkerGlobalRank)
	}
	return m, nil
}

// ownerName is the lease owner of a master.
func ownerName(epoch string, rank int) string {
	return "standalone:" + epoch + ":" + strconv.Itoa(rank)
}

// writerName tells the temp files of an actor in the output directory from those of others and of other campaigns, whose epochs differ.
func writerName(epoch string, rank int) string { return epoch[:16] + "-" + strconv.Itoa(rank) }

// ownerRank is the inverse of ownerName.
func ownerRank(owner string) (int, bool) {
	i := strings.LastIndexByte(owner, ':')
	rank, err := strconv.Atoi(owner[i+1:])
	return rank, err == nil && i > 0 && rank >= 0
}

// RandomHex draws n random bytes and returns them as 2n lower-case hex digits. The source is a parameter so that a simulated campaign replays from its seed.
func RandomHex(r io.Reader, n int) (string, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return "", fmt.Errorf("random source: %w", err)
	}
	return hex.EncodeToString(b), nil
}

// IsHex tells whether s has exactly n lower-case hex digits.
func IsHex(s string, n int) bool {
	return len(s) == n && strings.Trim(s, "0123456789abcdef") == ""
}
