package figures

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// sansWidths are the advance widths of DejaVu Sans for ASCII from space to tilde, in hundredths of the font size.
var sansWidths = [95]int{
	32, 40, 46, 84, 64, 95, 78, 27, 39, 39, 50, 84, 32, 36, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64,
	64, 64, 34, 34, 84, 84, 84, 53, 100, 68, 69, 70, 77, 63, 58, 77, 75, 29, 29, 66, 56, 86, 75, 79,
	60, 79, 69, 63, 61, 73, 68, 99, 69, 61, 69, 39, 34, 39, 84, 50, 50, 61, 63, 55, 63, 62, 35, 63,
	63, 28, 28, 58, 28, 97, 63, 61, 63, 63, 41, 52, 39, 63, 59, 82, 59, 59, 52, 64, 34, 64, 84,
}

const (
	boldFactor = 1.12 // DejaVu Sans Bold is 11 % wider on average
	otherWidth = 64   // Greek, dashes, primes and the like
	wideWidth  = 100  // Chinese, Japanese, Korean
	firstWide  = 0x2E80
)

// textWidth is the width of the longest line of text in pixels.
func textWidth(text string, size float64, bold bool) float64 {
	widest := 0.0
	for line := range strings.SplitSeq(text, "\n") {
		sum := 0
		for _, r := range line {
			switch {
			case r >= ' ' && r <= '~':
				sum += sansWidths[r-' ']
			case r >= firstWide:
				sum += wideWidth
			default:
				sum += otherWidth
			}
		}
		widest = max(widest, float64(sum)*size/100)
	}
	if bold {
		widest *= boldFactor
	}
	return widest
}

// measureText is the same estimate for ECharts, whose own is for a narrower font and lets legends overlap.
func measureText() string {
	table, err := json.Marshal(sansWidths)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`(function (widths) {
	return {measureText: function (text, font) {
		var sum = 0, size = /([0-9.]+)px/.exec(font || '12px'), bold = /bold|[6-9]00/.test(font || '') ? %v : 1;
		for (var c of text || '') {
			var code = c.codePointAt(0);
			sum += code >= 32 && code <= 126 ? widths[code - 32] : code >= %d ? %d : %d;
		}
		return {width: sum * (size ? +size[1] : 12) * bold / 100};
	}};
})(%s)`, boldFactor, firstWide, wideWidth, otherWidth, table)
}

// Digits writes a measured value with three significant digits, and never in exponent form between 0.001 and a million.
func Digits(v float64) string {
	if v == 0 {
		return "0"
	}
	// The exponent is that of the rounded value: 0.9999 is 1.00 and not 1.000.
	_, digits, _ := strings.Cut(strconv.FormatFloat(v, 'e', 2, 64), "e")
	exponent, err := strconv.Atoi(digits)
	if err != nil || exponent >= 6 || exponent < -3 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	return strconv.FormatFloat(v, 'f', max(2-exponent, 0), 64)
}

func textLines(s string) int { return strings.Count(s, "\n") + 1 }

// medianY is the middle value, or the mean of the two middle ones.
func medianY(points []Point) float64 {
	ys := make([]float64, len(points))
	for i, p := range points {
		ys[i] = p.Y
	}
	slices.Sort(ys)
	n := len(ys)
	return (ys[(n-1)/2] + ys[n/2]) / 2
}

// exact writes a value that was counted: a whole number without a fraction, anything else as Digits does.
func exact(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return Digits(v)
}
