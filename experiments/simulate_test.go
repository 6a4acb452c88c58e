package experiments

import (
	"context"
	"errors"
	"testing"

	"shardlease/internal/campaign/sim"
)

func TestSimulationsAreTheSameOnAnyNumberOfCores(t *testing.T) {
	for i, r := range simulate(t.Context(), 6, 40) {
		if want := sim.Run(40+uint64(i), nil); r != want {
			t.Errorf("seed %d: %+v beside others, %+v alone", 40+i, r, want)
		}
	}
}

func TestSimulateRefusesAndStops(t *testing.T) {
	var exit *exitError
	if err := Simulate(t.Context(), -1, 0); !errors.As(err, &exit) || exit.code != Usage {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Simulate(ctx, 3, 0); !errors.As(err, &exit) || exit.code != Broken {
		t.Errorf("error %v", err)
	}
}
