package figures

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestCellsThatCantBeDrawnAreNamed(t *testing.T) {
	spec := Spec{ID: "x", Title: "X"}
	for name, tc := range map[string]struct {
		build func() (Figure, error)
		want  []string
	}{
		"NaN bar": {func() (Figure, error) {
			return Bars(spec, Axis{}, Group{"8 shards", []Bar{{Name: "batch", Value: math.NaN()}}})
		}, []string{`"8 shards"`, `"batch"`, "NaN"}},
		"infinite interval": {func() (Figure, error) {
			return Bars(spec, Axis{}, Group{"8 shards", []Bar{{Name: "batch", Value: 1, Interval: &Interval{0, math.Inf(1)}}}})
		}, []string{`"8 shards"`, `"batch"`, "high end", "+Inf"}},
		"missing bar": {func() (Figure, error) {
			return Bars(spec, Axis{}, Group{"1", []Bar{{Name: "a", Value: 1}, {Name: "b", Value: 2}}}, Group{"2", []Bar{{Name: "a", Value: 1}}})
		}, []string{`"2" has 1 bars`}},
		"bars in another order": {func() (Figure, error) {
			return Bars(spec, Axis{}, Group{"1", []Bar{{Name: "a", Value: 1}}}, Group{"2", []Bar{{Name: "b", Value: 1}}})
		}, []string{`"2"`, `"b"`, `"a"`}},
		"zero on a log axis": {func() (Figure, error) {
			return Bars(spec, Axis{Log: true}, Group{"1", []Bar{{Name: "a", Value: 0}}})
		}, []string{`"1"`, `"a"`, "log axis"}},
		"infinite point": {func() (Figure, error) {
			return Rounds(spec, Axis{}, Panel{Title: "p", Series: []Series{RoundSeries("scalar", "", []float64{1, 2, math.Inf(-1)})}})
		}, []string{`"p"`, `"scalar"`, "point 3", "-Inf"}},
		"series without points": {func() (Figure, error) {
			return Rounds(spec, Axis{}, Panel{Title: "p", Series: []Series{RoundSeries("scalar", "", nil)}})
		}, []string{`"scalar"`, "no points"}},
		"interval beside its value": {func() (Figure, error) {
			return Forest(spec, Axis{}, ForestRow{Label: "M3", Value: 5, Interval: &Interval{1, 2}})
		}, []string{`"M3"`, "does not hold 5"}},
		"span ends before it starts": {func() (Figure, error) {
			return Lanes(spec, Axis{}, "renewal", Lane{Label: "1d12", Spans: []Span{{2, 1, "leased"}}})
		}, []string{`"1d12"`, "leased", "before its start"}},
		"no title": {func() (Figure, error) { return Forest(Spec{ID: "x"}, Axis{}) }, []string{"no title"}},
		"bad id":   {func() (Figure, error) { return Forest(Spec{ID: "../x", Title: "t"}, Axis{}) }, []string{`"../x"`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tc.build()
			if err == nil {
				t.Fatal("was drawn")
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not name %s", err, w)
				}
			}
			if strings.Contains(name, "NaN") != errors.Is(err, ErrNotFinite) && strings.Contains(name, "NaN") {
				t.Errorf("error %v does not match ErrNotFinite", err)
			}
		})
	}
}

// The option must be plain JSON whose only code is ours: go-echarts marks functions by a prefix that a label could carry too.
func TestOptionCarriesNoCodeButOurs(t *testing.T) {
	known := []string{string(functions.bar), string(functions.whisker), string(functions.text), string(functions.span), string(functions.tip), string(functions.tick)}
	for _, f := range demos(t) {
		var option any
		if err := json.Unmarshal(f.Option, &option); err != nil {
			t.Fatalf("%s: %v", f.ID, err)
		}
		walkStrings(option, "", func(key, s string) {
			if (key == "renderItem" || key == "formatter") && !slices.Contains(known, s) {
				t.Errorf("%s: unknown code at %s: %s", f.ID, key, s)
			}
		})
	}
	for _, f := range known {
		if strings.ContainsAny(f, "\"\\\n\t") || strings.Contains(f, "//") {
			t.Errorf("function does not survive as JSON: %s", f)
		}
	}
}

func walkStrings(v any, key string, f func(key, s string)) {
	switch v := v.(type) {
	case string:
		f(key, v)
	case []any:
		for _, e := range v {
			walkStrings(e, key, f)
		}
	case map[string]any:
		for k, e := range v {
			walkStrings(e, k, f)
		}
	}
}

func TestEverySeriesIsDrawnAtOnceAndStill(t *testing.T) {
	for _, f := range demos(t) {
		var option struct {
			Animation *bool
			Series    []map[string]any
		}
		if err := json.Unmarshal(f.Option, &option); err != nil {
			t.Fatal(err)
		}
		if option.Animation == nil || *option.Animation {
			t.Errorf("%s is animated", f.ID)
		}
		for _, s := range option.Series {
			if s["progressive"] != 0.0 {
				t.Errorf("%s: series %v has progressive %v", f.ID, s["name"], s["progressive"])
			}
		}
	}
}

func TestAxesHoldTheirDataWithFewRoundTicks(t *testing.T) {
	for _, tc := range []struct {
		axis   Axis
		lo, hi float64
	}{
		{Axis{}, 1, 30}, {Axis{Zero: true}, 25, 31}, {Axis{}, -3, 7}, {Axis{}, 5, 5}, {Axis{Zero: true}, 0, 0}, {Axis{}, 1e-9, 2e-9},
		{Axis{}, 1e6, 1e6 + 3}, {Axis{Log: true}, 1, 64}, {Axis{Log: true}, 0.13, 0.8}, {Axis{Log: true}, 0.3, 1e7}, {Axis{Log: true}, 8, 8},
	} {
		s := newScale(tc.axis, tc.lo, tc.hi, 6)
		if s.at(tc.lo) < -1e-6 || s.at(tc.hi) > 1+1e-6 || !(s.min < s.max) {
			t.Errorf("%+v %g..%g: axis %g..%g", tc.axis, tc.lo, tc.hi, s.min, s.max)
		}
		if n := (s.max - s.min) / s.step; !s.Log && (n < 1.99 || n > 9) {
			t.Errorf("%+v %g..%g: %g steps of %g", tc.axis, tc.lo, tc.hi, n, s.step)
		}
	}
}

func TestLabelsAreSpreadWithoutOverlap(t *testing.T) {
	got := spread([]float64{50, 52, 51, 99, 0}, 10, 0, 100)
	order := slices.Clone(got)
	slices.Sort(order)
	for i := 1; i < len(order); i++ {
		if order[i]-order[i-1] < 10-1e-9 {
			t.Errorf("labels at %v are closer than 10", got)
		}
	}
	if order[0] < 0 || order[len(order)-1] > 100 || got[0] > got[2] || got[2] > got[1] {
		t.Errorf("labels at %v leave the axis or change their order", got)
	}
}

func TestDigits(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 64: "64.0", 174.842: "175", 1.9430: "1.94", 0.00512: "0.00512", 1234567: "1.23e+06", -2.5: "-2.50", 654321: "654321", 999999: "1e+06", 0.99999: "1.00", 99.99: "100"} {
		if got := Digits(v); got != want {
			t.Errorf("Digits(%v) = %s, want %s", v, got, want)
		}
	}
	if exact(64) != "64" || exact(0.5) != "0.500" {
		t.Errorf("exact gives %s, %s", exact(64), exact(0.5))
	}
}
