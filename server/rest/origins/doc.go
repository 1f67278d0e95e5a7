// Package origins decides which pages of other sites may use the endpoints from a browser (CORS),
// and writes the header lines for the browser.
//
// The list of origins does not change. Without it browsers keep such pages from reading replies, as
// with Triton. It protects users of browsers, not the server: other clients do not send an origin.
package origins
