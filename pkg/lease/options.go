package lease

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
	"unicode/utf8"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
)

// Limits and defaults of Options.
const (
	DefaultShards      = 64
	MaxShards          = 4096
	DefaultTTL         = 5 * time.Minute
	MinTTL             = time.Millisecond // less is a mistaken unit: 30 where 30*time.Second was meant
	MaxTTL             = 10 * 365 * 24 * time.Hour
	DefaultLockTimeout = 30 * time.Second
	DefaultMaxRecord   = 1 << 20
	MinMaxRecord       = 4 << 10
	MaxOwner           = 256
)

// Options configures a table. Nil and the zero value mean the defaults. Processes on one root may differ in everything but Shards.
type Options struct {
	// Shards is the number of record directories, at most MaxShards. 0 means what the root says, DefaultShards if it is new.
	// Few shards batch better (one barrier per touched shard), many keep the directories short.
	Shards int
	// TTL is how long a lease claimed through this table lives without a renewal; it is written into the record and binds all
	// readers. 0 means DefaultTTL.
	TTL time.Duration
	// LockTimeout bounds the wait for a record's lock. 0 means DefaultLockTimeout, but no more than TTL.
	LockTimeout time.Duration
	// MaxSkew is how far in the future a record's time is believed. A record beyond it counts as lapsed, since no clock
	// of the cluster can have written it in good faith. 0 means TTL.
	MaxSkew time.Duration
	// MaxRecord bounds a record's size in bytes, payload and manifest included. 0 means DefaultMaxRecord.
	MaxRecord int
	// Renewals is how this table makes renewals durable. The zero value is Strict.
	Renewals Renewals
	// Strategy is how this table makes the contents of records durable; see groupcommit.Strategy. The zero value is the report's
	// Serial. Auto is the choice for whoever renews many leases at once: it is fastest or as fast, but measures for some
	// tenths of a second in Open. Processes on one root may use different ones, and any version of them reads all records.
	Strategy groupcommit.Strategy
	// Now is the wall clock, nil means time.Now. It is read under the record's lock.
	Now func() time.Time
	// Rand is where nonces, session names and the owner of holders without a name come from, nil means crypto/rand. Another source is for simulations
	// that have to replay: two holders that draw the same nonce are one. Concurrent calls of the table read it concurrently.
	Rand io.Reader
	// FS is the file system, nil means vfs.OS.
	FS vfs.FS
}

// filled returns a copy with the defaults put in, or an error naming the first bad option.
func (o *Options) filled() (Options, error) {
	var v Options
	if o != nil {
		v = *o
	}
	if v.Shards < 0 || v.Shards > MaxShards {
		return v, fmt.Errorf("lease: Options.Shards is %d, want 1 to %d, or 0 for the default: %w", v.Shards, MaxShards, fs.ErrInvalid)
	}
	if v.TTL == 0 {
		v.TTL = DefaultTTL
	}
	if v.TTL < MinTTL || v.TTL > MaxTTL {
		return v, fmt.Errorf("lease: Options.TTL is %v, want %v to %v, or 0 for the default: %w", v.TTL, MinTTL, MaxTTL, fs.ErrInvalid)
	}
	if v.LockTimeout == 0 {
		v.LockTimeout = min(DefaultLockTimeout, v.TTL)
	}
	if v.LockTimeout < 0 {
		return v, fmt.Errorf("lease: Options.LockTimeout is %v, want a positive duration, or 0 for the default: %w", v.LockTimeout, fs.ErrInvalid)
	}
	if v.MaxSkew == 0 {
		v.MaxSkew = v.TTL
	}
	if v.MaxSkew < 0 || v.MaxSkew > MaxTTL {
		return v, fmt.Errorf("lease: Options.MaxSkew is %v, want at most %v, or 0 for the TTL: %w", v.MaxSkew, MaxTTL, fs.ErrInvalid)
	}
	if v.MaxRecord == 0 {
		v.MaxRecord = DefaultMaxRecord
	}
	if v.MaxRecord < MinMaxRecord {
		return v, fmt.Errorf("lease: Options.MaxRecord is %d, want at least %d bytes, or 0 for the default: %w", v.MaxRecord, MinMaxRecord, fs.ErrInvalid)
	}
	if v.Now == nil {
		v.Now = time.Now
	}
	if v.Rand == nil {
		v.Rand = rand.Reader
	}
	if v.FS == nil {
		v.FS = vfs.OS
	}
	return v, nil
}

// defaultOwner is unique to one open table, also among containers that share host names and process ids.
func (s *store) defaultOwner() (string, error) {
	host, err := os.Hostname()
	if err != nil || len(host) > MaxOwner/2 || !utf8.ValidString(host) {
		host = "unknown-host"
	}
	var random [8]byte
	if err := s.random(random[:]); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s:%d:%s", host, os.Getpid(), hex.EncodeToString(random[:])), nil
}

// random fills b.
func (s *store) random(b []byte) error {
	if _, err := io.ReadFull(s.opts.Rand, b); err != nil {
		return fmt.Errorf("lease: Options.Rand: %w", err)
	}
	return nil
}

func (h Holder) check() error {
	switch {
	case len(h.Owner) > MaxOwner:
		return fmt.Errorf("lease: owner name has %d bytes, want at most %d: %w", len(h.Owner), MaxOwner, fs.ErrInvalid)
	case !utf8.ValidString(h.Owner):
		return fmt.Errorf("lease: owner name %q is not valid UTF-8: %w", h.Owner, fs.ErrInvalid)
	case h.Worker < 0:
		return fmt.Errorf("lease: worker is %d, want a number that is not negative: %w", h.Worker, fs.ErrInvalid)
	}
	return nil
}
