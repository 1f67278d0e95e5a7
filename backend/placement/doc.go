// Package placement says which instances a model's config asks for, where each is placed, and which
// instances that are there can stand for them. It has no state, and may be called by any goroutine.
//
// Callers: backends, when they start a model (Of), and when its instance groups change (Of and Match).
//
// Memory: a Placement keeps the config's group, which is not changed.
package placement
