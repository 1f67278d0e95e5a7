package pages

import (
	"html"
	"net/url"
	"strings"
)

// Page is the content of the page.
type Page struct {
	// Addresses describe the other endpoints, one sentence each: "gRPC: port 8001". One may end
	// with an address that begins with http://, which becomes a link.
	Addresses []string
	Models    []Model
	// Left is the number of further models.
	Left int
}

// Model is one served model.
type Model struct {
	Name            string
	Inputs, Outputs []string // "INPUT0 FP32 [4]"
}

// endpoint is an address below the root of the HTTP endpoint.
type endpoint struct{ method, path, what string }

var endpoints = []endpoint{
	{"GET", "/openapi.json", "the models as an OpenAPI document, for Swagger UI, Postman or a generator of clients"},
	{"GET", "/v2", "name, version and extensions of the server"},
	{"GET", "/v2/health/ready", "200 when the server is ready"},
	{"GET", "/v2/models/stats", "counts and durations of all models"},
	{"POST", "/v2/repository/index", "the models of the repository and their states"},
	{"GET", "/v2/models/MODEL", "inputs and outputs of a model"},
	{"GET", "/v2/models/MODEL/config", "its configuration, complete"},
	{"POST", "/v2/models/MODEL/infer", "a request, KServe v2"},
	{"POST", "/v2/models/MODEL/generate", "a request as a flat object; generate_stream has server-sent events"},
}

const title = "Nereid: KServe v2 with Triton's extensions"

// Text returns the page as plain text.
func (p Page) Text() []byte {
	var b strings.Builder
	b.WriteString(title + "\n\n")
	for _, e := range endpoints {
		b.WriteString(pad(e.method, 5) + pad(e.path, 33) + e.what + "\n")
	}
	if len(p.Addresses) > 0 {
		b.WriteString("\n" + strings.Join(p.Addresses, "\n") + "\n")
	}
	b.WriteString("\nModels that are ready:\n")
	if len(p.Models) == 0 {
		b.WriteString("  none\n")
	}
	for _, m := range p.Models {
		b.WriteString("  " + printable(m.Name) + ": " + printable(list(m.Inputs)) + " -> " + printable(list(m.Outputs)) + "\n")
	}
	if p.Left > 0 {
		b.WriteString("  and more: see /v2/repository/index\n")
	}
	return []byte(b.String())
}

// HTML returns the page for browsers.
func (p Page) HTML() []byte {
	var b strings.Builder
	b.WriteString(`<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">` +
		"<title>Nereid</title><style>:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}" +
		"td{padding:.1rem 1rem .1rem 0;vertical-align:top}</style></head><body><h1>" + html.EscapeString(title) + "</h1><table>")
	for _, e := range endpoints {
		shown := "<code>" + html.EscapeString(e.path) + "</code>"
		if e.method == "GET" && !strings.Contains(e.path, "MODEL") {
			shown = `<a href="` + e.path + `">` + shown + "</a>"
		}
		b.WriteString("<tr><td>" + e.method + "</td><td>" + shown + "</td><td>" + html.EscapeString(e.what) + "</td></tr>")
	}
	b.WriteString("</table>")
	for _, address := range p.Addresses {
		text, link, _ := strings.Cut(address, "http://")
		b.WriteString("<p>" + html.EscapeString(text))
		if link != "" {
			link = html.EscapeString("http://" + link)
			b.WriteString(`<a href="` + link + `">` + link + "</a>")
		}
		b.WriteString("</p>")
	}
	b.WriteString("<h2>Models that are ready</h2><table>")
	for _, m := range p.Models {
		path := html.EscapeString("/v2/models/" + url.PathEscape(m.Name))
		b.WriteString(`<tr><td><a href="` + path + `">` + html.EscapeString(m.Name) + `</a></td><td><a href="` + path + `/config">config</a></td><td>` +
			html.EscapeString(list(m.Inputs)) + " → " + html.EscapeString(list(m.Outputs)) + "</td></tr>")
	}
	b.WriteString("</table>")
	switch {
	case len(p.Models) == 0:
		b.WriteString("<p>none</p>")
	case p.Left > 0:
		b.WriteString("<p>and more</p>")
	}
	b.WriteString("</body></html>\n")
	return []byte(b.String())
}

func list(tensors []string) string {
	if len(tensors) == 0 {
		return "nothing"
	}
	return strings.Join(tensors, ", ")
}

func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(1, width-len(text)))
}

// printable removes control characters, which could affect a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7F && r <= 0x9F {
			return '?'
		}
		return r
	}, text)
}
