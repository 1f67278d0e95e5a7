package models

// Poller polls when a test says so. It has the methods of its Registry.
type Poller poller

func NewPoller(r *Registry) *Poller { return (*Poller)(newPoller(r)) }

// Look polls once and begins the changes that it finds.
func (p *Poller) Look() { (*poller)(p).look(p.polling) }

// Settle waits for the changes that polls have begun and for the versions that they have replaced.
func (p *Poller) Settle() {
	p.polls.Wait()
	p.ending.Wait()
}

// Operations counts the locked models, and the operations that run and wait.
func (r *Registry) Operations() (locked, running, waiting int) { return r.locks.Counts() }
