package models

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nereid-serving/nereid/models/repository"
)

// claims says which operation changes which models. An operation takes all
// models that it needs at once, or waits and holds none of them meanwhile; so
// operations wait for each other only through the code of a model that asks for
// a change while it is being loaded. Such an operation has a parent, goes ahead of
// others that wait, and is refused if its parent would wait for itself.
type claims struct {
	// patience is how long an operation waits for another whose load it outdates
	// before it gives that up; 0: for ever.
	patience time.Duration

	mu      sync.Mutex
	changed chan struct{} // closed, and made anew, when models are given back
	holders map[repository.Identity]*operation
	running []*operation // in the order in which they began
	waiting []*operation // in the order in which they began to wait
}

// operation is one change of models that is under way.
type operation struct {
	name   string // the model that it is about
	from   string // the model whose load waits for it, "" for none
	parent *operation
	// outdates reports whether a load of a model from a source is pointless once this
	// operation has been asked for; s is nil for an exchange of instances. It is
	// called without a lock. Nil: it outdates none.
	outdates func(id repository.Identity, s *source) bool

	// Guarded by the claims' mu.
	giveUp  context.CancelCauseFunc         // ends what the operation does; nil before bound
	brings  map[repository.Identity]*source // what it brings up
	wants   repository.Set                  // what it waits for, nil while it does not
	touched repository.Set                  // what its children have changed below models that it holds
}

// circleError refuses an operation for which a load waits that it would wait for.
type circleError struct{ way []string }

func (e *circleError) Error() string { return "the load would wait for itself" }

func newClaims() *claims {
	return &claims{changed: make(chan struct{}), holders: make(map[repository.Identity]*operation)}
}

// begin announces an operation; end ends it.
func (c *claims) begin(name string, up *bringing) *operation {
	op := &operation{name: name}
	if up != nil {
		op.from, op.parent = up.model, up.op
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = append(c.running, op)
	return op
}

// bound returns a context for what the operation does: it ends with ctx, when
// another operation outdates this one, and with end.
func (c *claims) bound(ctx context.Context, op *operation) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	op.giveUp = cancel
	c.mu.Unlock()
	return ctx
}

// announce says what an operation is bringing up.
func (c *claims) announce(op *operation, brings map[repository.Identity]*source) {
	c.mu.Lock()
	op.brings = brings
	c.mu.Unlock()
}

func (c *claims) end(op *operation) {
	c.release(op)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = slices.DeleteFunc(c.running, func(o *operation) bool { return o == op })
	if op.giveUp != nil {
		op.giveUp(nil)
	}
}

// release gives back what the operation holds.
func (c *claims) release(op *operation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, holder := range c.holders {
		if holder == op {
			delete(c.holders, id)
		}
	}
	c.wakeLocked()
}

// wakeLocked has all that wait look again.
func (c *claims) wakeLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// take waits until the operation, which holds nothing, has all models that it
// needs, and those that depend on them. Of the dependent ones it may do without
// those that an operation holds whose load waits for it: that one looks at them
// itself, later. Held are those that it has got. The error is a *circleError or
// the context's cause.
func (c *claims) take(ctx context.Context, op *operation, needed, dependent repository.Set) (held repository.Set, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held = make(repository.Set, len(needed)+len(dependent))
	for id := range needed {
		held[id] = true
	}
	for id := range dependent {
		if !needed[id] && op.descends(c.holders[id]) {
			c.holders[id].touch(id)
			continue
		}
		held[id] = true
	}
	op.wants = held
	c.waiting = append(c.waiting, op)
	defer func() {
		op.wants = nil
		c.waiting = slices.DeleteFunc(c.waiting, func(o *operation) bool { return o == op })
		if err != nil { // others may have waited behind this one
			c.wakeLocked()
		}
	}()
	var late <-chan time.Time
	if op.outdates != nil && c.patience > 0 {
		ticks := time.NewTicker(c.patience)
		defer ticks.Stop()
		late = ticks.C
	}
	for len(c.blockersLocked(op)) > 0 {
		if op.parent != nil {
			if way := c.wayLocked(op, op, make(map[*operation]bool)); way != nil {
				return nil, &circleError{way: append([]string{op.from}, way...)}
			}
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-late:
			c.overtake(op)
		case <-ctx.Done():
		}
		c.mu.Lock()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	for id := range held {
		c.holders[id] = op
	}
	return held, nil
}

// overtake gives up the operations whose loads one that waits for them outdates.
func (c *claims) overtake(op *operation) {
	type load struct {
		by     *operation
		id     repository.Identity
		source *source
	}
	var loads []load
	c.mu.Lock()
	for id := range op.wants {
		holder := c.holders[id]
		if holder == nil || holder.giveUp == nil || op.descends(holder) {
			continue
		}
		if s, brings := holder.brings[id]; brings {
			loads = append(loads, load{holder, id, s})
		}
	}
	c.mu.Unlock()
	for _, l := range loads {
		if op.outdates(l.id, l.source) {
			l.by.giveUp(errOvertaken)
		}
	}
}

// descends reports whether ancestor waits for the operation, over any number of
// others.
func (op *operation) descends(ancestor *operation) bool {
	for at := op.parent; at != nil && ancestor != nil; at = at.parent {
		if at == ancestor {
			return true
		}
	}
	return false
}

func (op *operation) touch(id repository.Identity) {
	if op.touched == nil {
		op.touched = make(repository.Set)
	}
	op.touched[id] = true
}

// wasTouched reports whether a child has changed what id depends on.
func (c *claims) wasTouched(op *operation, id repository.Identity) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return op.touched[id]
}

// blockersLocked are the operations for which one that waits has to wait.
func (c *claims) blockersLocked(op *operation) []*operation {
	var blockers []*operation
	add := func(o *operation) {
		if !slices.Contains(blockers, o) {
			blockers = append(blockers, o)
		}
	}
	for id := range op.wants {
		if holder := c.holders[id]; holder != nil && holder != op {
			add(holder)
		}
	}
	for _, earlier := range c.waiting {
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

// wayLocked finds over which operations from waits for to, by the names of the
// models that they are about; to itself is not among them. It is nil if there is
// no way.
func (c *claims) wayLocked(from, to *operation, passed map[*operation]bool) []string {
	next := []*operation{}
	if from.wants != nil {
		next = c.blockersLocked(from)
	}
	for _, o := range c.running {
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
		if way := c.wayLocked(o, to, passed); way != nil {
			return append([]string{o.name}, way...)
		}
	}
	return nil
}
