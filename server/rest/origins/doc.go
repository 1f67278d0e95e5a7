// Package origins decides which pages of other sites may use the endpoints from a browser (CORS),
// and writes the header lines that tell the browser so.
//
// It owns a list of origins that does not change; any goroutine may ask. Without it browsers keep
// such pages from reading replies, as they do with Triton. It protects users of browsers, not the
// server: whatever else sends requests is not asked for an origin.
//
// Memory: lines for a known origin are made once; nothing is kept of a request.
package origins
