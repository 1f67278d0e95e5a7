// Package page is a front end for people. In a browser it shows the models of a server with their
// states, figures and configuration, has a form for requests, and loads and unloads models where
// clients may. docs/page.md describes how it protects browsers.
//
//	http1.Server ── Pages.Serve ── admission.Gate ── route ─┬─ overview, model: server.Core ─▶ view ─▶ template
//	                                                        └─ POST: form ── token ── infer, load, unload, instances
//
// It uses the same Core as the other front ends. Groups of endpoints for which the HTTP endpoint
// requires a header are closed here, since a browser does not send it.
//
// Pages does not change after New. A load runs in the goroutine of the connection that asked for
// it, and no page waits for it.
//
// Memory: the body of a form is charged like all bodies, together with its parsed fields, until the
// reply has been sent. A page is assembled on the Go heap; its lists are bounded.
//
// Trust: names, texts and outputs are untrusted. Templates escape them; pictures are raster images
// as data URLs; the policy of admission.Headers is a second barrier.
package page
