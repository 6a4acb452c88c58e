// Command rig cuts the power of real file systems that hold a lease table, thousands of times, without pulling a plug.
//
// It is driven by the powercut experiment; each subcommand explains itself with -h.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"shardlease/experiments/powercut/rig/control"
	"shardlease/experiments/powercut/rig/fusedisk"
	"shardlease/experiments/powercut/rig/guest"
	"shardlease/experiments/powercut/rig/recdisk"
)

var commands map[string]func(ctx context.Context, args []string) error

func init() {
	commands = map[string]func(ctx context.Context, args []string) error{
		"serve": serve, "workload": runWorkload, "sweep": runSweep, "broken": runBroken, "reboot": runReboot, "cleanup": cleanUp,
	}
}

func main() {
	if os.Getpid() == 1 {
		guest.Main()
	}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: rig sweep|broken|reboot|cleanup|serve|workload ...   (-h explains each)")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go followParent(stop)
	if err := commands[os.Args[1]](ctx, os.Args[2:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "rig %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

// followParent ends this program when its parent has died, so that nothing of a killed experiment goes on working.
func followParent(stop func()) {
	parent := os.Getppid()
	for range time.Tick(100 * time.Millisecond) {
		if os.Getppid() != parent {
			stop()
			return
		}
	}
}

// serve holds one recording disk: a file for a loop device, and a socket for marks. It ends when the disk is unmounted.
func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	dir := flags.String("dir", "", "where the disk appears as "+fusedisk.FileName)
	socket := flags.String("socket", "", "unix socket for start, mark and stop")
	size := flags.Int64("size", 64<<20, "bytes")
	load := flags.String("load", "", "file of that size with what the disk holds at first")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" || *socket == "" {
		return errors.New("-dir and -socket are needed")
	}
	disk, err := recdisk.New(*size)
	if err != nil {
		return err
	}
	if *load != "" {
		if err := disk.Load(*load); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(*socket), 0o700); err != nil {
		return err
	}
	l, err := net.Listen("unix", *socket)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- control.Serve(l, disk) }()
	server, err := fusedisk.Mount(*dir, disk)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	go func() {
		<-ctx.Done()
		server.Unmount() // fails while something is mounted on top; then the driver unmounts in order
	}()
	server.Wait()
	return errors.Join(l.Close(), <-served)
}
