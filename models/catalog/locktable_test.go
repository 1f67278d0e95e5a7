package catalog_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nereid-serving/nereid/models/catalog"
	"github.com/nereid-serving/nereid/models/repository"
)

// claimant is an operation and the state of its lock request.
type claimant struct {
	*catalog.Operation
	held repository.Set
	err  error
	done bool
}

// asker is a model whose code starts an operation, and the operation that loads this model.
type asker struct {
	model string
	by    *catalog.Operation
}

// table is a LockTable with a helper for tests.
type table struct{ *catalog.LockTable }

func newTable() table { return table{catalog.NewLockTable(0, errors.New("outdated"))} }

// claim starts to lock models and waits until the goroutine blocks or ends. It must run in a
// synctest bubble.
func (c table) claim(ctx context.Context, name string, up *asker, needed, dependent string) *claimant {
	if up == nil {
		up = &asker{}
	}
	p := &claimant{Operation: c.Begin(name, up.model, up.by)}
	go func() {
		p.held, p.err = c.Lock(ctx, p.Operation, ids(needed), ids(dependent))
		p.done = true
	}()
	synctest.Wait()
	return p
}

// ids returns the set of models with these names.
func ids(names string) repository.Set {
	set := make(repository.Set)
	for _, name := range strings.Fields(names) {
		set[repository.Identity{Name: name}] = true
	}
	return set
}

func TestOperationsExcludeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTable()
		first := c.claim(t.Context(), "a", nil, "a b", "e")
		apart := c.claim(t.Context(), "x", nil, "x", "")
		second := c.claim(t.Context(), "b", nil, "b c", "")
		behind := c.claim(t.Context(), "c", nil, "c", "") // otherwise the second could wait forever
		if !first.done || !apart.done || second.done || behind.done {
			t.Errorf("done: %v, %v, %v, %v", first.done, apart.done, second.done, behind.done)
		}
		c.End(first.Operation)
		synctest.Wait()
		if !second.done || behind.done {
			t.Errorf("done: %v, %v", second.done, behind.done)
		}
		c.End(second.Operation)
		synctest.Wait()
		if !behind.done || behind.err != nil || len(behind.held) != 1 {
			t.Errorf("got %+v", behind)
		}
		c.End(behind.Operation)
		c.End(apart.Operation)
	})
}

// TestTryLockWaitsForNothing checks that TryLock locks the free models, even those for which others
// wait, and that the others continue when it ends.
func TestTryLockWaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTable()
		first := c.claim(t.Context(), "a", nil, "a", "")
		second := c.claim(t.Context(), "b", nil, "a b", "")
		op := c.Begin("", "", nil)
		held := c.TryLock(op, ids("a b x").Sorted())
		if got, want := repository.SetOf(held...), ids("b x"); !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		c.End(first.Operation)
		synctest.Wait()
		if second.done {
			t.Error("the second operation has a model that is locked")
		}
		c.End(op)
		synctest.Wait()
		if !second.done || second.err != nil {
			t.Errorf("got %+v", second)
		}
		c.End(second.Operation)
	})
}

func TestLocksAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTable()
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
		c.End(first.Operation)
	})
}

// TestLocksInCirclesAreRefused checks that operations started by the code of loading models are
// rejected if they would wait for themselves.
func TestLocksInCirclesAreRefused(t *testing.T) {
	within := func(p *claimant, model string) *asker { return &asker{model, p.Operation} }
	way := func(err error) string {
		var circle *catalog.CircleError
		if !errors.As(err, &circle) {
			return ""
		}
		return strings.Join(circle.Way, " -> ")
	}
	t.Run("itself", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newTable()
			a := c.claim(t.Context(), "a", nil, "a", "")
			again := c.claim(t.Context(), "a", within(a, "a"), "a", "")
			if got := way(again.err); got != "a -> a" {
				t.Errorf("got %q", got)
			}
		})
	})
	t.Run("over others", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newTable()
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
			c := newTable()
			a := c.claim(t.Context(), "a", nil, "a", "")
			b := c.claim(t.Context(), "b", nil, "b", "")
			one := c.claim(t.Context(), "b", within(a, "a"), "b", "")
			other := c.claim(t.Context(), "a", within(b, "b"), "a", "")
			if one.done || way(other.err) != "b -> a -> b -> b" && way(other.err) != "b -> a -> b" {
				t.Errorf("got %+v and %q", one, way(other.err))
			}
			c.End(other.Operation)
			c.End(b.Operation)
			synctest.Wait()
			if one.err != nil || !one.done {
				t.Errorf("got %+v", one)
			}
		})
	})
	t.Run("an ensemble above both", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newTable()
			a := c.claim(t.Context(), "a", nil, "a", "e")
			b := c.claim(t.Context(), "b", within(a, "a"), "b", "e")
			if !b.done || b.err != nil || b.held[repository.Identity{Name: "e"}] {
				t.Errorf("got %+v", b)
			}
			if e := (repository.Identity{Name: "e"}); !c.WasTouched(a.Operation, e) || c.WasTouched(b.Operation, e) {
				t.Error("the first does not know that the ensemble's other model has changed")
			}
		})
	})
	t.Run("whoever is waited for goes ahead", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newTable()
			a := c.claim(t.Context(), "a", nil, "a", "")
			waits := c.claim(t.Context(), "a", nil, "a b", "")
			b := c.claim(t.Context(), "b", within(a, "a"), "b", "")
			if !b.done || b.err != nil || waits.done {
				t.Errorf("got %+v, and %+v", b, waits)
			}
			c.End(b.Operation)
			c.End(a.Operation)
			synctest.Wait()
			if !waits.done {
				t.Error("the one that waited still does")
			}
		})
	})
}
