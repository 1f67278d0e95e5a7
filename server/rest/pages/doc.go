// Package pages writes the short page at the root of the HTTP endpoint, with the addresses of the
// endpoints and the served models, as text and as HTML. The page needs no other file and no script.
// Names of models are untrusted: HTML escapes them.
package pages
