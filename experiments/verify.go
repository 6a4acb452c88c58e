package experiments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"

	"shardlease/internal/evidence"
	"shardlease/internal/experiment"
	"shardlease/internal/host"
)

// Verify checks a sealed run: that each file is as it was sealed, that none was added or lost, and that results and
// verdicts follow from the raw samples once more. name is a folder, the name of a run, or "" for the newest.
func Verify(ctx context.Context, name string) error {
	dir, err := locate(name)
	if err != nil {
		return err
	}
	n, err := evidence.Check(dir)
	if err != nil {
		return fail(Broken, "%w", err)
	}
	verdicts, err := recompute(ctx, dir)
	if err != nil {
		return fail(Broken, "%s, made by commit %s, whose own code reads its raw files for sure: %w", filepath.Base(dir), commitOf(dir), err)
	}
	table(os.Stdout, verdictRows(verdicts))
	fmt.Printf("%s: %d files are as they were sealed; %d verdicts follow from the raw samples\n", filepath.Base(dir), n, len(verdicts))
	return nil
}

func commitOf(dir string) string {
	id, err := evidence.Info(dir)
	if err != nil {
		return "unknown"
	}
	return id.Commit
}

// locate finds a run by folder or by name.
func locate(name string) (string, error) {
	root, err := root()
	if err != nil {
		return "", err
	}
	if name == "" {
		dir, err := evidence.Newest(filepath.Join(root, "evidence"))
		if err != nil {
			return "", fail(Usage, "%w", err)
		}
		return dir, nil
	}
	for _, dir := range []string{name, filepath.Join(root, "evidence", "runs", name), filepath.Join(root, "evidence", name)} {
		if st, err := os.Stat(dir); err == nil && st.IsDir() {
			return filepath.Abs(dir)
		}
	}
	return "", fail(Usage, "%s is neither a folder nor the name of a run in evidence/runs", name)
}

// recompute reduces the raw samples of a run again and compares results and verdicts with what was sealed.
func recompute(ctx context.Context, dir string) ([]experiment.Verdict, error) {
	var claims []*experiment.Spec
	var facts host.Facts
	var steps []evidence.Step
	err := errors.Join(
		experiment.ReadJSON(filepath.Join(dir, evidence.ClaimsFile), &claims),
		experiment.ReadJSON(filepath.Join(dir, "env.json"), &facts),
		experiment.ReadJSON(filepath.Join(dir, "steps.json"), &steps),
	)
	if err != nil {
		return nil, err
	}
	verdicts := []experiment.Verdict{}
	for _, spec := range claims {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		e, err := find(spec.Name)
		if err != nil {
			return nil, err
		}
		list, err := decideAgain(e, filepath.Join(dir, spec.Name), spec, facts.Suitability, lastError(steps, spec.Name))
		if err != nil {
			return nil, err
		}
		verdicts = append(verdicts, list...)
	}
	if diff, err := differs(filepath.Join(dir, evidence.VerdictsFile), verdicts); err != nil || diff != "" {
		return nil, errors.Join(err, fmt.Errorf("%s is not what the raw samples give: %s", evidence.VerdictsFile, diff))
	}
	return verdicts, nil
}

// lastError is what the experiment's last attempt broke with; "" when it finished.
func lastError(steps []evidence.Step, name string) string {
	text := ""
	for _, s := range steps {
		if s.Name == name {
			text = s.Error
		}
	}
	return text
}

func decideAgain(e entry, dir string, spec *experiment.Spec, host experiment.Suitability, broke string) ([]experiment.Verdict, error) {
	if broke != "" {
		return experiment.Broken(spec, errors.New(broke)), nil
	}
	metrics, err := e.Reduce(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: reduce the raw samples: %w", spec.Name, err)
	}
	if diff, err := differs(filepath.Join(dir, experiment.ResultsFile), metrics); err != nil || diff != "" {
		return nil, errors.Join(err, fmt.Errorf("%s/%s is not what the raw samples give: %s", spec.Name, experiment.ResultsFile, diff))
	}
	list, err := experiment.Decide(spec, metrics, host)
	if err != nil { // as when the run was made
		return experiment.Broken(spec, err), nil
	}
	return list, nil
}

// differs compares a sealed JSON file with a value computed again and names the first place that differs, "" for none.
func differs(name string, again any) (string, error) {
	sealed, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	fresh, err := experiment.EncodeJSON(again)
	if err != nil {
		return "", err
	}
	var a, b any
	if err := errors.Join(json.Unmarshal(sealed, &a), json.Unmarshal(fresh, &b)); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return firstDifference("", a, b), nil
}

// tolerance is for processors that fuse multiplication and addition: the last bits of a mean may differ there.
const tolerance = 1e-9

func firstDifference(at string, a, b any) string {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return at + ": other fields"
		}
		for _, key := range slices.Sorted(maps.Keys(a)) {
			if diff := firstDifference(at+"."+key, a[key], b[key]); diff != "" {
				return diff
			}
		}
		return ""
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return at + ": another number of elements"
		}
		for i := range a {
			if diff := firstDifference(fmt.Sprintf("%s[%d]", at, i), a[i], b[i]); diff != "" {
				return diff
			}
		}
		return ""
	case float64:
		if b, ok := b.(float64); ok && math.Abs(a-b) <= tolerance*math.Max(math.Abs(a), math.Abs(b)) {
			return ""
		}
	default:
		if a == b {
			return ""
		}
	}
	return fmt.Sprintf("%s was %v, is now %v", at, a, b)
}
