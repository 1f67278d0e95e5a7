package message

import (
	"reflect"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/nereid-serving/nereid/budget"
)

// Plan knows the size of each field of a message on the heap once it is decoded. It is made of
// the message's descriptor, so a new field is weighed without further code.
type Plan struct {
	size   int64 // of the struct, or of an entry of a map
	entry  bool  // of a map
	fields map[protowire.Number]*planned
}

// planned is one field of a Plan.
type planned struct {
	name    protoreflect.Name
	kind    protoreflect.Kind
	wire    protowire.Type // of one element
	list    bool
	cost    int64 // of one element, besides its bytes and its message
	message *Plan // nil: it is no message
}

// wireTypes has the wire type of each kind that is not a varint.
var wireTypes = map[protoreflect.Kind]protowire.Type{
	protoreflect.Fixed32Kind: protowire.Fixed32Type, protoreflect.Sfixed32Kind: protowire.Fixed32Type, protoreflect.FloatKind: protowire.Fixed32Type,
	protoreflect.Fixed64Kind: protowire.Fixed64Type, protoreflect.Sfixed64Kind: protowire.Fixed64Type, protoreflect.DoubleKind: protowire.Fixed64Type,
	protoreflect.StringKind: protowire.BytesType, protoreflect.BytesKind: protowire.BytesType, protoreflect.MessageKind: protowire.BytesType,
	protoreflect.GroupKind: protowire.StartGroupType,
}

const (
	// slotBytes is the largest element of a slice, and pointed what an allocation takes besides
	// its bytes.
	slotBytes = 24
	pointed   = 16
	// mapSlot is an entry of a map that has just grown, with its key and value.
	mapSlot = 3*(slotBytes+16) + pointed
	// deepest bounds messages within messages. No message of the API comes near.
	deepest = 100
)

// PlanOf returns the plan of a message that generated code decodes.
func PlanOf(m proto.Message) *Plan {
	return planOf(m.ProtoReflect().Descriptor(), make(map[protoreflect.FullName]*Plan))
}

// planOf looks messages up in known first, as a message may contain itself.
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

// weigh returns what generated code makes of b, in bytes of the heap. It reads b once. entries
// bounds the entries of the maps of one message.
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

// packed returns how many elements b holds.
func (f *planned) packed(b []byte) int {
	switch f.wire {
	case protowire.Fixed32Type:
		return len(b) / 4
	case protowire.Fixed64Type:
		return len(b) / 8
	}
	return countVarints(b)
}

// charge charges what generated code makes of b.
func (p *Plan) charge(c *budget.Charge, b []byte, entries int) error {
	n, err := p.weigh(b, entries, 0)
	if err != nil {
		return err
	}
	return AsNoRoom(c.Take(budget.Bodies, n))
}
