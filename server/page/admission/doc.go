// Package admission decides which requests of browsers the page serves, so that no page of another
// site reads it or acts through it. It knows nothing of what the page shows.
//
//	http1.Request ─▶ Gate.Admit ── Host ── Sec-Fetch-Site ── Origin of a POST ─▶ page
//	fields of a form ─▶ Gate.Trusts ── token ─▶ what changes something
//
// State: a Gate has the names of its hosts and its token, and neither changes after New. There is no
// lock; any goroutine may ask.
//
// Trust: a request comes from a browser that runs scripts of anybody. A browser tells the truth in Host, Origin
// and Sec-Fetch-Site, which no script can set. Clients that are no browsers may write what they like there: what
// they can do by it is what the HTTP endpoint lets them do anyway.
//
// Memory: nothing is kept of a request.
package admission
