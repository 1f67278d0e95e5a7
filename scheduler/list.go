package scheduler

// List is a doubly linked list whose members carry their own links: it allocates nothing, and any
// member can be removed in constant time. A member is in one list at a time. The zero value is
// empty, and the owner's lock guards it. A loop reads After before it removes a member.
type List[M Member[M]] struct{ First, Last M }

type Member[M any] interface {
	comparable
	beside() *Neighbours[M]
}

// Neighbours links a member to its list; a struct embeds it. Both are nil at the ends, and outside
// of lists.
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
