// Package experiment declares what an experiment is: its file of parameters and paper claims, the metrics it reduces
// raw samples to, the statistics that are used, and the verdict on each claim.
package experiment

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"
)

// Scale is one of the sizes an experiment has. Long is the largest: what takes too long for everyday reproduction. An experiment
// that declares none is run at full scale instead.
type Scale string

const (
	Full  Scale = "full"
	Smoke Scale = "smoke"
	Long  Scale = "long"
)

// Spec is what experiment.yaml says, apart from the parameters, which are the experiment's own type.
type Spec struct {
	Name    string            `json:"name"` // the folder's name
	Title   string            `json:"title"`
	Section string            `json:"section"` // of the report
	Minutes map[Scale]float64 `json:"minutes"` // expected on two cores
	Claims  []Claim           `json:"claims"`
	SHA256  string            `json:"file_sha256"` // of experiment.yaml, which holds the parameters as well
}

// Status says what is done with a sentence of the report.
type Status string

const (
	Checked       Status = "checked"        // decided here
	Beyond        Status = "beyond"         // decided here, and not in the report
	NotReproduced Status = "not_reproduced" // the report measured it, this project does not decide it
	NotClaimed    Status = "not_claimed"    // the report says it claims no such thing, and neither does this project
)

// Claim is one paper claim. The list of all claims is the only source of the README table, of the claims target, of the
// verdicts and of the report's table.
type Claim struct {
	ID       string   `yaml:"id" json:"id"`
	Sentence string   `yaml:"sentence" json:"sentence"`
	Section  string   `yaml:"section" json:"section"` // of the report; empty for Beyond
	Status   Status   `yaml:"status" json:"status"`
	Metric   string   `yaml:"metric" json:"metric,omitempty"` // of this experiment
	Unit     string   `yaml:"unit" json:"unit,omitempty"`
	Report   *float64 `yaml:"report" json:"report"` // the report's own value
	Band     *Band    `yaml:"band" json:"band"`     // what the metric's whole interval must lie in
	Why      string   `yaml:"why" json:"why"`       // reason for the band, or for not deciding
	Control  string   `yaml:"control" json:"control,omitempty"`
	MinN     int      `yaml:"min_n" json:"min_n,omitempty"` // fewer samples decide nothing
	Feeds    []string `yaml:"feeds" json:"feeds,omitempty"` // figures and tables
	Flag     string   `yaml:"flag" json:"flag,omitempty"`   // boundary flag of the report's evidence that says the same; only for NotClaimed
}

// Reported is the report's own value of a metric, from the first claim that holds one.
func (s *Spec) Reported(metric string) (float64, error) {
	for _, c := range s.Claims {
		if c.Metric == metric && c.Report != nil {
			return *c.Report, nil
		}
	}
	return 0, fmt.Errorf("%s: no claim holds the report's value of %s", s.Name, metric)
}

// Decided reports whether the claim gets a verdict.
func (c Claim) Decided() bool { return c.Status == Checked || c.Status == Beyond }

// Band is closed at both ends; a missing end is open. Exact is the band of one value.
type Band struct {
	Low   *float64 `yaml:"low" json:"low"`
	High  *float64 `yaml:"high" json:"high"`
	Exact *float64 `yaml:"exact" json:"exact"`
}

// Limits returns the band's ends, infinite where open.
func (b Band) Limits() (low, high float64) {
	low, high = math.Inf(-1), math.Inf(1)
	if b.Exact != nil {
		return *b.Exact, *b.Exact
	}
	if b.Low != nil {
		low = *b.Low
	}
	if b.High != nil {
		high = *b.High
	}
	return low, high
}

func (b Band) String() string {
	switch {
	case b.Exact != nil:
		return "= " + Number(*b.Exact)
	case b.Low == nil:
		return "<= " + Number(*b.High)
	case b.High == nil:
		return ">= " + Number(*b.Low)
	}
	return Number(*b.Low) + " .. " + Number(*b.High)
}

// file is the layout of experiment.yaml; P is the experiment's parameters.
type file[P any] struct {
	Title   string    `yaml:"title"`
	Section string    `yaml:"section"`
	Full    scale[P]  `yaml:"full"`
	Smoke   scale[P]  `yaml:"smoke"`
	Long    *scale[P] `yaml:"long"` // optional
	Claims  []Claim   `yaml:"claims"`
}

type scale[P any] struct {
	Minutes float64 `yaml:"minutes"`
	Params  P       `yaml:"params"`
}

// Load reads experiment.yaml. Each fault is one sentence that begins with the file and the line.
func Load[P any](name string, data []byte) (*Spec, map[Scale]P, error) {
	where := "experiments/" + name + "/experiment.yaml"
	var f file[P]
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&f); err != nil {
		return nil, nil, yamlError(where, err)
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("%s: holds more than one document; keep the first", where)
	}
	if f.Long == nil {
		f.Long = &f.Full
	}
	spec := &Spec{
		Name: name, Title: f.Title, Section: f.Section, Claims: f.Claims,
		Minutes: map[Scale]float64{Full: f.Full.Minutes, Smoke: f.Smoke.Minutes, Long: f.Long.Minutes},
	}
	sum := sha256.Sum256(data)
	spec.SHA256 = hex.EncodeToString(sum[:])
	if key, err := spec.check(); err != nil {
		return nil, nil, fmt.Errorf("%s:%d: %w", where, lineOf(data, key), err)
	}
	return spec, map[Scale]P{Full: f.Full.Params, Smoke: f.Smoke.Params, Long: f.Long.Params}, nil
}

// MustLoad is Load for an embedded file, whose faults a test of the experiment's package finds.
func MustLoad[P any](name string, files fs.FS) (*Spec, map[Scale]P) {
	data, err := fs.ReadFile(files, "experiment.yaml")
	if err != nil {
		panic(err)
	}
	spec, params, err := Load[P](name, data)
	if err != nil {
		panic(err)
	}
	return spec, params
}

var (
	yamlLine  = regexp.MustCompile(`line (\d+): (.*)`)
	yamlField = regexp.MustCompile(`field (\S+) not found in type .*`)
)

// yamlError turns the decoder's list into one sentence with the place in front.
func yamlError(where string, err error) error {
	m := yamlLine.FindStringSubmatch(err.Error())
	if m == nil {
		return fmt.Errorf("%s: %s", where, strings.ReplaceAll(err.Error(), "\n", " "))
	}
	text := yamlField.ReplaceAllString(m[2], `unknown field "$1"; remove it or correct its spelling`)
	return fmt.Errorf("%s:%s: %s", where, m[1], text)
}

// lineOf finds the line of a top-level key, or of the claim with that index when key is "claims/<n>"; 1 when absent.
func lineOf(data []byte, key string) int {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil || len(doc.Content) == 0 {
		return 1
	}
	name, index := key, -1
	if _, err := fmt.Sscanf(key, "claims/%d", &index); err == nil {
		name = "claims"
	}
	top := doc.Content[0].Content
	for i := 0; i+1 < len(top); i += 2 {
		if top[i].Value != name {
			continue
		}
		if index >= 0 {
			return top[i+1].Content[index].Line
		}
		return top[i].Line
	}
	return 1
}
