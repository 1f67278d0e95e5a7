package exposition

import "errors"

// Pieces records the writes. If after is not 0, the write with that number fails.
type Pieces struct {
	List  []string
	after int
}

func (p *Pieces) Write(b []byte) (int, error) {
	p.List = append(p.List, string(b))
	if len(p.List) == p.after {
		return 0, errGone
	}
	return len(b), nil
}

var errGone = errors.New("the client has gone")
