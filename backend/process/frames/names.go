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

// Names is a table of tensor names, whose indices stand for tensors in the frames of one direction.
// Both directions start with the names of INITIALIZE, and each grows by the NAMEs of its own side.
// A table is guarded by the lock of its direction: see Encoder and Decoder.
type Names struct {
	list    []string
	index   map[string]uint16
	inputs  int
	outputs int
	bytes   int // of all names
}

// NewNames creates a table of the names of a model's config. It fails if there are too many, or too
// long ones.
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

// List returns all names in the order of their indices. The caller does not change it.
func (n *Names) List() []string { return n.list }

// Inputs returns the number of the config's inputs. Their names come first.
func (n *Names) Inputs() int { return n.inputs }

// Outputs returns the number of the config's outputs. Their names follow the inputs'.
func (n *Names) Outputs() int { return n.outputs }

// add appends a name that the stub has sent.
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

// refuses returns the rule that forbids this name as the next one; "" if it is allowed.
func (n *Names) refuses(name []byte) (rule, detail string) {
	switch {
	case len(n.list) >= maxNames:
		return "name", "there are too many names"
	case n.bytes+len(name) > maxNameBytes:
		return "name", "names take more than 1 MiB"
	case !utf8.Valid(name):
		return "utf8", "name is not UTF-8"
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

// outputIndex returns the index of an output of the config. An input may have the same name, so
// only the entries of outputs are searched.
func (n *Names) outputIndex(name string) (uint16, bool) {
	for i := n.inputs; i < n.inputs+n.outputs; i++ {
		if n.list[i] == name {
			return uint16(i), true
		}
	}
	return 0, false
}
