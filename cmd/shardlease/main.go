// Command shardlease runs campaigns on a shared directory and looks after the leases in it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"shardlease/internal/campaign"
	"shardlease/internal/sysfault"
)

// exitError carries an exit code to main. An empty text has been printed already.
type exitError struct {
	code int
	text string
}

func (e *exitError) Error() string { return e.text }

func exitf(code int, format string, args ...any) error {
	return &exitError{code, fmt.Sprintf(format, args...)}
}

// asExit makes an error of the command line, which has no code of its own, a wrong use.
func asExit(err error) *exitError {
	var exit *exitError
	if !errors.As(err, &exit) {
		exit = &exitError{campaign.ExitUsage, err.Error()}
	}
	return exit
}

func main() {
	sysfault.Shim() // the faults command starts this binary as the program it watches
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	root := &cobra.Command{
		Use:           "shardlease",
		Short:         "Work campaigns on a shared directory, with fenced leases and group-committed heartbeats",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(standaloneCommand(), hybridCommand(), leasesCommand(), probeCommand(), faultsCommand(), reaperCommand(), probeLockCommand())
	root.SetArgs(args)
	root.CompletionOptions.HiddenDefaultCmd = true
	err := root.ExecuteContext(context.Background())
	if err == nil {
		return campaign.ExitOK
	}
	exit := asExit(err)
	if exit.text != "" && reporting() {
		fmt.Fprintf(os.Stderr, "shardlease: %s\n", campaign.OneLine(exit.text))
	}
	return exit.code
}

// reporting tells whether this process speaks for its job: of several ranks that refuse the same option only the first does.
func reporting() bool {
	for _, name := range []string{"OMPI_COMM_WORLD_RANK", "PMIX_RANK"} {
		if rank := os.Getenv(name); rank != "" {
			return rank == "0"
		}
	}
	return true
}
