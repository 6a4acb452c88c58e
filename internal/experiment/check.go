package experiment

import (
	"errors"
	"fmt"
	"math"
	"regexp"
)

var (
	claimID    = regexp.MustCompile(`^[A-Z]+[0-9]+[a-z]?$`)
	metricName = regexp.MustCompile(`^[a-z0-9_]+(\.[a-z0-9_]+)*$`)
)

// check returns the first fault and the key it belongs to.
func (s *Spec) check() (key string, err error) {
	switch {
	case s.Title == "":
		return "title", errors.New("title is missing")
	case s.Section == "":
		return "section", errors.New("section of the report is missing")
	case !positive(s.Minutes[Full]):
		return "full", errors.New("expected minutes at full scale must be positive")
	case !positive(s.Minutes[Smoke]):
		return "smoke", errors.New("expected minutes at smoke scale must be positive")
	case !positive(s.Minutes[Long]):
		return "long", errors.New("expected minutes at long scale must be positive")
	case len(s.Claims) == 0:
		return "claims", errors.New("an experiment decides at least one claim")
	}
	seen := map[string]bool{}
	for i, c := range s.Claims {
		err := c.check()
		if seen[c.ID] {
			err = errors.New("this id is used twice")
		}
		seen[c.ID] = true
		if err != nil {
			return fmt.Sprintf("claims/%d", i), fmt.Errorf("claim %q: %w", c.ID, err)
		}
	}
	return "", nil
}

func (c Claim) check() error {
	switch c.Status {
	case Checked, Beyond, NotReproduced, NotClaimed:
	default:
		return fmt.Errorf("status %q is none of checked, beyond, not_reproduced, not_claimed", c.Status)
	}
	switch {
	case !claimID.MatchString(c.ID):
		return errors.New("id must be capital letters and a number, such as M1")
	case c.Sentence == "":
		return errors.New("sentence is missing")
	case c.Section == "" && c.Status != Beyond:
		return errors.New("section of the report is missing")
	case c.Why == "":
		return errors.New("why is missing: say where the band comes from, or why nothing is decided")
	case c.Metric != "" && !metricName.MatchString(c.Metric):
		return fmt.Errorf("metric %q is not a dotted lower-case name", c.Metric)
	case c.Flag != "" && (c.Status != NotClaimed || !metricName.MatchString(c.Flag)):
		return fmt.Errorf("flag %q must be a lower-case name, and of a claim that is not_claimed", c.Flag)
	case c.MinN < 0:
		return errors.New("min_n is negative")
	case c.Report != nil && !finite(*c.Report):
		return errors.New("the report's value is not finite")
	}
	if !c.Decided() {
		if c.Band != nil {
			return fmt.Errorf("a band makes no sense with status %s", c.Status)
		}
		return nil
	}
	if c.Metric == "" {
		return errors.New("metric is missing")
	}
	if c.Band == nil {
		return errors.New("band is missing")
	}
	return c.Band.check()
}

func (b Band) check() error {
	for _, end := range []*float64{b.Low, b.High, b.Exact} {
		if end != nil && !finite(*end) {
			return errors.New("band has an end that is not finite; leave an open end out")
		}
	}
	switch {
	case b.Exact != nil && (b.Low != nil || b.High != nil):
		return errors.New("band is either exact or has low and high")
	case b.Exact == nil && b.Low == nil && b.High == nil:
		return errors.New("band is open at both ends, so nothing could fail it")
	case b.Low != nil && b.High != nil && *b.Low >= *b.High:
		return errors.New("band is empty: low must be below high")
	}
	return nil
}

func finite(x float64) bool   { return !math.IsNaN(x) && !math.IsInf(x, 0) }
func positive(x float64) bool { return finite(x) && x > 0 }
