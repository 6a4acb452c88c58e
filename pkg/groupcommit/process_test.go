package groupcommit_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"shardlease/pkg/groupcommit"
	"shardlease/pkg/groupcommit/vfs"
)

// writerEnv makes the test binary a process that publishes one record for ever.
const writerEnv = "GROUPCOMMIT_TEST_WRITER"

func TestMain(m *testing.M) {
	if name := os.Getenv(writerEnv); name != "" {
		writeForEver(name)
	}
	if dir := os.Getenv(holderEnv); dir != "" {
		dieBeforeTheBarrier(dir)
	}
	os.Exit(m.Run())
}

func writeForEver(name string) {
	for i := 0; ; i++ {
		if err := groupcommit.WriteFile(vfs.OS, name, []byte(strings.Repeat(fmt.Sprint(i%10), 4096)), 0o666); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		if i == 0 {
			fmt.Println("started")
		}
	}
}

// FS-11; invariant G2: writers killed at any moment leave a whole record and at most one temp file, which the next writer
// clears away.
func TestKilledWritersLeaveWholeRecordsAndNoHeapOfTempFiles(t *testing.T) {
	dir := t.TempDir()
	rec := filepath.Join(dir, "rec")
	for range 10 {
		writer := exec.Command(os.Args[0])
		writer.Env = append(os.Environ(), writerEnv+"="+rec)
		out, err := writer.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := writer.Start(); err != nil {
			t.Fatal(err)
		}
		line := bufio.NewScanner(out)
		line.Scan()
		want(t, "writer says", line.Text(), "started")
		_ = writer.Process.Kill()
		_ = writer.Wait()
		text := content(rec)
		if len(text) != 4096 || strings.Trim(text, text[:1]) != "" {
			t.Errorf("torn record of %d bytes", len(text))
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) > 2 {
			t.Errorf("%v, %v", entries, err)
		}
	}
	want(t, "next writer", groupcommit.WriteFile(vfs.OS, rec, []byte("new"), 0o666), nil)
	want(t, "temp", content(rec+".tmp"), "<absent>")
}

// FS-17, LK-13: signals all the time; nothing fails because of one.
func TestSignalStormReachesNobody(t *testing.T) {
	dir := t.TempDir()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	defer signal.Stop(signals)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = syscall.Kill(os.Getpid(), syscall.SIGUSR1)
			}
		}
	})
	for i := range 100 {
		lock, err := vfs.OS.TryLock(filepath.Join(dir, "lock"), 0)
		if err != nil {
			t.Fatal(err)
		}
		b := groupcommit.NewBatch(vfs.OS)
		err = errors.Join(b.Publish(updates(dir, fmt.Sprint(i)))...)
		_, ferr := b.Flush()
		if err := errors.Join(err, ferr, lock.Close()); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
}
