package models

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nereid-serving/nereid/models/repository"
)

// ids makes a set of names.
func ids(names string) repository.Set {
	set := make(repository.Set)
	for _, name := range strings.Fields(names) {
		set[repository.Identity{Name: name}] = true
	}
	return set
}

// claimant is an operation whose claim is under way.
type claimant struct {
	*operation
	held repository.Set
	err  error
	done bool
}

// claim begins to take models, within a synctest bubble.
func (c *claims) claim(ctx context.Context, name string, up *bringing, needed, dependent string) *claimant {
	p := &claimant{operation: c.begin(name, up)}
	go func() {
		p.held, p.err = c.take(ctx, p.operation, ids(needed), ids(dependent))
		p.done = true
	}()
	synctest.Wait()
	return p
}

func TestClaimsExclude(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClaims()
		first := c.claim(t.Context(), "a", nil, "a b", "e")
		apart := c.claim(t.Context(), "x", nil, "x", "")
		second := c.claim(t.Context(), "b", nil, "b c", "")
		behind := c.claim(t.Context(), "c", nil, "c", "") // it would make the second wait for ever
		if !first.done || !apart.done || second.done || behind.done {
			t.Errorf("done: %v, %v, %v, %v", first.done, apart.done, second.done, behind.done)
		}
		c.end(first.operation)
		synctest.Wait()
		if !second.done || behind.done {
			t.Errorf("done: %v, %v", second.done, behind.done)
		}
		c.end(second.operation)
		synctest.Wait()
		if !behind.done || behind.err != nil || len(behind.held) != 1 {
			t.Errorf("got %+v", behind)
		}
		c.end(behind.operation)
		c.end(apart.operation)
	})
}

func TestClaimsAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClaims()
		first := c.claim(t.Context(), "a", nil, "a", "")
		ctx, cancel := context.WithCancelCause(t.Context())
		second := c.claim(ctx, "a", nil, "a b", "")
		third := c.claim(t.Context(), "b", nil, "b", "")
		why := errors.New("why")
		cancel(why)
		synctest.Wait()
		if !second.done || !errors.Is(second.err, why) || !third.done || third.err != nil {
			t.Errorf("got %+v and %+v", second, third)
		}
		c.end(first.operation)
	})
}

// TestClaimsInCircles has the code of models that are being loaded ask for
// changes.
func TestClaimsInCircles(t *testing.T) {
	within := func(p *claimant, model string) *bringing { return &bringing{model: model, op: p.operation} }
	way := func(err error) string {
		var circle *circleError
		if !errors.As(err, &circle) {
			return ""
		}
		return strings.Join(circle.way, " -> ")
	}
	t.Run("itself", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClaims()
			a := c.claim(t.Context(), "a", nil, "a", "")
			again := c.claim(t.Context(), "a", within(a, "a"), "a", "")
			if got := way(again.err); got != "a -> a" {
				t.Errorf("got %q", got)
			}
		})
	})
	t.Run("over others", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClaims()
			a := c.claim(t.Context(), "a", nil, "a", "")
			b := c.claim(t.Context(), "b", within(a, "a"), "b", "")
			last := c.claim(t.Context(), "a", within(b, "b"), "a", "")
			if got := way(last.err); got != "b -> a -> b" {
				t.Errorf("got %q", got)
			}
		})
	})
	t.Run("two loads", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClaims()
			a := c.claim(t.Context(), "a", nil, "a", "")
			b := c.claim(t.Context(), "b", nil, "b", "")
			one := c.claim(t.Context(), "b", within(a, "a"), "b", "")
			other := c.claim(t.Context(), "a", within(b, "b"), "a", "")
			if one.done || way(other.err) != "b -> a -> b -> b" && way(other.err) != "b -> a -> b" {
				t.Errorf("got %+v and %q", one, way(other.err))
			}
			c.end(other.operation)
			c.end(b.operation)
			synctest.Wait()
			if one.err != nil || !one.done {
				t.Errorf("got %+v", one)
			}
		})
	})
	t.Run("an ensemble above both", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClaims()
			a := c.claim(t.Context(), "a", nil, "a", "e")
			b := c.claim(t.Context(), "b", within(a, "a"), "b", "e")
			if !b.done || b.err != nil || b.held[repository.Identity{Name: "e"}] {
				t.Errorf("got %+v", b)
			}
			if e := (repository.Identity{Name: "e"}); !c.wasTouched(a.operation, e) || c.wasTouched(b.operation, e) {
				t.Error("the first does not know that the ensemble's other model has changed")
			}
		})
	})
	t.Run("whoever is waited for goes ahead", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newClaims()
			a := c.claim(t.Context(), "a", nil, "a", "")
			waits := c.claim(t.Context(), "a", nil, "a b", "")
			b := c.claim(t.Context(), "b", within(a, "a"), "b", "")
			if !b.done || b.err != nil || waits.done {
				t.Errorf("got %+v, and %+v", b, waits)
			}
			c.end(b.operation)
			c.end(a.operation)
			synctest.Wait()
			if !waits.done {
				t.Error("the one that waited still does")
			}
		})
	})
}
