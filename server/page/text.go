package page

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"
)

// bytesText formats a number of bytes.
func bytesText(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v /= 1024
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.*f %s", decimals(v), v, units[i])
}

// countText formats a number with a thin space between thousands.
//
// bound: 20 digits
func countText(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteRune('\u202f')
		}
		b.WriteRune(d)
	}
	return sign + b.String()
}

// durationText formats a duration with three significant digits.
func durationText(d time.Duration) string {
	switch v := float64(d); {
	case d <= 0:
		return "0 s"
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d)
	case d < time.Millisecond:
		return fmt.Sprintf("%.*f µs", decimals(v/1e3), v/1e3)
	case d < time.Second:
		return fmt.Sprintf("%.*f ms", decimals(v/1e6), v/1e6)
	case d < 2*time.Minute:
		return fmt.Sprintf("%.*f s", decimals(v/1e9), v/1e9)
	default:
		return ageText(d)
	}
}

// ageText formats an age.
func ageText(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", max(d, 0)/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	}
}

func decimals(v float64) int {
	switch {
	case v < 10:
		return 2
	case v < 100:
		return 1
	}
	return 0
}

// fileURL permits the data URLs of package form in a template, which rejects other data URLs: a
// picture, a sound, or bytes that a browser saves.
func fileURL(url string) template.URL {
	kind, _, _ := strings.Cut(strings.TrimPrefix(url, "data:"), ";")
	if kind != "application/octet-stream" && !strings.HasPrefix(kind, "image/") && !strings.HasPrefix(kind, "audio/") || strings.HasPrefix(kind, "image/svg") {
		return ""
	}
	return template.URL(url) //nolint:gosec // base64 of bytes that are no markup to a browser
}
