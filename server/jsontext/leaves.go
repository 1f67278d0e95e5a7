package jsontext

// Leaves walks over the elements of an array and flattens nested arrays, in row-major order of a
// tensor. Next advances to the next leaf, which is then read once, by the method of its type. The
// walk ends with an error.
type Leaves struct {
	b     []byte
	i     int // after the opening bracket of an array, or after a leaf
	depth int
	alone bool // the only leaf, which is not in an array
}

// Leaves begins a walk over the array v.
func (v Value) Leaves() (Leaves, error) {
	if v.first() != '[' {
		return Leaves{}, ErrNotArray
	}
	return Leaves{b: v.t.buf, i: v.at + 1, depth: 1}, nil
}

// Items begins a walk over the array v, or over v itself if it is not an array.
func (v Value) Items() Leaves {
	if walk, err := v.Leaves(); err == nil {
		return walk
	}
	return Leaves{b: v.t.buf, i: v.at, alone: true}
}

// MostLeaves bounds the number of leaves of the array v.
func (v Value) MostLeaves() int64 { return int64(len(v.t.buf)-v.at)/2 + 1 }

// Next advances to the next leaf, and reports false after the last one.
func (l *Leaves) Next() bool {
	if l.depth == 0 { // not in an array, or no longer in one
		more := l.alone
		l.alone = false
		return more
	}
	for {
		switch l.b[l.i] {
		case ' ', '\n', '\r', '\t', ',':
			l.i++
		case '[':
			l.i++
			l.depth++
		case ']':
			l.i++
			if l.depth--; l.depth == 0 {
				return false
			}
		default:
			return true
		}
	}
}

// Float reads the leaf as the nearest double.
func (l *Leaves) Float() (float64, error) {
	f, end, ok := readFloat(l.b, l.i)
	if !ok {
		return 0, errNotDouble
	}
	l.i = end
	return f, nil
}

// Int reads the leaf as a whole number that fits an int64.
func (l *Leaves) Int() (int64, error) {
	kind, u, end := readNumber(l.b, l.i)
	if kind != smallNumber && kind != negativeNumber {
		return 0, errNotSigned
	}
	l.i = end
	return int64(u), nil
}

// Uint reads the leaf as a whole number that fits a uint64.
func (l *Leaves) Uint() (uint64, error) {
	kind, u, end := readNumber(l.b, l.i)
	if kind != smallNumber && kind != bigNumber {
		return 0, errNotUnsigned
	}
	l.i = end
	return u, nil
}

// Bool reads the leaf as true or false.
func (l *Leaves) Bool() (bool, error) {
	switch l.b[l.i] {
	case 't':
		l.i += len("true")
		return true, nil
	case 'f':
		l.i += len("false")
		return false, nil
	}
	return false, errNotBool
}

// Text reads the leaf as a string.
func (l *Leaves) Text() (s String, err error) {
	if l.b[l.i] != '"' {
		return s, errNotString
	}
	s, l.i = stringAt(l.b, l.i)
	return s, nil
}
