package mpirun

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite testdata")

func TestCommandLinesAreTheGoldenOnes(t *testing.T) {
	v4 := &Launcher{Path: "/usr/bin/mpirun", Version: "4.1.4", Major: 4}
	v5 := &Launcher{Path: "/usr/bin/mpirun", Version: "5.0.3", Major: 5}
	plain := Job{Program: "/bin/prog", Args: []string{"-x", "a b"}, Ranks: 8}
	jobs := []struct {
		name   string
		change func(*Job)
	}{
		{"plain", func(*Job) {}},
		{"root", func(j *Job) { j.AllowRoot = true }},
		{"oversubscribed", func(j *Job) { j.Oversubscribe = true }},
		{"host file", func(j *Job) { j.HostFile = "hosts" }},
		{"host file and temporary directory", func(j *Job) { j.HostFile, j.TempDir = "hosts", "/scratch" }},
		{"temporary directory", func(j *Job) { j.TempDir = "/dev/shm/mpirun-1" }},
		{"extra arguments replace a parameter", func(j *Job) { j.ExtraArgs = []string{"--mca", "pml", "ucx", "--report-bindings"} }},
		{"timeout rounds up and leaves twice the grace", func(j *Job) { j.Timeout = 1500 * time.Millisecond }},
		{"timeout and grace", func(j *Job) { j.Timeout, j.Grace = time.Minute, 10*time.Second }},
		{"environment", func(j *Job) { j.Env = []string{"A=1"} }},
	}
	var got bytes.Buffer
	for _, l := range []*Launcher{v4, v5} {
		for _, c := range jobs {
			j := plain
			c.change(&j)
			argv, env, err := l.Command(j)
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			fmt.Fprintf(&got, "%s, %s\n\t%s\n\t%q\n", l.Version, c.name, strings.Join(env, " "), argv)
		}
	}
	golden := filepath.Join("testdata", "command.golden")
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("got\n%s\nwant\n%s\n(go test -update rewrites it)", &got, want)
	}
}

func TestBadJobsGetOneSentence(t *testing.T) {
	l := &Launcher{Path: "/usr/bin/mpirun", Version: "4.1.4", Major: 4}
	good := Job{Program: "/bin/true", Ranks: 2, AllowRoot: true, TempDir: t.TempDir()}
	for _, c := range []struct {
		name   string
		change func(*Job)
		want   string
	}{
		{"no program", func(j *Job) { j.Program = "" }, "no program"},
		{"no ranks", func(j *Job) { j.Ranks = 0 }, "0 ranks: want 1 or more"},
		{"negative timeout", func(j *Job) { j.Timeout = -1 }, "want 0 or more"},
		{"missing program", func(j *Job) { j.Program = "/no/such/program" }, "/no/such/program"},
		{"missing directory", func(j *Job) { j.TempDir = "/no/such/dir" }, "/no/such/dir"},
		{"more shared memory than there is (MP-11)", func(j *Job) { j.Ranks = 1 << 30 }, "ranks need"},
	} {
		j := good
		c.change(&j)
		_, err := l.Run(t.Context(), j)
		if !errors.Is(err, ErrJob) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want one line of ErrJob with %q", c.name, err, c.want)
		}
	}
	if _, _, err := new(Launcher).Command(good); !errors.Is(err, ErrJob) {
		t.Errorf("zero launcher: got %v", err)
	}
}

func TestRootMustBeAllowedExplicitly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs to run as root")
	}
	t.Setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "")
	l := &Launcher{Path: "/usr/bin/mpirun", Version: "4.1.4", Major: 4}
	_, err := l.Run(t.Context(), Job{Program: "/bin/true", Ranks: 1})
	if !errors.Is(err, ErrJob) || !strings.Contains(err.Error(), "AllowRoot") {
		t.Errorf("got %v, want ErrJob naming AllowRoot (MP-1)", err)
	}
}

func TestVersionsAreToldApart(t *testing.T) {
	for _, c := range []struct {
		text, version string
		major         int
		err           string
	}{
		{"mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n", "4.1.4", 4, ""},
		{"mpirun.openmpi (OpenRTE) 4.1.4\n", "4.1.4", 4, ""},
		{"mpirun (Open MPI) 5.0.3\n", "5.0.3", 5, ""},
		{"mpirun (Open MPI) 5.1.0a1\n", "5.1.0a1", 5, ""},
		{"mpirun (Open MPI) 3.1.6\n", "", 0, "version 3.1.6 is too old"},
		{"HYDRA build details:\n    Version:                                 4.0.2\n", "", 0, "MPICH"},
		{"Intel(R) MPI Library for Linux* OS, Version 2021.8\n", "", 0, "Intel MPI"},
		{"something else\n", "", 0, `unknown implementation: "something else"`},
		{"", "", 0, "unknown implementation"},
	} {
		version, major, err := parseVersion(c.text)
		if version != c.version || major != c.major || (err == nil) != (c.err == "") {
			t.Errorf("%q: got %q %d %v", c.text, version, major, err)
		}
		if err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: got %v, want %q in it", c.text, err, c.err)
		}
	}
}

func TestFindNamesThePackageOrWhatItFound(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := Find(t.Context()); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "openmpi-bin") {
		t.Errorf("empty PATH: got %v", err)
	}
	fake := filepath.Join(os.Getenv("PATH"), "mpirun")
	script := "#!/bin/sh\necho 'HYDRA build details:'\n"
	if err := os.WriteFile(fake, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := Find(t.Context())
	if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), fake) || !strings.Contains(err.Error(), "MPICH") {
		t.Errorf("MPICH (MP-15): got %v", err)
	}
	real := filepath.Join(os.Getenv("PATH"), "mpirun.openmpi")
	script = "#!/bin/sh\necho 'mpirun.openmpi (OpenRTE) 4.1.4'\n"
	if err := os.WriteFile(real, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if l, err := Find(t.Context()); err != nil || l.Path != real || l.Version != "4.1.4" || l.Major != 4 {
		t.Errorf("beside MPICH: got %+v %v", l, err)
	}
}

func TestAnMpirunThatDoesNotAnswerIsGivenUp(t *testing.T) {
	fake := filepath.Join(t.TempDir(), "mpirun")
	// A wrapper: its child holds the pipe.
	if err := os.WriteFile(fake, []byte("#!/bin/sh\nsleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := probe(t.Context(), fake, 300*time.Millisecond)
	if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), fake+" --version: no answer within 300ms") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := probe(ctx, fake, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
}

func TestChildEnvDropsWhatMakesAProgramARank(t *testing.T) {
	got := ChildEnv([]string{"PATH=/bin", "OMPI_COMM_WORLD_RANK=1", "PMIX_RANK=1", "PRTE_X=", "MPIRUN_WORLD_SIZE=8", "MPIRUN_JOB_A=1", "X=OMPI_"})
	want := []string{"PATH=/bin", "MPIRUN_JOB_A=1", "X=OMPI_"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
