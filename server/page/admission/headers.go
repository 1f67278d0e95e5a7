package admission

// Headers are in every reply of the page, each with its line break. They forbid inline scripts,
// content from elsewhere, and framing by other pages. With no-referrer browsers would send no
// origin with a form.
const Headers = "Content-Security-Policy: default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; media-src data:; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'\r\n" +
	"X-Content-Type-Options: nosniff\r\n" +
	"X-Frame-Options: DENY\r\n" +
	"Referrer-Policy: same-origin\r\n" +
	"Cross-Origin-Opener-Policy: same-origin\r\n" +
	"Cross-Origin-Resource-Policy: same-origin\r\n"

// Fresh forbids caching of a reply, and Kept allows it forever.
const (
	Fresh = "Cache-Control: no-store\r\n"
	Kept  = "Cache-Control: public, max-age=31536000, immutable\r\n"
)
