package host

import (
	"os"
	"strings"
	"testing"

	"shardlease/internal/experiment"
)

func TestEveryFactIsThereOrUnavailable(t *testing.T) {
	f := Capture(t.Context(), "../..", t.TempDir())
	for name, group := range map[string]map[string]string{
		"system": f.System, "cpu": f.CPU, "memory": f.Memory, "file system": f.FileSystem, "device": f.Device, "tools": f.Tools, "git": f.Git,
	} {
		if len(group) == 0 {
			t.Errorf("nothing about the %s", name)
		}
		for key, value := range group {
			if value == "" && key != "diff_sha256" {
				t.Errorf("%s: %s is empty", name, key)
			}
		}
	}
	if f.FileSystem["type"] == Unavailable {
		t.Error("the file system of the work folder was not found")
	}
	data, err := experiment.EncodeJSON(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{os.Getenv("HOME") + "/", "\"" + os.Getenv("USER") + "\""} {
		if len(secret) > 2 && strings.Contains(string(data), secret) {
			t.Errorf("the facts contain %s", secret)
		}
	}
}

func TestMountLineIsParsed(t *testing.T) {
	m, ok := parseMount("25 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard")
	if !ok || m != (mount{"254:0", "/", "rw,relatime", "ext4", "/dev/vda", "rw,discard"}) {
		t.Errorf("parsed %+v %v", m, ok)
	}
	if _, ok := parseMount("nonsense"); ok {
		t.Error("nonsense was accepted")
	}
}

func TestBusyHostIsNoisyAndMemoryDiskIsUnsuitable(t *testing.T) {
	calm := Facts{CPU: map[string]string{"governor": Unavailable}, FileSystem: map[string]string{"type": "ext4"}, Before: Load{LoadAvg: "0.00 0.00 0.00 1/1 1"}}
	if v, why := calm.judge(); v != experiment.Suitable || len(why) != 0 {
		t.Errorf("calm host is %s %v", v, why)
	}
	busy := calm
	busy.Before.LoadAvg = "900.00 1 1 1/1 1"
	if v, why := busy.judge(); v != experiment.Noisy || len(why) != 1 {
		t.Errorf("busy host is %s %v", v, why)
	}
	busy.FileSystem = map[string]string{"type": "tmpfs"}
	if v, why := busy.judge(); v != experiment.Unsuitable || len(why) != 2 {
		t.Errorf("memory disk is %s %v", v, why)
	}
}

func TestHomeFolderIsReplaced(t *testing.T) {
	t.Setenv("HOME", "/home/somebody")
	if got := WithoutHome("--prefix=/home/somebody/x"); got != "--prefix=$HOME/x" {
		t.Errorf("got %s", got)
	}
}
