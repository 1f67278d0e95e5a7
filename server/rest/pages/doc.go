// Package pages writes the short page at the root of the HTTP endpoint: where the endpoints are,
// and which models are served, as text and as HTML.
//
// It owns nothing and has no state; any goroutine may call it. The page needs no other file and no
// script. Names of models are texts of strangers: HTML has them escaped.
package pages
