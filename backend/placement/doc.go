// Package placement lists the instances that a model's config asks for and where each is placed,
// and matches them with existing instances. Backends use it when they start a model (Of) and when
// its instance groups change (Of and Match). Any goroutine may call it.
//
// A Placement keeps the config's group, which nobody changes.
package placement
