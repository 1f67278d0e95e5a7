package main

import (
	"context"
	"math/rand/v2"
	"strings"
)

// steadyModels are loaded from the start to the end; the others are not.
var steadyModels = []string{"identity", "doubles", "counts", "asks", "chain", "direct", "oldest", "crashes", "sleeps", "chats"}

// actor is a client, or something else that happens to the server.
type actor struct {
	count int
	act   func(ctx context.Context, r *rand.Rand)
}

// actors are all that take part in the storm.
func (k *soak) actors() []actor {
	var all []actor
	add := func(count int, act func(ctx context.Context, r *rand.Rand)) {
		all = append(all, actor{count, act})
	}
	for _, c := range k.goodClients() {
		add(c.count, func(ctx context.Context, r *rand.Rand) { k.askOften(ctx, r, c) })
	}
	for _, h := range k.hostileClients() {
		if strings.Contains(h.name, k.only) {
			add(1, func(ctx context.Context, r *rand.Rand) { k.annoy(ctx, r, h) })
		}
	}
	add(1, k.lure)
	if k.only != "" {
		return all
	}
	add(1, k.kill)
	add(1, k.freeze)
	add(1, k.move)
	add(1, k.regroup)
	add(1, k.reload)
	add(1, k.hang)
	add(1, k.pauseServer)
	return all
}
