package main

import (
	"context"
	"math/rand/v2"
	"strings"
)

// steadyModels are loaded from start to end; the others are not.
var steadyModels = []string{"identity", "doubles", "counts", "asks", "chain", "direct", "oldest", "crashes", "sleeps", "chats"}

// actor is a client, or another kind of load or trouble for the server.
type actor struct {
	count int
	act   func(ctx context.Context, r *rand.Rand)
}

// good returns the good clients.
func (k *soak) good() (all []actor) {
	for _, c := range k.goodClients() {
		all = append(all, actor{c.count, func(ctx context.Context, r *rand.Rand) { k.askOften(ctx, r, c) }})
	}
	return all
}

// others returns the hostile clients and all kinds of trouble.
func (k *soak) others() (all []actor) {
	for _, h := range k.hostileClients() {
		if strings.Contains(h.name, k.only) {
			all = append(all, actor{1, func(ctx context.Context, r *rand.Rand) { k.annoy(ctx, r, h) }})
		}
	}
	acts := []func(context.Context, *rand.Rand){k.lure}
	if k.only == "" {
		acts = append(acts, k.kill, k.freeze, k.move, k.regroup, k.reload, k.hang, k.pauseServer)
	}
	for _, act := range acts {
		all = append(all, actor{1, act})
	}
	return all
}
