package campaign

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Settings reads flags and environment variables and collects one sentence for each bad value, so that a user sees all of them at once.
// A bad value yields the default. An empty variable is an unset one.
type Settings struct {
	getenv func(string) string
	errs   []error
}

// NewSettings reads variables with getenv, which is os.Getenv or a map.
func NewSettings(getenv func(string) string) *Settings { return &Settings{getenv: getenv} }

// Err joins what was wrong, or is nil.
func (p *Settings) Err() error { return errors.Join(p.errs...) }

// OneLine puts the lines of a text, such as joined errors, in one.
func OneLine(text string) string { return strings.Join(lines(text), "; ") }

// Brief is the first line of a text, such as the first cause of joined errors, with the number of the others.
func Brief(text string) string {
	all := lines(text)
	if len(all) < 2 {
		return strings.Join(all, "")
	}
	return fmt.Sprintf("%s (and %d more)", all[0], len(all)-1)
}

// lines are the lines of a text that are not blank.
func lines(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// Fail adds a sentence.
func (p *Settings) Fail(format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf(format, args...))
}

// Flag checks a flag that is a number of seconds.
func (p *Settings) Flag(name string, v, low, high float64) time.Duration {
	if math.IsNaN(v) || v < low || v > high {
		p.Fail("%s is %v; it must be a number of seconds from %v to %v", name, v, low, high)
		return 0
	}
	return duration(v)
}

// Seconds reads a variable that is a number of seconds.
func (p *Settings) Seconds(name string, standard, low, high float64) time.Duration {
	text := p.Text(name, "")
	if text == "" {
		return duration(standard)
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || v < low || v > high {
		p.Fail("%s is %q; it must be a number of seconds from %v to %v", name, text, low, high)
		v = standard
	}
	return duration(v)
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// Integer reads a variable that is a whole number.
func (p *Settings) Integer(name string, standard, low, high int64) int64 {
	v, err := p.integer(name, standard, low, high)
	if err != nil {
		p.errs = append(p.errs, err)
	}
	return v
}

func (p *Settings) integer(name string, standard, low, high int64) (int64, error) {
	text := p.Text(name, "")
	if text == "" {
		return standard, nil
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < low || v > high {
		return standard, fmt.Errorf("%s is %q; it must be a whole number from %d to %d", name, text, low, high)
	}
	return v, nil
}

// budget is Integer for the budgets, whose errors match ErrBudget.
func (p *Settings) budget(name string, standard, low, high int64) int64 {
	v, err := p.integer(name, standard, low, high)
	if err != nil {
		p.Fail("%w: %w", ErrBudget, err)
	}
	return v
}

// Switch reads a variable that is 0 or 1.
func (p *Settings) Switch(name string, standard bool) bool {
	switch text := p.Text(name, ""); text {
	case "":
		return standard
	case "0":
		return false
	case "1":
		return true
	default:
		p.Fail("%s is %q; it must be 0 or 1", name, text)
		return standard
	}
}

// Text reads a variable, without the blanks around it.
func (p *Settings) Text(name, standard string) string {
	if text := strings.TrimSpace(p.getenv(name)); text != "" {
		return text
	}
	return standard
}
