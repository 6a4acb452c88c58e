package lease_test

import (
	"fmt"
	"strings"
	"testing"
)

// search visits every reachable state, and returns how many there are and the shortest history to a violation.
func (m mModel) search() (int, []string) {
	type from struct {
		state mState
		what  string
	}
	start := m.start()
	came := map[mState]from{start: {}}
	queue := []mState{start}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		if s.violated() {
			var history []string
			for s != start {
				f := came[s]
				history = append(history, fmt.Sprintf("at %d: %s", s.now, f.what))
				s = f.state
			}
			for i, j := 0, len(history)-1; i < j; i, j = i+1, j-1 {
				history[i], history[j] = history[j], history[i]
			}
			return len(came), history
		}
		for _, step := range m.next(s) {
			if _, seen := came[step.to]; !seen {
				came[step.to] = from{s, step.what}
				queue = append(queue, step.to)
			}
		}
	}
	return len(came), nil
}

func TestOneFlushRenewalsNeverPromiseOneLeaseTwiceInAnyInterleaving(t *testing.T) {
	states, history := mModel{sound}.search()
	t.Logf("%d states", states)
	if history != nil {
		t.Fatalf("violation:\n%s", strings.Join(history, "\n"))
	}
	if states < 10_000 {
		t.Fatalf("only %d states: the search doesn't explore", states)
	}
}

func TestTheSearchFindsEachDefectOfARenewalProtocol(t *testing.T) {
	for d := noSecondLook; d <= newFileBeforeStrictRenewal; d++ {
		t.Run(strings.ReplaceAll(d.String(), " ", "_"), func(t *testing.T) {
			states, history := mModel{d}.search()
			if history == nil {
				t.Fatalf("no violation in %d states", states)
			}
			t.Logf("found after %d states:\n%s", states, strings.Join(history, "\n"))
		})
	}
}
