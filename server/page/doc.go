// Package page is a front end for people: in a browser it shows the models of a server, their states,
// figures and configuration, makes requests by a form, and loads and unloads models where clients may.
// docs/page.md says what it protects browsers from.
//
//	http1.Server ── Pages.Serve ── admission.Gate ── route ─┬─ overview, model: server.Core ─▶ view ─▶ template
//	                                                        └─ POST: form ── token ── infer, load, unload, instances
//
// It asks what the other front ends ask, by function calls. Groups of endpoints that the HTTP endpoint gives to
// requests with a header alone are closed here, since a browser does not send it.
//
// State: Pages does not change after New, and there is no lock. A load runs in the goroutine of the
// connection that asked for it, and no page waits for it: what they show comes of look-ups.
//
// Callers: package nereid makes a front end and runs it once. Each request is served by the goroutine
// of its connection.
//
// Memory: the body of a form is read as package body reads bodies, and charged, with what is made of it, until the
// reply has been sent. A page is put together on the Go heap; lists in it are bounded.
//
// Trust: names, texts and outputs are strangers'. Templates escape them where they stand; pictures
// are raster images as data URLs; the policy of admission.Headers is the second wall.
package page
