package faults

import (
	"fmt"
	"slices"
)

// Names of the raw files.
const (
	casesFile    = "cases.json"
	sweepFile    = "sweep.json"
	directedFile = "directed.json"
)

// Case is one element of cases.json: one injected fault, what had to be seen and what was.
type Case struct {
	Name       string   `json:"name"`
	Subject    string   `json:"subject"`    // the library, or one of its broken doubles
	Invariants []string `json:"invariants"` // G1..G9 of the report's section 6
	Fault      string   `json:"fault"`
	Injected   int      `json:"injected"` // errors that were injected
	Surfaced   int      `json:"surfaced"` // of these, errors that reached the caller
	Checks     []Check  `json:"checks"`
	Trace      string   `json:"trace"` // of the file system below the fault, from the call under test on
}

// Check is one expectation.
type Check struct {
	What string `json:"what"`
	Want string `json:"want"`
	Got  string `json:"got"`
}

// held reports whether everything expected was seen. A case that checked nothing did not hold.
func (c Case) held() bool {
	return len(c.Checks) > 0 && c.Injected == c.Surfaced && !slices.ContainsFunc(c.Checks, func(k Check) bool { return k.Want != k.Got })
}

func (c *Case) expect(what string, want, got any) {
	c.Checks = append(c.Checks, Check{what, fmt.Sprint(want), fmt.Sprint(got)})
}

// SweepStep is one element of sweep.json: a batch in which one operation of the file system failed once.
type SweepStep struct {
	Operation int    `json:"operation"` // counted from 1
	Kind      string `json:"kind"`
	Name      string `json:"name"` // base name
	Error     string `json:"error"`
	Injected  int    `json:"injected"`
	Surfaced  int    `json:"surfaced"`
	ZeroBatch bool   `json:"zero_batch"` // no partial success was returned
	// Lied is the number of records whose renewal was said to be durable and can't be read back.
	Lied int `json:"lied"`
}

// Directed is one element of directed.json: a statement of the report that a test of this project shows.
type Directed struct {
	Metric  string  `json:"metric"` // directed.<metric> is 1 if it passed
	Report  string  `json:"report"` // the test's name in the report's evidence; "" for a statement that has none there
	Package string  `json:"package"`
	Test    string  `json:"test"`
	Passed  bool    `json:"passed"`
	Seconds float64 `json:"seconds"`
	States  int     `json:"states,omitempty"` // of a model that the test searched
	Output  string  `json:"output"`           // of a test that did not pass
}
