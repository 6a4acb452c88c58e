package lease

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// sealed is a record file with the given body (everything before the checksum member) and its right checksum.
func sealed(body string) []byte {
	return fmt.Appendf(nil, "%s,\"checksum\":\"%08x\"}\n", body, crc32.Checksum([]byte(body), castagnoli))
}

const zeroNonce = "00000000000000000000000000000000"

// goodBody is a leased record of firstOfShard0 in the order in which members are written.
var goodBody = `{"format":"shardlease-record-v1","id":"` + firstOfShard0.String() + `","status":"leased","fence":7,"nonce":"` + zeroNonce +
	`","owner":"m","worker":3,"previous_owner":"","attempts":2,"steals":1,"payload":{"n":1},"updated_ns":10000000000,"ttl_ns":10000000000`

func TestRecordFileIsOneSelfCheckingObject(t *testing.T) {
	r := Record{ID: firstOfShard0, Status: Leased, Token: Token{Fence: 7}, Holder: Holder{"m", 3}, Attempts: 2, Steals: 1,
		Payload: payload(`{"n":1}`), Updated: seconds(10), TTL: 10 * time.Second}
	got := appendRecord(nil, &r)
	if want := sealed(goodBody); !bytes.Equal(got, want) {
		t.Errorf("file is\n%swant\n%s", got, want)
	}
	back, err := decodeRecord(got, firstOfShard0, DefaultMaxRecord)
	if err != nil || !reflect.DeepEqual(back, r) {
		t.Errorf("read back %+v, %v", back, err)
	}
}

// replaced is the good record with one text replaced and the checksum made right again.
func replaced(old, new string) []byte {
	if !strings.Contains(goodBody, old) {
		panic(old)
	}
	return sealed(strings.Replace(goodBody, old, new, 1))
}

func corruptFiles() map[string][]byte {
	good := sealed(goodBody)
	flipped := bytes.Clone(good)
	flipped[len(goodBody)/2] ^= 1
	nul := bytes.Clone(good)
	copy(nul[len(nul)/2:], make([]byte, len(nul)/2))
	return map[string][]byte{
		"empty (LE-20)":              {},
		"half of it (LE-20)":         good[:len(good)/2],
		"zeros (LE-20)":              make([]byte, len(good)),
		"zeros at the end":           nul,
		"one bit flipped":            flipped,
		"no newline":                 good[:len(good)-1],
		"trailing data":              append(bytes.Clone(good), "{}"...),
		"two records":                append(bytes.Clone(good), good...),
		"array":                      []byte("[]\n"),
		"null":                       []byte("null\n"),
		"a number":                   []byte("1\n"),
		"wrong checksum":             []byte(goodBody + `,"checksum":"00000000"}` + "\n"),
		"no checksum":                []byte(goodBody + "}\n"),
		"checksum not last":          []byte(goodBody + `,"checksum":"00000000","x":1}` + "\n"),
		"checksum twice":             sealed(goodBody + `,"checksum":"00000000"`),
		"member twice":               replaced(`"worker":3`, `"worker":3,"worker":3`),
		"member twice, escaped":      replaced(`"worker":3`, `"worker":3,"w\u006frker":3`),
		"unknown member twice":       sealed(goodBody + `,"x":1,"x":1`),
		"newer format":               replaced("record-v1", "record-v2"),
		"older format":               replaced("record-v1", "record-v0"),
		"format is true":             replaced(`"shardlease-record-v1"`, "true"),
		"another id":                 replaced(firstOfShard0.String(), secondOfShard0.String()),
		"upper-case id":              replaced(firstOfShard0.String(), strings.ToUpper(firstOfShard0.String())),
		"short nonce":                replaced(zeroNonce, "00"),
		"nonce not hex":              replaced(zeroNonce, strings.Repeat("g", 32)),
		"unknown status":             replaced("leased", "released"),
		"status missing":             replaced(`"status":"leased",`, ""),
		"fence zero":                 replaced(`"fence":7`, `"fence":0`),
		"fence too large":            replaced(`"fence":7`, `"fence":9223372036854775808`),
		"fence a string":             replaced(`"fence":7`, `"fence":"7"`),
		"fence true":                 replaced(`"fence":7`, `"fence":true`),
		"fence a fraction":           replaced(`"fence":7`, `"fence":7.0`),
		"fence with exponent":        replaced(`"fence":7`, `"fence":7e0`),
		"negative worker":            replaced(`"worker":3`, `"worker":-3`),
		"owner a number":             replaced(`"owner":"m"`, `"owner":1`),
		"owner too long":             replaced(`"owner":"m"`, `"owner":"`+strings.Repeat("m", MaxOwner+1)+`"`),
		"no attempts":                replaced(`"attempts":2`, `"attempts":0`),
		"more steals than attempts":  replaced(`"steals":1`, `"steals":2`),
		"updated not finite":         replaced(`"updated_ns":10000000000`, `"updated_ns":1e999`),
		"updated NaN":                replaced(`"updated_ns":10000000000`, `"updated_ns":NaN`),
		"updated negative":           replaced(`"updated_ns":10000000000`, `"updated_ns":-1`),
		"updated overflows":          replaced(`"updated_ns":10000000000`, `"updated_ns":9223372036854775808`),
		"ttl zero":                   replaced(`"ttl_ns":10000000000`, `"ttl_ns":0`),
		"ttl null":                   replaced(`"ttl_ns":10000000000`, `"ttl_ns":null`),
		"ttl for ever":               replaced(`"ttl_ns":10000000000`, `"ttl_ns":9223372036854775807`),
		"committing, no manifest":    replaced("leased", "committing"),
		"leased with a manifest":     sealed(goodBody + `,"manifest":{}`),
		"manifest no object":         sealed(strings.Replace(goodBody, "leased", "committing", 1) + `,"manifest":[]`),
		"done, no completed_ns":      sealed(strings.Replace(goodBody, "leased", "done", 1) + `,"manifest":{}`),
		"leased with completed_ns":   sealed(goodBody + `,"completed_ns":1`),
		"target without group":       sealed(goodBody + `,"target":101`),
		"group without target":       sealed(goodBody + `,"targets":[101]`),
		"group is empty":             sealed(goodBody + `,"target":101,"targets":[]`),
		"target of another id":       sealed(goodBody + `,"target":101,"targets":[101]`),
		"nested deeper than allowed": replaced(`{"n":1}`, strings.Repeat("[", 10000)+strings.Repeat("]", 10000)),
	}
}

func TestDecoderRefusesWhatItCannotTrust(t *testing.T) {
	if _, err := decodeRecord(sealed(goodBody), firstOfShard0, DefaultMaxRecord); err != nil {
		t.Fatal(err)
	}
	for name, data := range corruptFiles() {
		if r, err := decodeRecord(data, firstOfShard0, DefaultMaxRecord); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: got %+v, %v", name, r, err)
		}
	}
	if _, err := decodeRecord(sealed(goodBody), firstOfShard0, len(sealed(goodBody))-1); !errors.Is(err, ErrCorrupt) {
		t.Errorf("too large: %v", err)
	}
}

// A record that can't be trusted is refused by every operation, left alone, listed and counted (rule 1).
func TestCorruptRecordsAreLeftAloneAndListed(t *testing.T) {
	for name, data := range corruptFiles() {
		f := newFixture(t)
		table := f.open()
		f.plant(firstOfShard0, data)
		tok := Token{Fence: 7}
		ops := map[string]func() error{
			"claim":    func() error { _, err := table.Claim(bg, firstOfShard0, nil, Holder{}); return err },
			"takeover": func() error { _, err := table.TakeOver(bg, firstOfShard0, nil, Holder{}); return err },
			"beat":     func() error { return table.Heartbeat(bg, firstOfShard0, tok) },
			"begin":    func() error { return table.BeginCommit(bg, firstOfShard0, tok, payload("{}")) },
			"complete": func() error { _, err := table.Complete(bg, firstOfShard0, tok, nil); return err },
			"abandon":  func() error { return table.Abandon(bg, firstOfShard0, tok) },
			"lookup":   func() error { _, err := table.Lookup(firstOfShard0); return err },
		}
		for op, call := range ops {
			if err := call(); !errors.Is(err, ErrCorrupt) || errors.Is(err, ErrLost) {
				t.Errorf("%s of a record that is %s: %v", op, name, err)
			}
		}
		listed := 0
		for r, err := range table.Records(bg) {
			if listed++; r.ID != firstOfShard0 || !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: listed as %v, %v", name, r.ID, err)
			}
		}
		counts, err := table.Counts(bg)
		f.must(err)
		if listed != 1 || counts != (Counts{Corrupt: 1}) {
			t.Errorf("%s: listed %d times, counts %+v", name, listed, counts)
		}
		if !bytes.Equal(f.bytes(firstOfShard0), data) || f.writes() > 0 {
			t.Errorf("%s: the file was touched", name)
		}
	}
}

func TestUnknownMembersAreKeptThroughEveryRewrite(t *testing.T) {
	f := newFixture(t)
	table := f.open()
	const more = `,"x-note": {"a" : [1, 2]},"zone":"\u00e4"`
	f.must(writeAll(f.file(firstOfShard0), sealed(goodBody+more)))
	tok := Token{Fence: 7}
	f.must(table.Heartbeat(bg, firstOfShard0, tok))
	f.must(table.Abandon(bg, firstOfShard0, tok))
	tok = f.claim(table, firstOfShard0, "n")
	f.must(table.BeginCommit(bg, firstOfShard0, tok, payload("{}")))
	_, err := table.Complete(bg, firstOfShard0, tok, publishNothing)
	f.must(err)
	if got := string(f.bytes(firstOfShard0)); !strings.Contains(got, more) {
		t.Errorf("unknown members are gone: %s", got)
	}
}

func genRecord(t *rapid.T) Record {
	status := rapid.SampledFrom([]Status{Leased, Committing, Done, Abandoned}).Draw(t, "status")
	raw := func(name string) json.RawMessage {
		return payload(rapid.SampledFrom([]string{"{}", `{"a":[1,2.5e3,"\u00e4"]}`, `{"checksum":"x"}`}).Draw(t, name))
	}
	owner := rapid.StringN(-1, -1, MaxOwner)
	r := Record{ID: firstOfShard0, Status: status, Attempts: rapid.IntRange(1, maxCount).Draw(t, "attempts"),
		Token: Token{Fence: rapid.Uint64Range(1, maxFence).Draw(t, "fence")}, Holder: Holder{Worker: rapid.IntRange(0, 1<<40).Draw(t, "worker")},
		Updated: time.Unix(0, rapid.Int64Min(0).Draw(t, "updated")).UTC(), TTL: time.Duration(rapid.Int64Range(1, int64(MaxTTL)).Draw(t, "ttl"))}
	r.Holder.Owner = strings.ToValidUTF8(owner.Draw(t, "owner"), "")
	r.PreviousOwner = strings.ToValidUTF8(owner.Draw(t, "previous"), "")
	r.Steals = rapid.IntRange(0, r.Attempts-1).Draw(t, "steals")
	copy(r.Token.Nonce[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "nonce"))
	if rapid.Bool().Draw(t, "has payload") {
		r.Payload = raw("payload")
	}
	if status == Committing || status == Done {
		r.Manifest = raw("manifest")
	}
	if status == Done {
		r.Completed = time.Unix(0, rapid.Int64Min(0).Draw(t, "completed")).UTC()
	}
	if rapid.Bool().Draw(t, "in a group") {
		r.Target, r.Targets = 101, []uint64{103, 101, 105}
		r.ID = TargetID(101)
	}
	return r
}

func TestEncodedRecordsDecodeToThemselves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := genRecord(t)
		if err := r.check(); err != nil {
			t.Fatal(err)
		}
		data := appendRecord(nil, &r)
		back, err := decodeRecord(data, r.ID, len(data))
		if err != nil || !reflect.DeepEqual(back, r) {
			t.Fatalf("%+v became %+v, %v", r, back, err)
		}
		if !sameSplit(t, data) && !bytes.Contains(data, []byte(`\`)) {
			t.Fatalf("the fast way does not know %s", data)
		}
		at := rapid.IntRange(0, len(data)-1).Draw(t, "damaged byte")
		data[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
		if _, err := decodeRecord(data, r.ID, len(data)); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("damage at %d was not seen: %s", at, data)
		}
		sameSplit(t, data)
	})
}

// sameSplit reports whether the fast way takes data for a record, after making sure that the general way then finds the same in it.
func sameSplit(t interface{ Fatalf(string, ...any) }, data []byte) bool {
	var fast, general [numFields][]byte
	if !splitCanonical(data, &fast) {
		return false
	}
	if !json.Valid(data) {
		t.Fatalf("the fast way takes this for JSON: %s", data)
	}
	extra, err := splitMembers(data, &general)
	if err != nil || extra != nil || !reflect.DeepEqual(fast, general) {
		t.Fatalf("the fast way finds %q, the general one %q and %q, %v, in %s", fast, general, extra, err, data)
	}
	return true
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add(sealed(goodBody))
	f.Add(sealed(goodBody + ` , "x" : [ 1 ] `))
	for _, data := range corruptFiles() {
		if len(data) < 4096 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if end := bytes.LastIndex(data, []byte(checksumHead)); end >= 0 {
			data = sealed(string(data[:end])) // else the fuzzer never gets past the checksum
		}
		sameSplit(t, data)
		r, err := decodeRecord(data, firstOfShard0, 1<<16)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		again := appendRecord(nil, &r)
		back, err := decodeRecord(again, firstOfShard0, 1<<17)
		if err != nil || !reflect.DeepEqual(back, r) {
			t.Fatalf("accepted\n%s but its re-encoding\n%s is %+v, %v", data, again, back, err)
		}
	})
}
