package frames

import (
	"unicode/utf8"

	"github.com/nereid-serving/nereid/ipc"
)

// Limits of a table of names.
const (
	maxNames     = 65_535
	maxNameBytes = 1 << 20
)

// Names is a table of tensor names, by whose indices one side of a channel names tensors
// in its frames. There is one for what the supervisor says and one for what the stub
// says: both begin with the names that INITIALIZE tells, and each grows by the NAMEs that
// its own side sends. A table has the lock of its direction: see Encoder and Decoder.
type Names struct {
	list    []string
	index   map[string]uint16
	inputs  int
	outputs int
	bytes   int // of all names
}

// NewNames makes a table of the names of a model's config. The error is that there are
// more, or longer ones, than can be told.
func NewNames(inputs, outputs []string) (*Names, error) {
	if err := checkNames(inputs, outputs); err != nil {
		return nil, err
	}
	n := &Names{index: make(map[string]uint16), inputs: len(inputs), outputs: len(outputs)}
	for _, group := range [][]string{inputs, outputs} {
		for _, name := range group {
			if _, ok := n.index[name]; !ok {
				n.index[name] = uint16(len(n.list)) // bound: maxNames
			}
			n.append(name)
		}
	}
	return n, nil
}

// List returns all names in the order of their indices, which the caller does not change.
func (n *Names) List() []string { return n.list }

// Inputs returns how many names are of the config's inputs. They are the first.
func (n *Names) Inputs() int { return n.inputs }

// Outputs returns how many names, behind the inputs', are of the config's outputs.
func (n *Names) Outputs() int { return n.outputs }

// add appends a name that the stub told.
func (n *Names) add(index uint64, name []byte) error {
	if index != uint64(len(n.list)) {
		return &ipc.ProtocolError{Rule: "name", Detail: "name is announced out of order"}
	}
	if rule, detail := n.refuses(name); rule != "" {
		return &ipc.ProtocolError{Rule: rule, Detail: detail}
	}
	n.append(string(name)) // bound: maxNameBytes
	return nil
}

// refuses tells which rule keeps a name from being the next one; "" if it can be.
func (n *Names) refuses(name []byte) (rule, detail string) {
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

func (n *Names) append(name string) {
	n.list = append(n.list, name) // bound: maxNames
	n.bytes += len(name)
}

// isOutput reports whether the index is that of an output of the config.
func (n *Names) isOutput(index uint16) bool {
	return int(index) >= n.inputs && int(index) < n.inputs+n.outputs
}

// outputIndex returns the index of an output of the config. A name can be an
// input's as well: the outputs' own entries are the ones that count.
func (n *Names) outputIndex(name string) (uint16, bool) {
	for i := n.inputs; i < n.inputs+n.outputs; i++ {
		if n.list[i] == name {
			return uint16(i), true
		}
	}
	return 0, false
}
