package figures

import (
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"regexp"
	"strings"
)

// What ECharts writes for browsers and other viewers of SVG misread or don't need.
var (
	styleElement = regexp.MustCompile(`(?s)<style[^>]*>.*?</style>`)
	uselessAttr  = regexp.MustCompile(` (?:class|pointer-events|ecmeta_[a-z_]+)="[^"]*"`)
	styleAttr    = regexp.MustCompile(` style="([^"]*)"`)
	baseline     = regexp.MustCompile(` dominant-baseline="([a-z-]+)"`)
	elementID    = regexp.MustCompile(` id="([^"]+)"`)
	elementRef   = regexp.MustCompile(`(url\(#|href="#)([^)"]+)`)
	rootElement  = regexp.MustCompile(`^<svg [^>]*>`)
)

// baselineShift replaces dominant-baseline, which librsvg does not know and then draws the text half a line too high.
var baselineShift = map[string]string{"central": "0.35em", "middle": "0.35em", "hanging": "0.8em", "text-before-edge": "0.8em", "text-after-edge": "-0.2em"}

// cleanSVG makes the raw picture fit for any viewer and for a page with other pictures: no style sheet, ids of its own, and a
// title for those who can't see it.
func cleanSVG(f Figure, raw string) ([]byte, error) {
	s := styleElement.ReplaceAllString(raw, "")
	s = uselessAttr.ReplaceAllString(s, "")
	s = styleAttr.ReplaceAllStringFunc(s, func(m string) string { return presentation(styleAttr.FindStringSubmatch(m)[1]) })
	s = baseline.ReplaceAllStringFunc(s, func(m string) string {
		return ` dy="` + baselineShift[baseline.FindStringSubmatch(m)[1]] + `"`
	})
	s = elementID.ReplaceAllString(s, ` id="`+f.ID+`-$1"`)
	s = elementRef.ReplaceAllString(s, `${1}`+f.ID+`-$2`)
	if !rootElement.MatchString(s) {
		return nil, fmt.Errorf("figure %q: ECharts did not write an SVG element", f.ID)
	}
	s = rootElement.ReplaceAllString(s, fmt.Sprintf(
		`<svg width="%d" height="%d" viewBox="0 0 %d %d" xmlns="http://www.w3.org/2000/svg" version="1.1" role="img" aria-labelledby="%s-title">`+
			"\n<title id=\"%s-title\">", f.Width, f.Height, f.Width, f.Height, f.ID, f.ID)+
		strings.ReplaceAll(html.EscapeString(f.Title), "$", "$$")+"</title>")
	// A blank line would end the HTML block that a Markdown document holds the picture in.
	s = regexp.MustCompile(`\n\s*\n+`).ReplaceAllString(strings.ReplaceAll(s, "\r", ""), "\n")
	if err := wellFormed(s); err != nil {
		return nil, fmt.Errorf("figure %q: ECharts wrote SVG that is not well-formed: %w", f.ID, err)
	}
	return []byte(strings.TrimSpace(s) + "\n"), nil
}

// presentation turns the font of a style attribute into attributes of its own, which a strict content policy of a page allows and
// every viewer knows; the rest of the style is about pointers.
func presentation(style string) string {
	var attrs strings.Builder
	for declaration := range strings.SplitSeq(html.UnescapeString(style), ";") {
		name, value, _ := strings.Cut(declaration, ":")
		if name = strings.TrimSpace(name); strings.HasPrefix(name, "font-") {
			fmt.Fprintf(&attrs, ` %s="%s"`, name, html.EscapeString(strings.TrimSpace(value)))
		}
	}
	return attrs.String()
}

func wellFormed(s string) error {
	d := xml.NewDecoder(strings.NewReader(s))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
