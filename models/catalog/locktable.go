package catalog

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/models/repository"
)

// LockTable records which operation has locked which models.
type LockTable struct {
	patience time.Duration
	outdated error

	mu      sync.Mutex
	changed chan struct{}                      // closed and replaced when models are unlocked
	holders map[repository.Identity]*Operation // bound: the models of operations under way
	running []*Operation                       // in the order in which they began; bound: operations under way
	waiting []*Operation                       // in the order in which they began to wait; bound: running
}

// NewLockTable makes a table without operations. After patience, a waiting operation cancels the
// load that it outdates, with the cause outdated. 0: it waits forever.
func NewLockTable(patience time.Duration, outdated error) *LockTable {
	return &LockTable{
		patience: patience, outdated: outdated, changed: make(chan struct{}), holders: make(map[repository.Identity]*Operation),
	}
}

// Begin announces an operation about the model name; End ends it. If a model's own code requests
// the operation while the model loads, from is that model's name and parent the operation that
// loads it. Otherwise they are "" and nil.
func (t *LockTable) Begin(name, from string, parent *Operation) *Operation {
	op := &Operation{name: name, from: from, parent: parent}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = append(t.running, op)
	return op
}

// Bound returns the context of an operation. It ends with ctx, with End, and when another operation
// outdates this one.
func (t *LockTable) Bound(ctx context.Context, op *Operation) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	t.mu.Lock()
	op.giveUp = cancel
	t.mu.Unlock()
	return ctx
}

// Announce sets the models that an operation is loading.
func (t *LockTable) Announce(op *Operation, brings map[repository.Identity]*Source) {
	t.mu.Lock()
	op.brings = brings
	t.mu.Unlock()
}

// End unlocks all models of the operation and ends its context.
func (t *LockTable) End(op *Operation) {
	t.Unlock(op)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = slices.DeleteFunc(t.running, func(o *Operation) bool { return o == op })
	if op.giveUp != nil {
		op.giveUp(nil)
	}
}

// Unlock unlocks all models of the operation.
func (t *LockTable) Unlock(op *Operation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, holder := range t.holders {
		if holder == op {
			delete(t.holders, id)
		}
	}
	t.wakeLocked()
}

// wakeLocked makes all waiting operations check again.
func (t *LockTable) wakeLocked() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// Lock waits until the operation, which holds no lock, has locked all needed models and the
// dependent ones. It skips dependent models that one of its ancestors holds: the ancestor handles
// them later. held are the locked models. The error is a *CircleError or the context's cause.
//
// bound: needed and dependent, and the operations under way
func (t *LockTable) Lock(ctx context.Context, op *Operation, needed, dependent repository.Set) (held repository.Set, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	held = make(repository.Set, len(needed)+len(dependent))
	for id := range needed {
		held[id] = true
	}
	for id := range dependent {
		if !needed[id] && op.descends(t.holders[id]) {
			t.holders[id].touch(id)
			continue
		}
		held[id] = true
	}
	op.wants = held
	t.waiting = append(t.waiting, op)
	defer func() {
		op.wants = nil
		t.waiting = slices.DeleteFunc(t.waiting, func(o *Operation) bool { return o == op })
		if err != nil { // others may have waited behind this one
			t.wakeLocked()
		}
	}()
	var late <-chan time.Time
	if op.Outdates != nil && t.patience > 0 {
		ticks := time.NewTicker(t.patience)
		defer ticks.Stop()
		late = ticks.C
	}
	for len(t.blockersLocked(op)) > 0 {
		if op.parent != nil {
			if way := t.wayLocked(op, op, make(map[*Operation]bool)); way != nil {
				return nil, &CircleError{Way: append([]string{op.from}, way...)}
			}
		}
		changed := t.changed
		t.mu.Unlock()
		select {
		case <-changed:
		case <-late:
			t.overtake(op)
		case <-ctx.Done():
		}
		t.mu.Lock()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	for id := range held {
		t.holders[id] = op
	}
	return held, nil
}

// TryLock locks those of the models that are free, for an operation that holds no lock, and returns
// them. It does not wait.
//
// bound: ids
func (t *LockTable) TryLock(op *Operation, ids []repository.Identity) (held []repository.Identity) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range ids {
		if t.holders[id] == nil {
			t.holders[id] = op
			held = append(held, id)
		}
	}
	return held
}

// overtake cancels the operations whose loads a waiting operation outdates.
func (t *LockTable) overtake(op *Operation) {
	type load struct {
		by     *Operation
		id     repository.Identity
		source *Source
	}
	var loads []load // bound: the models of the operation
	t.mu.Lock()
	for id := range op.wants {
		holder := t.holders[id]
		if holder == nil || holder.giveUp == nil || op.descends(holder) {
			continue
		}
		if s, brings := holder.brings[id]; brings {
			loads = append(loads, load{holder, id, s})
		}
	}
	t.mu.Unlock()
	for _, l := range loads {
		if op.Outdates(l.id, l.source) {
			l.by.giveUp(t.outdated)
		}
	}
}

// WasTouched reports whether a child has changed a dependency of id.
func (t *LockTable) WasTouched(op *Operation, id repository.Identity) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return op.touched[id]
}

// blockersLocked lists the operations that block a waiting operation.
func (t *LockTable) blockersLocked(op *Operation) []*Operation {
	var blockers []*Operation
	add := func(o *Operation) {
		if !slices.Contains(blockers, o) {
			blockers = append(blockers, o)
		}
	}
	for id := range op.wants {
		if holder := t.holders[id]; holder != nil && holder != op {
			add(holder)
		}
	}
	for _, earlier := range t.waiting {
		if earlier == op || op.parent != nil {
			break
		}
		for id := range op.wants {
			if earlier.wants[id] {
				add(earlier)
				break
			}
		}
	}
	return blockers
}

// wayLocked finds the chain of operations over which from waits for to, as the names of their
// models without to's own. It is nil if there is no such chain.
//
// bound: the operations under way
func (t *LockTable) wayLocked(from, to *Operation, passed map[*Operation]bool) []string {
	next := []*Operation{}
	if from.wants != nil {
		next = t.blockersLocked(from)
	}
	for _, o := range t.running {
		if o.parent == from {
			next = append(next, o)
		}
	}
	for _, o := range next {
		if o == to {
			return []string{}
		}
		if passed[o] {
			continue
		}
		passed[o] = true
		if way := t.wayLocked(o, to, passed); way != nil {
			return append([]string{o.name}, way...)
		}
	}
	return nil
}

// Counts returns the numbers of locked models, running operations and waiting operations.
func (t *LockTable) Counts() (locked, running, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.holders), len(t.running), len(t.waiting)
}
