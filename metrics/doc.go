// Package metrics holds every metric of the server: its name, help text and
// labels. The families that begin with nv_ are Triton's, those that begin with
// nereid_ are this server's own.
//
// Counting is an atomic addition; rendering happens at each request for the page.
package metrics
