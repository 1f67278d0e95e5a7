package process

import (
	"fmt"
	"sync"

	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/metrics"
)

// shared are the kinds of memory with a share for each version. Blocks are tensors that its
// processes keep after their responses, and copies of inputs of BLS requests. Arenas are their
// outputs.
var shared = [...]budget.Kind{budget.Frames, budget.Replies, budget.Blocks, budget.Arenas}

// setShares limits the memory that all lives of the model hold together.
func (m *Model) setShares() {
	m.held.Name = func() string { return fmt.Sprintf("model %q version %d", m.env.Name, m.env.Version) }
	if account := m.supervisor.account; account != nil {
		for _, k := range shared {
			m.held.Most[k] = max(account.Most(k)/100*int64(m.supervisor.limits.MemoryShare), 1)
		}
		m.mostBlocks = m.held.Most[budget.Blocks]
		m.held.Most[budget.Blocks] = 0 // mayKeep checks the limit: blocks that are already kept cannot be refused
	}
}

// quota counts and limits the memory that the server holds for one life.
type quota struct {
	model  *Model
	holder *budget.Holder
	heap   *frames.Heap // nil without an account
	copies func()       // logs once that the model gets copies
}

// newQuota creates the quota of a life. It ends when its holder leaves.
func newQuota(in *Instance) *quota {
	name := in.model.held.Name() + " instance " + in.name
	q := &quota{model: in.model, holder: &budget.Holder{Name: func() string { return name }, Within: &in.model.held}}
	account := in.model.supervisor.account
	if account == nil {
		return q
	}
	account.Enter(q.holder)
	var once sync.Once
	log := in.log // not the life, which its responses may outlive
	q.copies = sync.OnceFunc(func() {
		log.Warn().Msgf("%s has reached its limit of kept input tensors (--model-max-memory-share), and now gets copies: a model that keeps inputs should keep copies of them",
			in.model.held.Name())
	})
	q.heap = &frames.Heap{Account: account, Holder: q.holder, Refused: func(err error) {
		once.Do(func() { log.Warn().Err(err).Msg("requests of the model fail because memory is short") })
	}}
	return q
}

// chargeArena makes the model's share and the account decide about the memory that the process
// reserves for outputs beyond its idle size.
func (q *quota) chargeArena(c *ipc.Config) {
	if q.heap == nil {
		return
	}
	c.MaxArena = min(c.MaxArena, max(q.heap.Account.Most(budget.Arenas), c.FreeArena))
	c.Charge = q.heap.TakeArena
	c.Refund = q.heap.GiveArena
}

// blocks counts bytes of blocks that the process keeps; negative: that it has given back.
func (q *quota) blocks(more int64) {
	if more < 0 {
		q.holder.Drop(budget.Blocks, -more)
		return
	}
	_ = q.holder.Hold(budget.Blocks, more) // without a limit: they are kept already
}

// keeps is blocks for tensors that the process keeps after its responses.
func (q *quota) keeps(more int64) {
	q.blocks(more)
	if more < 0 {
		q.model.copied.Store(0)
	}
}

// takeBlocks is blocks for bytes that are not kept yet. It may refuse them.
func (q *quota) takeBlocks(more int64) error {
	if more > 0 {
		if err := q.mayKeep(more); err != nil {
			return err
		}
	}
	q.blocks(more)
	return nil
}

// mayLend decides whether the inputs of a batch, of n bytes, are lent to a process whose model may
// already keep its share of blocks. If it does, it gets copies of at most a quarter of its share
// until it returns a block, because its own memory is not charged. So a model that keeps its last
// inputs continues, and a model that keeps all inputs is refused.
func (q *quota) mayLend(n int64) (copies bool, err error) {
	most, kept := q.model.mostBlocks, q.model.held.Held(budget.Blocks)
	if most == 0 || kept < most {
		return false, nil
	}
	// A plugin of an earlier SDK copies nothing, and keeps more and more.
	if kept <= most+most/4 && q.model.copied.Add(n) <= most/4 {
		q.copies()
		return true, nil
	}
	return false, q.refuseBlocks(kept)
}

// mayKeep refuses n more bytes of blocks for a process if its model would exceed its share of them.
func (q *quota) mayKeep(n int64) error {
	most, kept := q.model.mostBlocks, q.model.held.Held(budget.Blocks)
	if most == 0 || kept < most && n <= most-kept {
		return nil
	}
	return q.refuseBlocks(kept)
}

func (q *quota) refuseBlocks(kept int64) error {
	err := &infer.Error{Code: infer.Unavailable, OutOfMemory: true, Message: fmt.Sprintf(
		"%s keeps %d bytes of input tensors after its responses and may keep %d (--model-max-memory-share); "+
			"a model that keeps inputs should keep copies of them, and a reload frees these", q.model.held.Name(), kept, q.model.mostBlocks)}
	q.heap.Refused(err)
	return err
}

// ofStream returns the holder of a stream's next response. This is the holder of the life until the
// model has used half of its share. Then the stream gets its own, with half of the rest, so that a
// flooding stream leaves room for others.
func (q *quota) ofStream(s *stream) *budget.Holder {
	if s.holder != nil {
		return s.holder
	}
	most, held := q.model.held.Most[budget.Frames], q.model.held.Held(budget.Frames)
	if most == 0 || held <= most/2 {
		return q.holder
	}
	name := "a request of " + q.model.held.Name()
	s.holder = &budget.Holder{Name: func() string { return name }, Within: q.holder}
	s.holder.Most[budget.Frames] = max((most-held)/2, 1)
	return s.holder
}

// spilled charges a body of n bytes until its frame has been handled. A body for which there is no
// memory is read anyway, because it may lend memory or give some back. All processes together have
// one such body at a time, and nothing of it is kept.
func (l *life) spilled(n int64) (done func()) {
	h := l.quota.heap
	if h == nil {
		return func() {}
	}
	err := h.Take(n)
	if err == nil {
		return func() { h.Give(n) }
	}
	s := l.in.model.supervisor
	s.tight.Lock()
	s.account.Must(budget.Frames, n)
	h.Tight = err
	return func() {
		h.Tight = nil
		s.account.Give(budget.Frames, n)
		s.tight.Unlock()
	}
}

// usage returns the bytes of the holder and the bounds of its model, by kind.
func (q *quota) usage() (list []metrics.Bytes) {
	for k := range budget.Kind(budget.Kinds) {
		if n := q.holder.Held(k); n > 0 {
			limit := q.model.held.Most[k]
			if k == budget.Blocks {
				limit = q.model.mostBlocks
			}
			list = append(list, metrics.Bytes{Kind: k.String(), Bytes: n, Limit: limit})
		}
	}
	return list
}
