// Package admission decides which browser requests the page serves, so that no page of another site
// can read it or act through it. It does not know the content of the page.
//
//	http1.Request ─▶ Gate.Admit ── Host ── Sec-Fetch-Site ── Origin of a POST ─▶ page
//	fields of a form ─▶ Gate.Trusts ── token ─▶ changes
//
// A Gate does not change after New and may be used by any goroutine.
//
// Trust: a request comes from a browser that runs untrusted scripts. Scripts cannot set Host,
// Origin and Sec-Fetch-Site, so a browser's values are true. Other clients can send any values,
// which allow them no more than the HTTP endpoint does.
package admission
