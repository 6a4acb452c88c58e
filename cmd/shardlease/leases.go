package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"shardlease/internal/campaign"
	"shardlease/pkg/lease"
)

const leasesLong = `Looks at the work records of a lease table. DIR is the table's root, for a campaign <output-dir>/.standalone-work-<epoch>.

Exit codes: 0 done; 64 bad argument, or not the token that holds the lease; 66 no table or record there; 70 records that are corrupt or can't be read,
or a change that failed.`

func leasesCommand() *cobra.Command {
	c := &cobra.Command{Use: "leases", Short: "List, show, count and break leases, and sweep up behind their holders", Long: leasesLong}
	var asJSON bool
	var status string
	list := &cobra.Command{Use: "list DIR", Short: "One line a record; corrupt ones too", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return listLeases(c, c.OutOrStdout(), args[0], lease.Status(status), asJSON)
		}}
	list.Flags().StringVar(&status, "status", "", "only leased, committing, done or abandoned ones")
	show := &cobra.Command{Use: "show DIR ID", Short: "All of one record", Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error { return showLease(c.OutOrStdout(), args[0], args[1]) }}
	counts := &cobra.Command{Use: "counts DIR", Short: "How many records are in which state", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return countLeases(c, c.OutOrStdout(), args[0], asJSON)
		}}
	breaks := &cobra.Command{Use: "break DIR ID TOKEN", Short: "Give one lease back in its holder's stead, so that it can be claimed at once",
		Long: `Gives the lease of ID back, if TOKEN (as list and show print it) is the one that holds it now. Its holder is fenced out: whatever it
does with that token is refused, and the next claim gets a higher fence. A record that is being committed can't be broken; it is completed by the next campaign.`,
		Args: cobra.ExactArgs(3),
		RunE: func(c *cobra.Command, args []string) error {
			return breakLease(c, c.OutOrStdout(), args[0], args[1], args[2])
		}}
	sweep := &cobra.Command{Use: "sweep DIR", Short: "Remove the renewal files of holders that have ended",
		Long: `Removes the files in DIR/renewals of holders that renewed with one flush, have ended, and are named by no record any more. It reads all records, and
may run at any time: the files of a holder that lives, or that has ended and whose leases have not been claimed by another or finished, stay.
A table without one-flush renewals has no such files. One record that is corrupt or can't be read keeps them all, for it might name any.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return sweepLeases(c, c.OutOrStdout(), args[0], asJSON)
		}}
	for _, sub := range []*cobra.Command{list, counts, sweep} {
		sub.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	}
	c.AddCommand(list, show, counts, breaks, sweep)
	return c
}

// openTable opens a table that exists; lease.Open would make a new one.
func openTable(dir string) (*lease.Table, error) {
	if _, err := os.Lstat(filepath.Join(dir, layoutFile)); err != nil {
		return nil, exitf(campaign.ExitNoInput, "%s is not a lease table (%v); give the directory <output-dir>/.standalone-work-<epoch>", dir, err)
	}
	t, err := lease.Open(dir, nil)
	if err != nil {
		return nil, exitf(campaign.ExitNoInput, "%v", err)
	}
	return t, nil
}

const layoutFile = "layout.json"

// entry is a record for people and scripts. Times are RFC 3339.
type entry struct {
	ID            lease.ID        `json:"id"`
	Status        string          `json:"status"` // of the record, or corrupt, or unreadable
	Token         string          `json:"token"`
	Owner         string          `json:"owner"`
	Worker        int             `json:"worker"`
	PreviousOwner string          `json:"previous_owner"`
	Attempts      int             `json:"attempts"`
	Steals        int             `json:"steals"`
	Updated       string          `json:"updated"`
	TTLS          float64         `json:"ttl_s"`
	Completed     string          `json:"completed"`
	Payload       json.RawMessage `json:"payload"`
	Manifest      json.RawMessage `json:"manifest"`
	Error         string          `json:"error"`
}

func entryOf(r lease.Record, err error) entry {
	if err != nil {
		status := "unreadable"
		if errors.Is(err, lease.ErrCorrupt) {
			status = "corrupt"
		}
		return entry{ID: r.ID, Status: status, Error: err.Error()}
	}
	return entry{ID: r.ID, Status: string(r.Status), Token: r.Token.String(), Owner: r.Holder.Owner, Worker: r.Holder.Worker, PreviousOwner: r.PreviousOwner,
		Attempts: r.Attempts, Steals: r.Steals, Updated: stamp(r.Updated), TTLS: r.TTL.Seconds(), Completed: stamp(r.Completed),
		Payload: r.Payload, Manifest: r.Manifest}
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func listLeases(c *cobra.Command, w io.Writer, dir string, status lease.Status, asJSON bool) (err error) {
	switch status {
	case "", lease.Leased, lease.Committing, lease.Done, lease.Abandoned:
	default:
		return exitf(campaign.ExitUsage, "--status is %q; it must be leased, committing, done or abandoned", status)
	}
	t, err := openTable(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	entries, bad := []entry{}, 0
	for r, rerr := range t.Records(c.Context()) {
		if rerr != nil {
			bad++
		} else if status != "" && r.Status != status {
			continue
		}
		entries = append(entries, entryOf(r, rerr))
	}
	if asJSON {
		err = json.NewEncoder(w).Encode(entries)
	} else {
		err = printTable(w, entries)
	}
	if err == nil && bad > 0 {
		err = exitf(campaign.ExitIncomplete, "%d records are corrupt or can't be read", bad)
	}
	return err
}

func printTable(w io.Writer, entries []entry) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "ID\tSTATUS\tTOKEN\tOWNER\tATTEMPTS\tUPDATED\tTTL")
	for _, e := range entries {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%d\t%s\t%gs\n", e.ID, e.Status, e.Token, e.Owner, e.Attempts, e.Updated, e.TTLS)
	}
	return tw.Flush()
}

func showLease(w io.Writer, dir, text string) (err error) {
	id, err := lease.ParseID(text)
	if err != nil {
		return exitf(campaign.ExitUsage, "%v", err)
	}
	t, err := openTable(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	r, err := t.Lookup(id)
	if errors.Is(err, fs.ErrNotExist) {
		return exitf(campaign.ExitNoInput, "%v", err)
	}
	if err != nil {
		return exitf(campaign.ExitIncomplete, "%v", err)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(entryOf(r, nil))
}

func countLeases(c *cobra.Command, w io.Writer, dir string, asJSON bool) (err error) {
	t, err := openTable(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	n, err := t.Counts(c.Context())
	if err != nil {
		return exitf(campaign.ExitIncomplete, "%v", err)
	}
	if asJSON {
		err = json.NewEncoder(w).Encode(map[string]int{"leased": n.Leased, "expired": n.Expired, "committing": n.Committing, "done": n.Done,
			"abandoned": n.Abandoned, "corrupt": n.Corrupt})
	} else {
		_, err = fmt.Fprintf(w, "leased %d (expired %d)\ncommitting %d\ndone %d\nabandoned %d\ncorrupt %d\n", n.Leased, n.Expired, n.Committing, n.Done, n.Abandoned, n.Corrupt)
	}
	if err == nil && n.Corrupt > 0 {
		err = exitf(campaign.ExitIncomplete, "%d records are corrupt; list shows them", n.Corrupt)
	}
	return err
}

func breakLease(c *cobra.Command, w io.Writer, dir, idText, tokenText string) (err error) {
	id, err := lease.ParseID(idText)
	if err != nil {
		return exitf(campaign.ExitUsage, "%v", err)
	}
	var tok lease.Token
	if err := tok.UnmarshalText([]byte(tokenText)); err != nil {
		return exitf(campaign.ExitUsage, "%v", err)
	}
	t, err := openTable(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	err = t.Abandon(c.Context(), id, tok)
	switch {
	case errors.Is(err, lease.ErrLost), errors.Is(err, lease.ErrCommitting), errors.Is(err, lease.ErrDone):
		return exitf(campaign.ExitUsage, "not broken: %v", err)
	case err != nil:
		return exitf(campaign.ExitIncomplete, "not known to be broken: %v", err)
	}
	_, err = fmt.Fprintf(w, "the lease of %s under fence %d is given back; its holder is fenced out\n", id, tok.Fence)
	return err
}

func sweepLeases(c *cobra.Command, w io.Writer, dir string, asJSON bool) (err error) {
	t, err := openTable(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	n, err := t.SweepSessions(c.Context())
	if err != nil {
		return exitf(campaign.ExitIncomplete, "%d removed, then: %v", n, err)
	}
	if asJSON {
		return json.NewEncoder(w).Encode(map[string]int{"removed": n})
	}
	_, err = fmt.Fprintf(w, "removed %d\n", n)
	return err
}
