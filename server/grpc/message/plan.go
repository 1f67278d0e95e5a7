package message

import (
	"reflect"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/nereid-serving/nereid/budget"
)

// Plan gives the heap size of each field of a decoded message. It is computed from the message's
// descriptor, so new fields need no further code.
type Plan struct {
	size   int64 // of the struct or map entry
	entry  bool  // a map entry
	fields map[protowire.Number]*planned
}

// planned is one field of a Plan.
type planned struct {
	name    protoreflect.Name
	kind    protoreflect.Kind
	wire    protowire.Type // of one element
	list    bool
	cost    int64 // of one element, besides its bytes and its message
	message *Plan // nil: not a message
}

// wireTypes maps each kind that is not a varint to its wire type.
var wireTypes = map[protoreflect.Kind]protowire.Type{
	protoreflect.Fixed32Kind: protowire.Fixed32Type, protoreflect.Sfixed32Kind: protowire.Fixed32Type, protoreflect.FloatKind: protowire.Fixed32Type,
	protoreflect.Fixed64Kind: protowire.Fixed64Type, protoreflect.Sfixed64Kind: protowire.Fixed64Type, protoreflect.DoubleKind: protowire.Fixed64Type,
	protoreflect.StringKind: protowire.BytesType, protoreflect.BytesKind: protowire.BytesType, protoreflect.MessageKind: protowire.BytesType,
	protoreflect.GroupKind: protowire.StartGroupType,
}

const (
	// slotBytes is the size of the largest slice element, pointed the overhead of an allocation.
	slotBytes = 24
	pointed   = 16
	// mapSlot is the size of an entry, with key and value, of a map that has just grown.
	mapSlot = 3*(slotBytes+16) + pointed
	// deepest bounds the nesting of messages. The API's own messages are far from it.
	deepest = 100
)

// PlanOf returns the plan of a generated message type.
func PlanOf(m proto.Message) *Plan {
	return planOf(m.ProtoReflect().Descriptor(), make(map[protoreflect.FullName]*Plan))
}

// planOf consults known first, because a message type may contain itself.
func planOf(d protoreflect.MessageDescriptor, known map[protoreflect.FullName]*Plan) *Plan {
	if p := known[d.FullName()]; p != nil {
		return p
	}
	p := &Plan{size: mapSlot, entry: d.IsMapEntry(), fields: make(map[protowire.Number]*planned)}
	known[d.FullName()] = p
	if t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName()); err == nil && !p.entry {
		size := int64(reflect.TypeOf(t.Zero().Interface()).Elem().Size())
		p.size = size + size/8 + pointed
	}
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		one := &planned{name: f.Name(), kind: f.Kind(), wire: wireTypes[f.Kind()], list: f.IsList()}
		switch {
		case one.list:
			one.cost = 2 * slotBytes // append doubles
		case f.ContainingOneof() != nil:
			one.cost = 2 * pointed
		}
		if one.wire == protowire.BytesType {
			one.cost += pointed
		}
		if f.Kind() == protoreflect.MessageKind {
			one.message = planOf(f.Message(), known)
		}
		p.fields[f.Number()] = one // bound: the fields of a message's type
	}
	return p
}

// weigh returns the heap size of the message that generated code decodes from b, in one pass.
// entries bounds the map entries of one message.
func (p *Plan) weigh(b []byte, entries, depth int) (total int64, err error) {
	if depth > deepest {
		return 0, errUnparsable
	}
	total = p.size
	count, named := 0, (*planned)(nil)
	err = eachField(b, func(f field) error {
		one := p.fields[f.num]
		switch {
		case one == nil: // discarded
		case one.wire == f.typ:
			total += one.cost + int64(len(f.data))
			if one.message == nil {
				break
			}
			if one.message.entry {
				count, named = count+1, one
			}
			n, err := one.message.weigh(f.data, entries, depth+1)
			total += n
			return err
		case one.list && f.typ == protowire.BytesType: // packed
			total += one.cost * int64(one.packed(f.data))
		}
		return nil
	})
	if err == nil && count > entries {
		err = invalid("'%s' has %d entries, but at most %d are allowed", named.name, count, entries)
	}
	return total, err
}

// packed returns the number of packed elements in b.
func (f *planned) packed(b []byte) int {
	switch f.wire {
	case protowire.Fixed32Type:
		return len(b) / 4
	case protowire.Fixed64Type:
		return len(b) / 8
	}
	return countVarints(b)
}

// charge charges the decoded size of b.
func (p *Plan) charge(c *budget.Charge, b []byte, entries int) error {
	n, err := p.weigh(b, entries, 0)
	if err != nil {
		return err
	}
	return AsOutOfMemory(c.Take(budget.Bodies, n))
}
