package scale

import "math"

// point is a measured time with the two terms of a linear model.
type point struct{ x, y, ms float64 }

// fit finds a and b of ms = a·x + b·y by least squares of the relative residuals, so that each point counts the same whatever its size. Costs
// are not negative: where the best plane has a negative one, it is zero.
func fit(points []point) (a, b float64) {
	var xx, xy, yy, x1, y1 float64
	for _, p := range points {
		x, y := p.x/p.ms, p.y/p.ms
		xx, xy, yy, x1, y1 = xx+x*x, xy+x*y, yy+y*y, x1+x, y1+y
	}
	det := xx*yy - xy*xy
	a, b = (x1*yy-y1*xy)/det, (y1*xx-x1*xy)/det
	switch {
	case math.Abs(det) < 1e-12*xx*yy || b < 0:
		return x1 / xx, 0
	case a < 0:
		return 0, y1 / yy
	}
	return a, b
}

// farthest is the ratio of measured to fitted time that is farthest from 1.
func farthest(points []point, a, b float64) float64 {
	worst := 1.0
	for _, p := range points {
		if r := p.ms / (a*p.x + b*p.y); math.Abs(math.Log(r)) > math.Abs(math.Log(worst)) {
			worst = r
		}
	}
	return worst
}
