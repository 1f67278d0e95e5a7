package process

import (
	"unicode/utf8"

	"github.com/nereid-serving/nereid/ipc"
)

// Limits of a table of names.
const (
	maxNames     = 65_535
	maxNameBytes = 1 << 20
)

// names is one direction's table of tensor names. It begins with those of the
// config, inputs before outputs.
type names struct {
	list    []string
	index   map[string]uint16
	inputs  int
	outputs int
	bytes   int
}

// newNames makes the table that INITIALIZE announces.
func newNames(inputs, outputs []string) *names {
	n := &names{index: make(map[string]uint16), inputs: len(inputs), outputs: len(outputs)}
	for _, group := range [][]string{inputs, outputs} {
		for _, name := range group {
			if _, ok := n.index[name]; !ok {
				n.index[name] = uint16(len(n.list))
			}
			n.list = append(n.list, name)
			n.bytes += len(name)
		}
	}
	return n
}

// add appends a name that the stub announced.
func (n *names) add(index uint64, name []byte) error {
	if index != uint64(len(n.list)) {
		return &ipc.ProtocolError{Rule: "name", Detail: "name is announced out of order"}
	}
	if rule, detail := n.refuses(name); rule != "" {
		return &ipc.ProtocolError{Rule: rule, Detail: detail}
	}
	n.append(string(name))
	return nil
}

// refuses tells which rule keeps a name from being the next one; "" if it can be.
func (n *names) refuses(name []byte) (rule, detail string) {
	switch {
	case len(n.list) >= maxNames:
		return "name", "there are too many names"
	case n.bytes+len(name) > maxNameBytes:
		return "name", "names take more than 1 MiB"
	case !utf8.Valid(name):
		return "utf8", "name is no UTF-8"
	}
	return "", ""
}

func (n *names) append(name string) {
	n.list = append(n.list, name)
	n.bytes += len(name)
}

// isOutput reports whether the index is that of an output of the config.
func (n *names) isOutput(index uint16) bool {
	return int(index) >= n.inputs && int(index) < n.inputs+n.outputs
}

// outputIndex returns the index of an output of the config. A name can be an
// input's as well: the outputs' own entries are the ones that count.
func (n *names) outputIndex(name string) (uint16, bool) {
	for i := n.inputs; i < n.inputs+n.outputs; i++ {
		if n.list[i] == name {
			return uint16(i), true
		}
	}
	return 0, false
}
