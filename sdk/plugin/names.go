package plugin

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/peer"
)

// Limits of a table of names.
const (
	mostNames     = 65535
	mostNameBytes = 1 << 20
)

// names holds both tables of names. They start with the same entries: the config's inputs, then its
// outputs.
type names struct {
	peer *peer.Peer

	// received maps the server's indices to names. The goroutine that reads replaces it; other
	// goroutines use it to decode frames.
	received atomic.Pointer[[]string]

	sent atomic.Pointer[map[string]uint16] // the indices that this side uses; replaced, never changed

	mu    sync.Mutex // held while NAME is sent, so that no index is used before
	count int
	bytes int
}

func newNames(p *peer.Peer, list []string) *names {
	n := &names{peer: p, count: len(list)}
	n.received.Store(&list)
	sent := make(map[string]uint16, len(list))
	for i, name := range list {
		sent[name] = uint16(i) // where a name is an input and an output, both indices mean it
		n.bytes += len(name)
	}
	n.sent.Store(&sent)
	return n
}

// learn handles a NAME frame. After an invalid name it accepts no later one, so that no index
// shifts.
func (n *names) learn(m peer.Message) error {
	list := *n.received.Load()
	switch {
	case m.Lost != nil:
		return fmt.Errorf("name %d cannot be read: %w", m.ID, m.Lost)
	case m.ID != uint64(len(list)):
		return fmt.Errorf("name has index %d, want %d", m.ID, len(list))
	}
	list = append(list[:len(list):len(list)], string(m.Body))
	n.received.Store(&list)
	return nil
}

// name returns the name of the server's index.
func (n *names) name(index uint16) (string, error) {
	list := *n.received.Load()
	if int(index) >= len(list) {
		return "", fmt.Errorf("name %d is not among the %d that are known", index, len(list))
	}
	return list[index], nil
}

// index returns the index of a name for a frame to the server. A new name is sent to the server
// first.
func (n *names) index(name string) (uint16, error) {
	if index, ok := (*n.sent.Load())[name]; ok {
		return index, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if index, ok := (*n.sent.Load())[name]; ok {
		return index, nil
	}
	if n.count == mostNames || n.bytes+len(name) > mostNameBytes {
		return 0, fmt.Errorf("the backend has used %d names of tensors of %d bytes together", n.count, n.bytes)
	}
	if err := n.peer.Send(ipc.Name, uint64(n.count), []byte(name)); err != nil {
		return 0, err
	}
	index := uint16(n.count)
	more := maps.Clone(*n.sent.Load())
	more[name] = index
	n.sent.Store(&more)
	n.count++
	n.bytes += len(name)
	return index, nil
}
