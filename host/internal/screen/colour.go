package screen

import (
	"fmt"
	"image/color"
	"math"

	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/ansi"
)

// The terminal's own colours, in both themes of the Control Room; style.css has
// the same two (a test compares).
const (
	Foreground = "#d7dde5"
	Background = "#11161d"
)

// readable is the least contrast that text has with what is behind it.
const readable = 4.5

// basic are the sixteen colours, chosen to be read on Background.
var basic = [16]string{
	"#5c6773", "#ff7a80", "#8fd46a", "#f0c45a", "#6cb6ff", "#d6a0ff", "#56d4c8", "#d7dde5",
	"#8693a1", "#ff9a9e", "#a9e888", "#ffd97a", "#91caff", "#e3bdff", "#7fe7dc", "#ffffff",
}

// styled resolves a style. Concealed text is shown, and a colour that cannot be
// read on its background gives way: whoever looks must see what is there.
func styled(s uv.Style) Run {
	r := Run{Fg: hex(s.Fg), Bg: hex(s.Bg)}
	if s.Attrs&uv.AttrReverse != 0 {
		r.Fg, r.Bg = or(r.Bg, Background), or(r.Fg, Foreground)
	}
	if s.Attrs&uv.AttrBold != 0 {
		r.Bits |= Bold
	}
	if s.Attrs&uv.AttrItalic != 0 {
		r.Bits |= Italic
	}
	if s.Underline != 0 {
		r.Bits |= Underline
	}
	if s.Attrs&uv.AttrStrikethrough != 0 {
		r.Bits |= Strike
	}
	if r.Bg == Background {
		r.Bg = ""
	}
	if Contrast(or(r.Fg, Foreground), or(r.Bg, Background)) < readable {
		r.Fg = "#ffffff"
		if Contrast("#000000", or(r.Bg, Background)) > Contrast(r.Fg, or(r.Bg, Background)) {
			r.Fg = "#000000"
		}
	}
	if r.Fg == Foreground {
		r.Fg = ""
	}
	return r
}

func or(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

func hex(c color.Color) string {
	switch c := c.(type) {
	case nil:
		return ""
	case ansi.BasicColor:
		return basic[int(c)%len(basic)]
	case ansi.IndexedColor:
		if int(c) < len(basic) {
			return basic[c]
		}
	}
	r, g, b, _ := c.RGBA()
	return fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, b>>8)
}

// Contrast is WCAG's ratio of two colours written #rrggbb, from 1 to 21.
func Contrast(a, b string) float64 {
	la, lb := luminance(a), luminance(b)
	return (max(la, lb) + 0.05) / (min(la, lb) + 0.05)
}

func luminance(c string) float64 {
	var r, g, b uint8
	if _, err := fmt.Sscanf(c, "#%02x%02x%02x", &r, &g, &b); err != nil {
		return 0
	}
	part := func(v uint8) float64 {
		x := float64(v) / 255
		if x <= 0.04045 {
			return x / 12.92
		}
		return math.Pow((x+0.055)/1.055, 2.4)
	}
	return 0.2126*part(r) + 0.7152*part(g) + 0.0722*part(b)
}
