package experiment

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// The interval must cover the true ratio about as often as it says, on paired data with shared drift and outliers.
func TestRatioIntervalCoversTheTruth(t *testing.T) {
	const seed, runs, n = 7, 400, 30
	rng := rand.New(rand.NewPCG(seed, 1))
	covered := 0
	for range runs {
		a, b := make([]float64, n), make([]float64, n)
		for i := range n {
			drift := math.Exp(0.05 * rng.NormFloat64())
			a[i] = 2 * drift * math.Exp(0.01*rng.NormFloat64())
			b[i] = drift * math.Exp(0.01*rng.NormFloat64())
			if rng.IntN(20) == 0 {
				a[i] *= 1.5
			}
		}
		m, err := Ratio("x", a, b, "f")
		if err != nil {
			t.Fatal(err)
		}
		// outliers on one side move the median a little; the truth is 2 up to that
		if m.Low <= 2*1.002 && m.High >= 2/1.002 {
			covered++
		}
	}
	if share := float64(covered) / runs; share < 0.90 {
		t.Errorf("seed %d: covered in %.1f %% of the runs", seed, 100*share)
	}
}

func TestTooFewRoundsGiveNoInterval(t *testing.T) {
	_, err := Median("x", []float64{1, 2, 3, 4, 5}, "", "f")
	if err == nil || !strings.Contains(err.Error(), "at least 6") {
		t.Errorf("error %v", err)
	}
	if m, err := Median("x", []float64{1, 2, 3, 4, 5, 6}, "", "f"); err != nil || m.Low != 1 || m.High != 6 {
		t.Errorf("six samples gave %+v, %v", m, err)
	}
}

func TestMedianLeavesTheSamplesInTheirOrder(t *testing.T) {
	samples := []float64{3, 1, 2, 6, 5, 4}
	if _, err := Median("x", samples, "", "f"); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(samples, []float64{3, 1, 2, 6, 5, 4}) {
		t.Errorf("samples became %v", samples)
	}
}

func TestTimesThatAreNotPositiveAreRefused(t *testing.T) {
	for _, bad := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		a := []float64{1, 1, 1, 1, 1, bad}
		if _, err := Ratio("x", a, []float64{1, 1, 1, 1, 1, 1}, "f"); err == nil {
			t.Errorf("%v was accepted", bad)
		}
	}
}

func TestPercentilesNeedTenSamplesBeyond(t *testing.T) {
	for n, want := range map[int]int{19: 0, 20: 1, 200: 2, 1000: 3} {
		ns := make([]int64, n)
		for i := range ns {
			ns[i] = int64(i+1) * 1000
		}
		got, err := Percentiles("x", ns, "f")
		if err != nil || len(got) != want {
			t.Errorf("%d samples gave %d percentiles, %v; want %d", n, len(got), err, want)
		}
	}
}

// Values computed by hand: the Walsh averages of 1, 2, 4 are 1, 1.5, 2, 2.5, 3, 4.
func TestHodgesLehmannIsTheMedianOfPairwiseMeans(t *testing.T) {
	if m := HodgesLehmann([]float64{4, 1, 2}); m.Value != 2.25 || m.Low != 1 || m.High != 4 {
		t.Errorf("got %+v", m)
	}
}
