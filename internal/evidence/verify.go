package evidence

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Damage tells how a sealed run differs from its SumsFile.
type Damage struct{ Changed, Missing, Added []string }

// DamageError is returned by Check for a run that is not as it was sealed.
type DamageError struct {
	Dir string
	Damage
}

func (e *DamageError) Error() string {
	var parts []string
	for _, kind := range []struct {
		what string
		list []string
	}{{"changed", e.Changed}, {"missing", e.Missing}, {"added", e.Added}} {
		if len(kind.list) > 0 {
			parts = append(parts, kind.what+": "+strings.Join(kind.list, ", "))
		}
	}
	return fmt.Sprintf("%s is not as it was sealed: %s", filepath.Base(e.Dir), strings.Join(parts, "; "))
}

// Check compares a sealed run with its SumsFile and returns the number of files that agree. The error is a *DamageError
// when the list could be read and something differs.
func Check(dir string) (int, error) {
	data, err := os.ReadFile(filepath.Join(dir, SumsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("%s has no %s: it is not a sealed run", dir, SumsFile)
	}
	if err != nil {
		return 0, err
	}
	listed, err := parseSums(data)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", filepath.Base(dir), err)
	}
	found, err := sums(dir, SumsFile)
	if err != nil {
		return 0, err
	}
	damage := diff(listed, found)
	if len(damage.Changed)+len(damage.Missing)+len(damage.Added) > 0 {
		return 0, &DamageError{dir, damage}
	}
	return len(listed), nil
}

// diff walks two lists in the same order.
func diff(listed, found []Sum) Damage {
	var d Damage
	for len(listed) > 0 || len(found) > 0 {
		switch {
		case len(found) == 0 || len(listed) > 0 && listed[0].Path < found[0].Path:
			d.Missing = append(d.Missing, listed[0].Path)
			listed = listed[1:]
		case len(listed) == 0 || found[0].Path < listed[0].Path:
			d.Added = append(d.Added, found[0].Path)
			found = found[1:]
		default:
			if listed[0].SHA256 != found[0].SHA256 {
				d.Changed = append(d.Changed, found[0].Path)
			}
			listed, found = listed[1:], found[1:]
		}
	}
	return d
}
