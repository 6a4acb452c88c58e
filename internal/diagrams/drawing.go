package diagrams

import (
	"fmt"
	"html"
	"strings"

	"shardlease/internal/figures"
)

// drawing collects SVG elements.
type drawing struct {
	strings.Builder
	width, height int
}

func (d *drawing) rect(x, y, w, h float64, fill, stroke string, radius float64) {
	fmt.Fprintf(d, "<rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\" rx=\"%g\" fill=\"%s\" stroke=\"%s\"/>\n", x, y, w, h, radius, fill, stroke)
}

func (d *drawing) line(x1, y1, x2, y2, width float64, stroke, more string) {
	fmt.Fprintf(d, "<path d=\"M%g %gL%g %g\" fill=\"none\" stroke=\"%s\" stroke-width=\"%g\"%s/>\n", x1, y1, x2, y2, stroke, width, more)
}

func (d *drawing) text(x, y, size float64, anchor, fill, more, s string) {
	fmt.Fprintf(d, "<text x=\"%g\" y=\"%g\" dy=\"0.35em\" font-size=\"%g\" text-anchor=\"%s\" fill=\"%s\"%s>%s</text>\n", x, y, size, anchor, fill, more, html.EscapeString(s))
}

const bold = ` font-weight="bold"`

// finish wraps the elements. The title is for those who can't see the picture.
func (d *drawing) finish(id, title string) []byte {
	return fmt.Appendf(nil, "<svg width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" role=\"img\" aria-labelledby=\"%s-title\" font-family=\"%s\">\n<title id=\"%s-title\">%s</title>\n"+
		"<defs><marker id=\"%s-arrow\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto-start-reverse\"><path d=\"M0 0L10 5L0 10z\" fill=\"%s\"/></marker></defs>\n"+
		"<rect width=\"%d\" height=\"%d\" fill=\"#FFFFFF\"/>\n%s</svg>\n",
		d.width, d.height, d.width, d.height, id, figures.FontFamily, id, html.EscapeString(title), id, figures.Ink, d.width, d.height, d.String())
}
