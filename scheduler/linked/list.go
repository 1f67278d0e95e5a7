// Package linked is a list whose members carry their own links: nothing is
// allocated, and a member leaves from anywhere in constant time.
//
// A list and the links of its members have no lock: the owner of the list guards
// both. A member is in one list at a time.
package linked

// List holds what waits, in order. The zero value is empty. A loop from First
// reads After before it removes a member.
type List[M Member[M]] struct{ First, Last M }

// Member is a pointer to a struct that embeds Neighbours.
type Member[M any] interface {
	comparable
	beside() *Neighbours[M]
}

// Neighbours are the members before and after one, nil at the ends and outside of
// any list.
type Neighbours[M any] struct{ Before, After M }

func (n *Neighbours[M]) beside() *Neighbours[M] { return n }

// PushBack adds a member that is in no list at the end.
func (l *List[M]) PushBack(m M) {
	var none M
	*m.beside() = Neighbours[M]{Before: l.Last}
	if l.Last == none {
		l.First = m
	} else {
		l.Last.beside().After = m
	}
	l.Last = m
}

// PushFront adds a member that is in no list before all others.
func (l *List[M]) PushFront(m M) {
	var none M
	*m.beside() = Neighbours[M]{After: l.First}
	if l.First == none {
		l.Last = m
	} else {
		l.First.beside().Before = m
	}
	l.First = m
}

// Remove takes a member of this list out.
func (l *List[M]) Remove(m M) {
	var none M
	at := m.beside()
	if at.Before == none {
		l.First = at.After
	} else {
		at.Before.beside().After = at.After
	}
	if at.After == none {
		l.Last = at.Before
	} else {
		at.After.beside().Before = at.Before
	}
	*at = Neighbours[M]{}
}
