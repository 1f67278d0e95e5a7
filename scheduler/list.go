package scheduler

// list is what waits, in order. Its members know their neighbours, so each leaves
// from anywhere at once, and nothing is allocated; a member is in one list at a
// time.
type list[M linked[M]] struct{ first, last M }

// linked is a pointer to a struct that embeds neighbours.
type linked[M any] interface {
	comparable
	beside() *neighbours[M]
}

// neighbours are the members before and after one, nil at the ends.
type neighbours[M any] struct{ before, after M }

func (n *neighbours[M]) beside() *neighbours[M] { return n }

func (l *list[M]) pushBack(m M) {
	var none M
	*m.beside() = neighbours[M]{before: l.last}
	if l.last == none {
		l.first = m
	} else {
		l.last.beside().after = m
	}
	l.last = m
}

func (l *list[M]) pushFront(m M) {
	var none M
	*m.beside() = neighbours[M]{after: l.first}
	if l.first == none {
		l.last = m
	} else {
		l.first.beside().before = m
	}
	l.first = m
}

func (l *list[M]) remove(m M) {
	var none M
	at := m.beside()
	if at.before == none {
		l.first = at.after
	} else {
		at.before.beside().after = at.after
	}
	if at.after == none {
		l.last = at.before
	} else {
		at.after.beside().before = at.before
	}
	*at = neighbours[M]{}
}
