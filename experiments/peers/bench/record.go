package main

import (
	"encoding/json"
	"errors"
	"time"

	"shardlease/pkg/lease"
)

// value is what a key-value store keeps of one lease: the same facts as a record of the lease table.
type value struct {
	ID       string          `json:"id"`
	Status   string          `json:"status"`
	Fence    uint64          `json:"fence"`
	Nonce    [16]byte        `json:"nonce"`
	Owner    string          `json:"owner"`
	Attempts int             `json:"attempts"`
	Payload  json.RawMessage `json:"payload"`
	Updated  int64           `json:"updated_ns"`
	TTL      int64           `json:"ttl_ns"`
}

func newValue(id lease.ID, c config, now time.Time) value {
	return value{ID: id.String(), Status: "leased", Fence: 1, Nonce: [16]byte(id[16:]), Owner: "bench", Attempts: 1, Payload: c.payload,
		Updated: now.UnixNano(), TTL: int64(c.ttl)}
}

var errLost = errors.New("the token does not hold the lease")

// renewed checks a stored value against its token and returns it with the new time.
func renewed(stored []byte, id lease.ID, now time.Time) ([]byte, error) {
	var v value
	if err := json.Unmarshal(stored, &v); err != nil {
		return nil, err
	}
	if v.Status != "leased" || v.Fence != 1 || v.Nonce != [16]byte(id[16:]) || now.UnixNano()-v.Updated >= v.TTL {
		return nil, errLost
	}
	v.Updated = now.UnixNano()
	return json.Marshal(v)
}
